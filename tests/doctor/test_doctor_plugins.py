"""The doctor on Holdfast's plug-ins: files are read, nothing is loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.doctor.facts import SlurmFacts
from holdfast.doctor.gather.elf import exported_uint32
from holdfast.doctor.gather.plugin_facts import look
from support.slurm_plugins import SLURM_INCLUDE, has_headers, make


def slurm(conf: Path, **config: str) -> SlurmFacts:
    return SlurmFacts("22.05.8", {"SLURM_CONF": str(conf / "slurm.conf"), "PlugStackConfig": "(null)"} | config, {})


def test_a_machine_without_slurms_settings_shows_nothing(tmp_path: Path) -> None:
    assert not look(slurm(tmp_path / "elsewhere")).seen


def test_our_lines_are_found_through_includes(tmp_path: Path) -> None:
    (tmp_path / "plugstack.conf.d").mkdir()
    (tmp_path / "plugstack.conf").write_text(
        "# optional /x/spank_holdfast.so\nrequired /usr/lib/other.so\ninclude plugstack.conf.d/*.conf\ninclude plugstack.conf\n"
    )
    (tmp_path / "spank_holdfast.so").write_bytes(b"no plug-in")
    line = f"optional  {tmp_path}/spank_holdfast.so socket=/run/x  # ours\n"
    (tmp_path / "plugstack.conf.d/holdfast.conf").write_text(line + "required /gone/spank_holdfast.so")
    found = set(look(slurm(tmp_path)).spank)
    assert {(f.kind, f.path, f.there, f.readable, f.release) for f in found} == {
        ("optional", f"{tmp_path}/spank_holdfast.so", True, True, None),
        ("required", "/gone/spank_holdfast.so", False, False, None),
    }


def test_the_lua_module_that_the_sites_script_names(tmp_path: Path) -> None:
    module = tmp_path / "holdfast.lua"
    (tmp_path / "job_submit.lua").write_text(f'local here, holdfast = pcall(dofile, "{module}")\n')
    assert (look(slurm(tmp_path)).lua_module, look(slurm(tmp_path)).lua_module_there) == (str(module), False)
    module.write_text("return {}")
    assert look(slurm(tmp_path)).lua_module_there


@pytest.mark.parametrize(
    ("mode", "line", "said"),
    [
        (0o660, "lemons = ", True),
        (0o666, "lemons = ", False),
        (0o660, "-- lemons = ", False),
        (0o660, "x = ", False),
    ],
)
def test_a_list_of_lemons_that_slurmctld_cannot_open(tmp_path: Path, mode: int, line: str, said: bool) -> None:
    """By the user, its groups and the mode; the user is one that every machine has and that owns nothing here."""
    lemons = tmp_path / "lemons"
    (tmp_path / "job_submit.lua").write_text(f'{line}"{lemons}"\n')
    assert look(slurm(tmp_path, SlurmUser="daemon(1)")).lemons_not_writable == ""
    lemons.touch()
    lemons.chmod(mode)
    assert look(slurm(tmp_path, SlurmUser="daemon(1)")).lemons_not_writable == (str(lemons) if said else "")
    assert look(slurm(tmp_path, SlurmUser="root(0)")).lemons_not_writable == ""
    assert look(slurm(tmp_path, SlurmUser="no-such-user(7)")).lemons_not_writable == ""


def test_prolog_and_epilog_of_ours_and_of_others(tmp_path: Path) -> None:
    script = tmp_path / "holdfast-prolog.sh"
    script.write_text("#!/bin/sh\n")
    config = {"Prolog[0]": "/etc/slurm/theirs.sh", "Prolog[1]": str(script), "Epilog": "/gone/holdfast/epilog.sh"}
    found = {s.key: (s.there, s.executable) for s in look(slurm(tmp_path, **config)).scripts}
    assert found == {"Prolog": (True, False), "Epilog": (False, False)}
    script.chmod(0o755)
    assert look(slurm(tmp_path, **config)).scripts[0].executable


@pytest.mark.parametrize(
    "image", [b"", b"\x7fELF", b"\x7fELF\x02\x01" + bytes(10), b"\x7fELF\x02\x01" + b"\xff" * 200, b"#!/bin/sh\n"]
)
def test_what_is_no_plugin_says_nothing(image: bytes) -> None:
    assert exported_uint32(image, "plugin_version") is None


@pytest.mark.slow
@pytest.mark.skipif(not has_headers(), reason="no slurm/spank.h here; ./dev setup installs it")
def test_the_release_of_a_compiled_plugin_is_read_from_it(tmp_path: Path) -> None:
    make(tmp_path, f"{tmp_path}/spank_holdfast.so")
    header = Path(SLURM_INCLUDE, "slurm/slurm_version.h").read_text()
    number = int(header.split("#define SLURM_VERSION_NUMBER ")[1].split()[0], 16)
    image = (tmp_path / "spank_holdfast.so").read_bytes()
    assert exported_uint32(image, "plugin_version") == number
    assert exported_uint32(image, "no_such_symbol") is None
    assert exported_uint32(image[: len(image) // 2], "plugin_version") is None
    (tmp_path / "plugstack.conf").write_text(f"optional {tmp_path}/spank_holdfast.so\n")
    (line,) = look(slurm(tmp_path)).spank
    assert line.release == (number >> 16, number >> 8 & 0xFF)
