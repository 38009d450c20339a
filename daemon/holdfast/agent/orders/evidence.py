"""Evidence bundle: data that a reboot would destroy, in one tar.gz of limited size."""

from __future__ import annotations

import io
import json
import logging
import re
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

from holdfast.agent.orders.orders import OrderHandler, OrderResult, ReceivedOrder
from holdfast.agent.orders.verbs import number
from holdfast_checks.probes.kmsg import read_present
from holdfast_checks.probes.kmsg_record import render

log = logging.getLogger(__name__)

_KERNEL_RECORDS = 5000
_PSTORE_BYTES = 256 * 1024
_PSTORE_FILES = 20
_BUNDLE_BYTES = 512 * 1024
"""Size limit of a bundle; to fit, only the ends of its longest files are kept. It is sent with the order's outcome (a report's body may
have 1 MiB, and base64 takes a third more)."""
_BUNDLES_KEPT = 20
_PROC = ("meminfo", "loadavg", "uptime", "version", "cmdline", "modules", "mounts", "net/dev")
_DEFAULT_S = 10.0

BundlePart = tuple[str, bytes]


def collect_evidence(
    folder: Path, kmsg: Path, pstore: Path, gpus: Callable[[float], Mapping[str, Any]]
) -> OrderHandler:
    """Write ``INCIDENT.tar.gz`` under ``folder``. ``gpus``: NVML's answer within the given seconds, and the inventory."""

    def verb(order: ReceivedOrder) -> OrderResult:
        max_s = number(order.args, "max_s", _DEFAULT_S, 120.0)
        until_s = time.monotonic() + max_s
        parts: list[BundlePart] = []
        missing: list[str] = []
        sources: dict[str, Callable[[], list[BundlePart]]] = {
            "kernel": lambda: _kernel(kmsg),
            "pstore": lambda: _pstore(pstore),
            "proc": _proc,
            "gpus": lambda: _gpus(gpus(max(0.1, until_s - time.monotonic()))),
        }
        for name, gather in sources.items():
            if time.monotonic() > until_s:
                missing.append(f"{name}: no time left")
                continue
            try:
                parts += gather()
            except OSError as error:
                missing.append(f"{name}: {error}")
        path = _write(folder, order, [*parts, ("missing.json", _json(missing))])
        bundle = path.read_bytes()
        detail = {"path": str(path), "bytes": len(bundle), "missing": missing}
        return OrderResult(True, f"{len(parts)} files of evidence, {len(bundle)} bytes", detail, bundle)

    return verb


def _kernel(kmsg: Path) -> list[BundlePart]:
    records = read_present(kmsg)[-_KERNEL_RECORDS:]
    return [("kernel.log", "".join(map(render, records)).encode())]


def _pstore(pstore: Path) -> list[BundlePart]:
    if not pstore.is_dir():
        return [("pstore.json", b"[]\n")]
    files = sorted(entry for entry in pstore.iterdir() if entry.is_file() and not entry.is_symlink())
    listing = [{"name": file.name, "bytes": file.stat().st_size, "mtime": file.stat().st_mtime} for file in files]
    return [("pstore.json", _json(listing)), *_heads(files[-_PSTORE_FILES:])]


def _heads(files: list[Path]) -> Iterator[BundlePart]:
    for file in files:
        with file.open("rb") as open_file:
            yield f"pstore/{file.name}", open_file.read(_PSTORE_BYTES)


def _proc() -> list[BundlePart]:
    found = []
    for name in _PROC:
        path = Path("/proc") / name
        if path.exists():
            found.append((f"proc/{name.replace('/', '_')}", path.read_bytes()[:_PSTORE_BYTES]))
    return found


def _gpus(said: Mapping[str, Any]) -> list[BundlePart]:
    return [(f"{name}.json", _json(value)) for name, value in said.items()]


def _json(value: Any) -> bytes:
    def plain(other: Any) -> Any:
        return asdict(other) if is_dataclass(other) and not isinstance(other, type) else str(other)

    return json.dumps(value, indent=1, default=plain).encode() + b"\n"


def _write(folder: Path, order: ReceivedOrder, parts: list[BundlePart]) -> Path:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    name = re.sub(r"[^A-Za-z0-9_-]", "_", order.incident or order.id)[:100]
    path = folder / f"{name}.tar.gz"
    temporary = path.with_suffix(".tmp")
    longest = max(len(data) for _, data in parts)
    _pack(temporary, name, parts)
    while temporary.stat().st_size > _BUNDLE_BYTES and longest > 1024:
        longest //= 2
        _pack(temporary, name, [(part, data[-longest:]) for part, data in parts])
    temporary.replace(path)
    for old in sorted(folder.glob("*.tar.gz"), key=lambda each: each.stat().st_mtime)[:-_BUNDLES_KEPT]:
        log.info("event=evidence_removed path=%s", old)
        old.unlink(missing_ok=True)
    return path


def _pack(path: Path, name: str, parts: list[BundlePart]) -> None:
    with tarfile.open(path, "w:gz", compresslevel=6) as bundle:
        for part, data in parts:
            info = tarfile.TarInfo(f"{name}/{part}")
            info.size, info.mtime, info.mode = len(data), int(time.time()), 0o600
            bundle.addfile(info, io.BytesIO(data))
