"""A practice cluster's folder is ours alone: its content decides which programs run and which processes are ended."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from holdfast.cli.app import app
from holdfast.model.errors import ConfigError
from holdfast.practice.cluster import spec

SPEC = spec.new_spec(nodes=2, gpus=8, gpu_type="", cpus=4, name="practice", extra_slurm_conf="", elastic=False)


@pytest.fixture
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="hf-", dir="/tmp") as name:
        Path(name).chmod(0o1777)
        yield Path(name)


def _link(folder: Path) -> None:
    folder.rename(folder.with_name("elsewhere"))
    folder.symlink_to("elsewhere")


def _anothers(folder: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to give a folder away")
    os.chown(folder, 65534, 65534)


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (_anothers, "belongs to uid 65534"),
        (_link, "is no folder, or a link"),
        (lambda folder: folder.chmod(0o775), "may be written to by other users"),
        (lambda folder: folder.chmod(0o757), "may be written to by other users"),
        (lambda folder: folder.parent.chmod(0o777), "any user may replace it"),
    ],
)
def test_a_folder_that_is_not_ours_alone_is_neither_used_nor_read(
    place: Path, spoil: Callable[[Path], object], why: str
) -> None:
    folder = place / "practice"
    spec.save(SPEC, folder)
    assert spec.load(folder) == SPEC
    before = (folder / spec.FILE).read_bytes()
    spoil(folder)
    for use in (lambda: spec.load(folder), lambda: spec.save(SPEC, folder)):
        with pytest.raises(ConfigError, match=why) as refused:
            use()
        assert "--dir" in str(refused.value)
    assert (folder / spec.FILE).read_bytes() == before


def test_the_commands_refuse_it(place: Path) -> None:
    folder = place / "practice"
    folder.mkdir()
    folder.chmod(0o777)
    for command in ("up", "down", "status", "env"):
        done = CliRunner().invoke(app, ["practice", command, "--dir", str(folder)])
        assert done.exit_code != 0
    assert list(folder.iterdir()) == [], "nothing was put into it"


def test_a_new_folder_is_open_to_users_and_written_by_us_alone(place: Path) -> None:
    former = os.umask(0)
    try:
        spec.save(SPEC, place / "practice")
    finally:
        os.umask(former)
    assert (place / "practice").stat().st_mode & 0o777 == 0o755
