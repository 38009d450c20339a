"""Prints what a folder of wheels, or a site-packages, holds, as a CycloneDX 1.5 bill of materials: ``python sbom.py FOLDER``.

Standard library alone: it runs where the packages are built. Ours has no package URL: it comes from no index."""

from __future__ import annotations

import hashlib
import json
import sys
import zipfile
from collections.abc import Iterator
from email.message import Message
from email.parser import Parser
from pathlib import Path
from typing import Any


def packages(folder: Path) -> Iterator[tuple[Message, str]]:
    """Each package's metadata; SHA-256 of its wheel, or of its list of installed files."""
    for wheel in sorted(folder.glob("*.whl")):
        with zipfile.ZipFile(wheel) as opened:
            inside = next(n for n in opened.namelist() if n.endswith(".dist-info/METADATA"))
            text = opened.read(inside).decode()
        yield Parser().parsestr(text, headersonly=True), _sha256(wheel)
    for info in sorted(folder.glob("*.dist-info")):
        yield Parser().parsestr((info / "METADATA").read_text(), headersonly=True), _sha256(info / "RECORD")


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def component(package: Message, sha256: str) -> dict[str, Any]:
    name, version = package["Name"], package["Version"]
    licence = package["License-Expression"] or package["License"] or ""
    found: dict[str, Any] = {"type": "library", "name": name, "version": version}
    if name != "holdfast-slurm":
        found["purl"] = f"pkg:pypi/{name.lower().replace('_', '-')}@{version}"
    if licence and len(licence) < 100:  # some put the whole text there
        found["licenses"] = [{"license": {"name": licence}}]
    return found | {"hashes": [{"alg": "SHA-256", "content": sha256}]}


def bill(folder: Path) -> dict[str, Any]:
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "components": [component(*each) for each in packages(folder)],
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(bill(Path(sys.argv[1])), indent=1) + "\n")
