"""Planted files in a checkpoint directory: no user is harmed, nothing is loaded, nothing outside is read."""

from __future__ import annotations

import json
import os
import pickle
import socket
import struct
import zipfile
from pathlib import Path
from typing import Any

import pytest

from holdfast_checkpoint import Limits, Unreadable, Verdict, latest, survey, survey_all, verify
from holdfast_checkpoint.base.confined import Bad, Walk, open_root
from holdfast_checkpoint.base.manifest import parse_folder_name
from holdfast_checkpoint.layouts.steps import step_in

Build = Any


def only(build: Build, limits: Limits | None = None) -> tuple[Verdict, str]:
    found = survey_all(str(build.root), limits=limits or Limits())
    assert found.latest is None
    assert len(found.candidates) == 1
    return found.candidates[0].verdict, found.candidates[0].reason


def test_a_planted_pickle_is_never_loaded(build: Build, bomb: Any) -> None:
    live = pickle.dumps({"name": "__0_0.distcp", "bomb": bomb}, protocol=4)
    dcp = build.dcp("step-10")
    (dcp / ".metadata").write_bytes(live)
    for path in (build.root / "last.ckpt", build.root / "epoch=0-step=1.ckpt"):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("archive/data.pkl", live)
    build.huggingface(20)
    (build.root / "checkpoint-20" / "optimizer.pt").write_bytes(live)
    (build.deepspeed(30) / "mp_rank_00_model_states.pt").write_bytes(live)
    candidates = survey_all(str(build.root)).candidates
    assert len(candidates) == 5
    assert not bomb.path.exists()
    pickle.loads(live)  # noqa: S301 - the proof that it would have gone off
    assert bomb.path.exists()


def test_links_out_of_the_directory_are_refused(build: Build, tmp_path: Path) -> None:
    outside = type(build)(tmp_path / "outside")
    (build.root / "step-10").symlink_to(outside.dcp("step-10"))
    assert only(build) == (Verdict.REFUSED, "step-10 is a symbolic link, not a folder")


@pytest.mark.parametrize("where", ["__0_0.distcp", ".metadata"])
def test_a_link_inside_a_checkpoint_is_refused(where: str, build: Build, tmp_path: Path) -> None:
    path = build.dcp("step-10") / where
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert only(build) == (Verdict.REFUSED, f"{where} is a symbolic link, not a regular file")


def test_a_loop_of_links_is_refused(build: Build) -> None:
    (build.root / "step-10").symlink_to(build.root / "step-11")
    (build.root / "step-11").symlink_to(build.root / "step-10")
    assert [c.verdict for c in survey_all(str(build.root)).candidates] == [Verdict.REFUSED] * 2


def test_a_link_as_rank_folder_of_our_own_layout_is_refused(build: Build, tmp_path: Path) -> None:
    path = build.holdfast(10)
    (path / "rank-00000").rename(tmp_path / "elsewhere")
    (path / "rank-00000").symlink_to(tmp_path / "elsewhere")
    assert only(build)[0] is Verdict.REFUSED


@pytest.mark.parametrize("name", ["MANIFEST.json", "rank-00000/state.json"])
def test_a_fifo_is_refused_and_not_waited_for(name: str, build: Build) -> None:
    path = build.holdfast(10) / name
    path.unlink()
    os.mkfifo(path)
    assert only(build)[1].endswith("is a FIFO, not a regular file")


def test_sockets_are_refused(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(build.root)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("step-10.ckpt")
        assert only(build) == (Verdict.REFUSED, "step-10.ckpt is a socket, not a regular file")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes device nodes")
def test_devices_are_refused_without_being_opened(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        os.mknod(build.root / "step-10.ckpt", 0o20666, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("this container makes no device nodes")
    opened: list[object] = []
    real = os.open

    def recorded(name: Any, *args: Any, **keys: Any) -> int:
        opened.append(name)
        return real(name, *args, **keys)

    monkeypatch.setattr(os, "open", recorded)
    assert only(build) == (Verdict.REFUSED, "step-10.ckpt is a device, not a regular file")
    assert "step-10.ckpt" not in opened


def test_a_huge_sparse_file_costs_nothing(build: Build) -> None:
    manifest = build.holdfast(10) / "MANIFEST.json"
    value = json.loads(manifest.read_text())
    os.truncate(manifest.parent / "rank-00000" / "weights.bin", 1 << 42)
    value["files"]["rank-00000/weights.bin"]["bytes"] = 1 << 42
    manifest.write_text(json.dumps(value))
    found = survey(str(build.root)).latest
    assert found is not None
    assert found.proof == "sizes"
    checked = verify(str(manifest.parent), limits=Limits(deadline_s=0.2))
    assert (checked.verdict, checked.reason) == (Verdict.UNREADABLE, "not read before the deadline")


@pytest.mark.parametrize("name", [".metadata", "__0_0.distcp"])
def test_a_huge_sparse_metadata_is_not_read(name: str, build: Build) -> None:
    os.truncate(build.dcp("step-10") / name, 1 << 42)
    assert only(build)[0] in (Verdict.UNREADABLE, Verdict.TORN)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
@pytest.mark.parametrize("where", ["step-10", "step-10/.metadata"])
def test_another_users_files_do_not_count_unless_asked_for(where: str, build: Build) -> None:
    build.dcp("step-10")
    os.chown(build.root / where, 54321, 54321)
    verdict, reason = only(build)
    assert verdict is Verdict.REFUSED
    assert "belongs to uid 54321" in reason
    assert survey(str(build.root), any_owner=True).latest is not None


@pytest.mark.parametrize(
    "name",
    ["step-0000010-j1-r0.0.0\n", "step-10\x1b[2J", "step-10\u202e.ckpt", "checkpoint-10\nstep-99", b"step-\xff.ckpt"],
)
def test_names_that_cannot_be_shown_are_refused_and_escaped(name: str | bytes, build: Build) -> None:
    os.mkdir(os.path.join(os.fsencode(build.root), os.fsencode(name)))
    for candidate in survey_all(str(build.root)).candidates:
        assert candidate.verdict is Verdict.REFUSED
        assert candidate.name.isprintable()
        assert candidate.reason.isprintable()
    assert survey(str(build.root)).latest is None


@pytest.mark.parametrize("name", ["step-..", "step-../10", "..", "step-0000010-j..-r0.0.0", "step--1", "step-1e9"])
def test_steps_in_tricky_names_are_no_steps(name: str) -> None:
    assert parse_folder_name(name) is None
    assert step_in(name) in (None, 10, 10**9)


@pytest.mark.parametrize(
    "path", ["../../etc/passwd", "/etc/passwd", "rank-00000/../x", "a/b/c", "", "a\nb", "rank-00000/"]
)
def test_a_manifest_never_leads_out(path: str, build: Build) -> None:
    manifest = build.holdfast(10) / "MANIFEST.json"
    value = json.loads(manifest.read_text())
    value["files"][path] = {"bytes": 1, "sha256": "0" * 64}
    manifest.write_text(json.dumps(value))
    assert only(build)[0] is Verdict.TORN


@pytest.mark.parametrize("shard", ["../../secret.safetensors", "/etc/passwd", "config.json"])
def test_an_index_never_leads_out(shard: str, build: Build) -> None:
    folder = build.huggingface(10)
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"w": shard}}))
    assert only(build)[0] in (Verdict.REFUSED, Verdict.TORN)


@pytest.mark.parametrize("tag", ["../../elsewhere", "/etc", "\n", ""])
def test_deepspeeds_latest_never_leads_out(tag: str, build: Build) -> None:
    build.huggingface(10)
    (build.root / "checkpoint-10" / "latest").write_text(tag)
    assert only(build)[0] in (Verdict.REFUSED, Verdict.TORN)


def test_a_directory_swapped_for_a_link_during_the_walk_leads_nowhere(
    build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = build.dcp("step-10")
    outside = type(build)(tmp_path / "outside").dcp("step-10")
    real = os.open

    def swap(name: Any, *args: Any, **keys: Any) -> int:
        if name == "step-10" and not path.is_symlink():
            path.rename(tmp_path / "moved")
            path.symlink_to(outside)
        return real(name, *args, **keys)

    monkeypatch.setattr(os, "open", swap)
    found = survey_all(str(build.root))
    assert found.latest is None
    assert path.is_symlink()


def test_a_folder_swapped_for_another_folder_is_seen(
    build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build.dcp("step-10")
    other = type(build)(tmp_path / "outside").dcp("step-10")
    real = os.open

    def swap(name: Any, *args: Any, **keys: Any) -> int:
        return real(other if name == "step-10" else name, *args, **keys)

    monkeypatch.setattr(os, "open", swap)
    with open_root(str(build.root), Walk()) as root, pytest.raises(Bad, match="swapped"), root.folder("step-10"):
        pass


def test_a_zip_directory_that_promises_too_much_is_torn(build: Build) -> None:
    path = build.lightning()
    data = bytearray(path.read_bytes())
    struct.pack_into("<HH", data, len(data) - 14, 65000, 65000)
    path.write_bytes(data)
    assert only(build) == (Verdict.TORN, "epoch=0-step=10.ckpt: its zip directory lists 2 of 65000 entries")


@pytest.mark.slow
def test_a_zip_bomb_is_not_unpacked(build: Build) -> None:
    with zipfile.ZipFile(build.root / "step-10.ckpt", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", bytes(50 << 20))
    found = survey(str(build.root)).latest
    assert found is not None
    assert found.size_bytes < 1 << 20


def test_too_many_entries_end_the_walk(build: Build) -> None:
    for number in range(40):
        (build.root / f"file-{number}").touch()
    with pytest.raises(Unreadable, match="more than 30 entries"):
        survey(str(build.root), limits=Limits(entries=30))


def test_nothing_readable_is_not_taken_for_nothing_there(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    build.holdfast(10)

    def fail(*_: object) -> bytes:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "pread", fail)
    with pytest.raises(Unreadable, match="Input/output error"):
        latest(str(build.root))


def test_memory_tokens_cannot_claim_absurd_sizes(build: Build) -> None:
    path = build.dcp("step-10", ranks=1)
    huge = pickle.dumps({"relative_path": "__0_0.distcp", "offset": 0, "length": 1 << 50_000}, protocol=4)
    (path / ".metadata").write_bytes(huge)
    assert only(build) == (Verdict.TORN, ".metadata is damaged")
