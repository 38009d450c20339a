"""The Lua module, in the Lua that slurmctld itself loads: defaults for opted-in jobs, and no job refused whatever happens."""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import socket
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from holdfast.controller.observing.background import write_lemons
from support.slurm_plugins import PLUGINS

_MODULE = PLUGINS / "lua" / "holdfast.lua"


@pytest.fixture(scope="module")
def lua() -> ctypes.CDLL:
    try:
        library = ctypes.CDLL("liblua5.1.so.0")  # comes with slurmctld
    except OSError:
        pytest.skip("no liblua5.1 here; it comes with Debian's slurmctld")
    library.luaL_newstate.restype = ctypes.c_void_p
    library.lua_tolstring.restype = ctypes.c_char_p
    return library


def run(lua: ctypes.CDLL, code: str) -> str:
    """Run a chunk that returns one string; Lua's own error otherwise."""
    state = ctypes.c_void_p(lua.luaL_newstate())
    try:
        lua.luaL_openlibs(state)
        failed = lua.luaL_loadstring(state, code.encode()) or lua.lua_pcall(state, 0, 1, 0)
        said = (lua.lua_tolstring(state, -1, None) or b"").decode()
        assert not failed, said
        return said
    finally:
        lua.lua_close(state)


def submit(lua: ctypes.CDLL, job: str, options: str = '{partitions = {"train"}}', parts: str = "{}") -> str:
    """What becomes of a request, as ``well comment requeue logged``."""
    return run(
        lua,
        f"""
        local logged = 0
        local slurm = {{ NO_VAL16 = 65534, log_error = function() logged = logged + 1 end }}
        local before = {{}}
        for name in pairs(_G) do before[name] = true end
        local holdfast = dofile("{_MODULE}")
        local job = {job}
        local well = holdfast.job_submit(slurm, job, {parts}, {options})
        for name in pairs(_G) do assert(before[name], "a global was set: " .. name) end
        return table.concat({{tostring(well), tostring(job.comment), tostring(job.requeue), tostring(logged)}}, " ")
        """,
    )


@pytest.mark.parametrize(
    ("job", "parts", "becomes"),
    [
        # a job that did not opt in is left alone
        ("{script = 's', requeue = 65534}", "{}", "true nil 65534 0"),
        ("{script = 's', requeue = 65534, partition = 'cpu'}", "{}", "true nil 65534 0"),
        ("{script = 's', requeue = 65534, comment = 'not-holdfast'}", "{}", "true not-holdfast 65534 0"),
        # by partition, named or the default one
        ("{script = 's', requeue = 65534, partition = 'train'}", "{}", "true nil 1 0"),
        ("{script = 's', requeue = 65534, partition = 'cpu,train'}", "{}", "true nil 1 0"),
        ("{script = 's', requeue = 65534}", "{train = {flag_default = 1}}", "true nil 1 0"),
        (
            "{script = 's', requeue = 65534}",
            "{train = {flag_default = 0}, cpu = {flag_default = 1}}",
            "true nil 65534 0",
        ),
        # by comment
        ("{script = 's', requeue = 65534, comment = 'a,holdfast'}", "{}", "true a,holdfast 1 0"),
        # by option
        (
            "{script = 's', requeue = 65534, spank_job_env = {[0] = '_SLURM_SPANK_OPTION_holdfast_holdfast=(null)'}}",
            "{}",
            "true holdfast 1 0",
        ),
        (
            "{script = 's', requeue = 65534, comment = 'x', spank_job_env = "
            "{[0] = 'A=b', [1] = '_SLURM_SPANK_OPTION_holdfast_auto_resume=1'}}",
            "{}",
            "true x,holdfast 1 0",
        ),
        (
            "{script = 's', requeue = 65534, spank_job_env = {[0] = '_SLURM_SPANK_OPTION_holdfast_holdfast=off'}}",
            "{}",
            "true nil 65534 0",
        ),
        (
            "{script = 's', requeue = 65534, spank_job_env = {[0] = '_SLURM_SPANK_OPTION_holdfast_holdfast_signal=USR1'}}",
            "{}",
            "true nil 65534 0",
        ),
        # the user's own setting is kept
        ("{script = 's', requeue = 0, partition = 'train'}", "{}", "true nil 0 0"),
        # salloc and srun cannot be requeued
        ("{requeue = 65534, partition = 'train'}", "{}", "true nil 65534 0"),
    ],
)
def test_defaults(lua: ctypes.CDLL, job: str, parts: str, becomes: str) -> None:
    assert submit(lua, job, parts=parts) == becomes


@pytest.mark.parametrize(
    ("job", "options"),
    [
        ("setmetatable({}, {__index = function() error('no such field') end})", "{partitions = {'train'}}"),
        ("setmetatable({script = 's', requeue = 65534, comment = 'holdfast'}, {__index = error})", "{partitions = 7}"),
        ("{comment = {}}", "{}"),
        ("nil", "{}"),
        ("{script = 's', partition = {}}", "'text'"),
    ],
)
def test_an_error_is_logged_and_the_job_goes_its_way(lua: ctypes.CDLL, job: str, options: str) -> None:
    body = f"""
        local logged = 0
        local slurm = {{ NO_VAL16 = 65534, log_error = function() logged = logged + 1 end }}
        local holdfast = dofile("{_MODULE}")
        local well = holdfast.job_submit(slurm, {job}, {{}}, {options})
        return tostring(well) .. " " .. logged
    """
    assert run(lua, body) == "false 1"


def test_a_slurm_that_cannot_even_log_breaks_nothing(lua: ctypes.CDLL) -> None:
    assert run(lua, f'local h = dofile("{_MODULE}"); return tostring(h.job_submit(nil, nil, nil, nil))') == "false"


def test_the_example_works_without_the_module(lua: ctypes.CDLL) -> None:
    example = (PLUGINS / "lua" / "job_submit.lua.example").read_text()
    code = f"slurm = {{SUCCESS = 0}}\n{example}\nreturn tostring(slurm_job_submit({{}}, {{}}, 0))"
    assert run(lua, code) == "0"
    assert str(_MODULE).endswith(example.split("holdfast/slurm-plugins/")[1].split('"')[0])


@pytest.mark.parametrize(
    ("job", "excluded"),
    [
        ("{min_nodes = 16}", "n3,n7"),
        ('{min_nodes = 64, exc_nodes = "n1"}', "n1,n3,n7"),
        ("{min_nodes = 15}", "nil"),
        ("{min_nodes = 4294967294}", "nil"),
        ("{}", "nil"),
        ('{min_nodes = 16, req_nodes = "n3"}', "nil"),
    ],
)
def test_large_jobs_keep_off_lemons(lua: ctypes.CDLL, tmp_path: Path, job: str, excluded: str) -> None:
    write_lemons(tmp_path / "lemons", ("n3", "n7"), datetime.now(UTC))
    assert _excluded(lua, job, tmp_path / "lemons") == f"true {excluded} 0"


def test_a_list_that_nobody_keeps_says_nothing(lua: ctypes.CDLL, tmp_path: Path) -> None:
    path = tmp_path / "lemons"
    assert _excluded(lua, "{min_nodes = 16}", path) == "true nil 0"
    write_lemons(path, ("n3",), datetime.now(UTC) - timedelta(hours=1))
    assert path.read_text().endswith("\nn3\n")
    assert _excluded(lua, "{min_nodes = 16}", path) == "true nil 0"
    path.write_text("n3\n")
    assert _excluded(lua, "{min_nodes = 16}", path) == "true nil 0"


@pytest.mark.parametrize("kind", ["fifo", "zero", "folder", "large", "socket", "link"])
def test_what_is_no_plain_file_holds_slurmctld_up_for_no_moment(lua: ctypes.CDLL, tmp_path: Path, kind: str) -> None:
    """A user who can write the folder can put anything there, and slurmctld answers no one while it waits."""
    path = tmp_path / "lemons"
    if kind in ("fifo", "link"):
        os.mkfifo(tmp_path / "fifo")
        path.symlink_to(tmp_path / "fifo") if kind == "link" else (tmp_path / "fifo").rename(path)
    elif kind == "zero":
        path.symlink_to("/dev/zero")
    elif kind == "folder":
        path.mkdir()
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(str(path))
    else:
        write_lemons(path, (f"n{i}" for i in range(200_000)), datetime.now(UTC))
    held = threading.Event()

    def let_go() -> None:
        held.set()
        if kind in ("fifo", "link"):
            os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK))

    watch = threading.Timer(3.0, let_go)
    watch.start()
    try:
        assert _excluded(lua, "{min_nodes = 16}", path) == "true nil 1"
    finally:
        watch.cancel()
    assert not held.is_set()


def test_a_file_that_cannot_be_read_is_logged_once_a_minute(lua: ctypes.CDLL, tmp_path: Path) -> None:
    code = f"""
        local logged = 0
        local slurm = {{ NO_VAL16 = 65534, NO_VAL = 4294967294, log_error = function() logged = logged + 1 end }}
        local holdfast = dofile("{_MODULE}")
        for _ = 1, 5 do holdfast.job_submit(slurm, {{min_nodes = 16}}, {{}}, {{ lemons = "{tmp_path}" }}) end
        return tostring(logged)
    """
    assert run(lua, code) == "1"


def test_the_list_is_for_its_group_alone(tmp_path: Path) -> None:
    """slurmctld's user needs the right to write, through the folder's group; no user may keep others' jobs off nodes."""
    write_lemons(tmp_path / "lemons", ("n3",), datetime.now(UTC))
    assert (tmp_path / "lemons").stat().st_mode & 0o777 == 0o660


def _excluded(lua: ctypes.CDLL, job: str, path: Path) -> str:
    return run(
        lua,
        f"""
        local logged = 0
        local slurm = {{ NO_VAL16 = 65534, NO_VAL = 4294967294, log_error = function() logged = logged + 1 end }}
        local job = {job}
        local well = dofile("{_MODULE}").job_submit(slurm, job, {{}}, {{ lemons = "{path}" }})
        return table.concat({{tostring(well), tostring(job.exc_nodes), tostring(logged)}}, " ")
        """,
    )
