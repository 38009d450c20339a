"""The locks that bundles, packages and install.sh install from: complete, within the ranges of pyproject.toml, by hash, and without us."""

from __future__ import annotations

import re
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from lifecycle.lifecycle_support import SCRIPTS

PROJECT = tomllib.loads((SCRIPTS.parent / "pyproject.toml").read_text())["project"]
EXTRAS = {"agent": ["stacks"], "controller": ["controller", "postgresql", "quorum", "stacks"]}
_LINE = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^ ;\\]+)")


def locked(name: str) -> dict[str, str]:
    lines = (SCRIPTS / f"locks/{name}.txt").read_text().splitlines()
    found = [m for line in lines if (m := _LINE.match(line))]
    return {canonicalize_name(m["name"]): m["version"] for m in found}


@pytest.mark.parametrize("name", EXTRAS)
def test_it_has_what_pyproject_asks_for(name: str) -> None:
    asked = [*PROJECT["dependencies"], *(r for e in EXTRAS[name] for r in PROJECT["optional-dependencies"][e])]
    have = locked(name)
    for text in asked:
        wanted = Requirement(text)
        assert wanted.specifier.contains(have[canonicalize_name(wanted.name)]), f"{text}: run ./dev lock"


@pytest.mark.parametrize("name", ["agent", "controller", "build", "pip"])
def test_each_package_has_its_hashes_and_none_is_ours(name: str) -> None:
    text = (SCRIPTS / f"locks/{name}.txt").read_text()
    blocks = re.split(r"\n(?=\S)", text.strip())
    assert len(blocks) == len(locked(name)) > 0
    assert all("--hash=sha256:" in block for block in blocks)
    assert not [n for n in locked(name) if n.startswith("holdfast")]


def test_the_agents_is_a_part_of_the_controllers() -> None:
    """A head node has both in one environment."""
    assert locked("agent").items() <= locked("controller").items()


def test_what_machines_install_does_not_name_our_own_distribution() -> None:
    """pip would look for it on an index."""
    extras = PROJECT["optional-dependencies"]
    machines = [*PROJECT["dependencies"], *(r for e in ("cli", *EXTRAS["controller"], "train") for r in extras[e])]
    assert not [r for r in machines if Requirement(r).name.startswith("holdfast")]
    assert set(extras["cli"]) <= set(extras["controller"])
