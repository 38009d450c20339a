"""What of Holdfast's plug-ins can be seen from here: plugstack.conf, job_submit.lua, Prolog and Epilog. Reads files, loads nothing."""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Iterator
from pathlib import Path

from holdfast.doctor.facts import PluginFacts, SlurmFacts, SlurmScript, SpankLine
from holdfast.doctor.gather.elf import exported_uint32

_LARGEST_BYTES = 16 << 20
_INCLUDES = 4
"""plugstack.conf may include others, which may include others, so deep at most."""
_LUA_FILE = re.compile(r"""["']([^"']*holdfast\.lua)["']""")
_LEMONS = re.compile(r"""\blemons\s*=\s*["']([^"']+)["']""")
_LUA_COMMENT = re.compile(r"--.*")
SPANK = "spank_holdfast"


def look(slurm: SlurmFacts) -> PluginFacts:
    """Everything that this machine shows; what this user may not read is said so."""
    conf = Path(slurm.value("SLURM_CONF") or "/etc/slurm/slurm.conf")
    plugstack = Path(slurm.value("PlugStackConfig") or conf.parent / "plugstack.conf")
    glue = _text(conf.parent / "job_submit.lua") or ""
    called = _LUA_FILE.search(glue)
    return PluginFacts(
        seen=conf.parent.is_dir(),
        folder=str(conf.parent),
        spank=tuple(_spank_line(line) for line in _lines(plugstack, _INCLUDES) if SPANK in line),
        lua_glue=glue,
        lua_module=called[1] if called else "",
        lua_module_there=called is not None and os.access(called[1], os.R_OK),
        lemons_not_writable=_lemons(glue, slurm.value("SlurmUser").partition("(")[0]),
        scripts=tuple(_scripts(slurm)),
    )


def _lemons(glue: str, owner: str) -> str:
    called = _LEMONS.search(_LUA_COMMENT.sub("", glue))
    try:
        user = pwd.getpwnam(owner)
        there = os.stat(called[1]) if called else None
    except (KeyError, OSError):
        return ""
    if called is None or there is None or user.pw_uid == 0:
        return ""
    groups = os.getgrouplist(owner, user.pw_gid)
    bit = 0o200 if there.st_uid == user.pw_uid else 0o020 if there.st_gid in groups else 0o002
    return "" if there.st_mode & bit else called[1]


def _lines(file: Path, depth: int) -> Iterator[str]:
    for raw in (_text(file) or "").splitlines():
        line = raw.partition("#")[0].strip()
        words = line.split()
        if words[:1] == ["include"] and len(words) > 1 and depth:
            pattern = words[1]
            base, relative = (Path("/"), pattern[1:]) if pattern.startswith("/") else (file.parent, pattern)
            for found in sorted(base.glob(relative)):
                yield from _lines(found, depth - 1)
        elif line:
            yield line


def _spank_line(line: str) -> SpankLine:
    words = line.split()
    path = next((word for word in words[1:] if SPANK in word), "")
    return SpankLine(words[0], path, Path(path).is_file(), os.access(path, os.R_OK), _release(Path(path)))


def _release(file: Path) -> tuple[int, int] | None:
    """Slurm's release that it was compiled for; None: it cannot be seen."""
    try:
        with file.open("rb") as opened:
            number = exported_uint32(opened.read(_LARGEST_BYTES), "plugin_version")
    except OSError:
        return None
    return None if number is None else (number >> 16 & 0xFF, number >> 8 & 0xFF)


def _scripts(slurm: SlurmFacts) -> Iterator[SlurmScript]:
    for key in ("Prolog", "Epilog"):
        for path in slurm.value(key).split(","):
            if "holdfast" in path:
                yield SlurmScript(key, path, Path(path).is_file(), os.access(path, os.X_OK))


def _text(file: Path) -> str | None:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
