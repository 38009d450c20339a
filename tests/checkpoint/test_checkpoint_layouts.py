"""Completeness by content, one table: each layout complete, and each way it can be torn."""

from __future__ import annotations

import json
import os
import shutil
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast_checkpoint import (
    Checkpointer,
    Layout,
    Limits,
    Proof,
    RunId,
    Unreadable,
    Verdict,
    latest,
    survey,
    survey_all,
    verify,
)
from holdfast_checkpoint.base.confined import OpenFolder

Build = Any
Damage = Callable[[Path], object]


def whole(kind: str, build: Build) -> Path:
    made: Path = {
        "holdfast": lambda: build.holdfast(10),
        "dcp": lambda: build.dcp("step-10"),
        "lightning": build.lightning,
        "huggingface": lambda: build.huggingface(10),
        "deepspeed": lambda: build.deepspeed(10),
        "nemo": lambda: build.nemo(10),
    }[kind]()
    return made


@pytest.mark.parametrize(
    ("kind", "proof"),
    [
        ("holdfast", Proof.DIGESTS),
        ("dcp", Proof.SIZES),
        ("lightning", Proof.STRUCTURE),
        ("huggingface", Proof.STRUCTURE),
        ("deepspeed", Proof.STRUCTURE),
        ("nemo", Proof.SIZES),
    ],
)
def test_a_whole_checkpoint_is_complete(kind: str, proof: Proof, build: Build) -> None:
    path = whole(kind, build)
    found = survey(str(build.root)).latest
    assert found is not None
    assert (found.layout, found.path, found.step, found.proof) == (Layout(kind), str(path), 10, proof)
    assert found.size_bytes > 0
    assert verify(str(path)).verdict is Verdict.COMPLETE


def cut(name: str, by: int = 1) -> Damage:
    return lambda path: os.truncate(path / name, (path / name).stat().st_size - by)


def gone(name: str) -> Damage:
    return lambda path: (path / name).unlink()


def put(name: str, data: bytes) -> Damage:
    return lambda path: (path / name).write_bytes(data)


def flip(name: str) -> Damage:
    def damage(path: Path) -> None:
        data = bytearray((path / name).read_bytes())
        data[len(data) // 2] ^= 1
        (path / name).write_bytes(data)

    return damage


TORN: list[tuple[str, Damage, str]] = [
    ("holdfast", gone("MANIFEST.json"), "no MANIFEST.json"),
    ("holdfast", cut("MANIFEST.json", 5), "not valid JSON"),
    ("holdfast", put("MANIFEST.json", b"{}"), "damaged"),
    ("holdfast", put("MANIFEST.json", b"[" * 100_000), "not valid JSON"),
    ("holdfast", cut("rank-00000/weights.bin"), "999 bytes, the manifest says 1000"),
    ("holdfast", flip("rank-00000/weights.bin"), "content"),
    ("holdfast", gone("rank-00000/state.json"), "state.json is missing"),
    ("holdfast", lambda p: p.rename(p.with_name("step-0000011-j1-r0.0.0")), "another checkpoint"),
    ("dcp", gone(".metadata"), "did not finish"),
    ("dcp", cut(".metadata", 3), ".metadata is damaged"),
    ("dcp", put(".metadata", b"\x80\x04}."), "names no data file"),
    ("dcp", put(".metadata", b"\x80\x04\x8c\x0e__0_0.distcp\xffgarbage."), "damaged"),
    ("dcp", gone("__1_0.distcp"), "__1_0.distcp is missing"),
    ("dcp", cut("__1_0.distcp"), "calls for"),
    ("dcp", put("__0_0.distcp", b""), "has 0 bytes"),
    ("lightning", lambda p: os.truncate(p, p.stat().st_size - 1), "does not end with a zip directory"),
    ("lightning", lambda p: os.truncate(p, 100), "does not end with a zip directory"),
    ("lightning", lambda p: os.truncate(p, 0), "only 0 bytes"),
    ("lightning", lambda p: p.write_bytes(bytes(1000)), "not a zip archive"),
    ("lightning", lambda p: p.write_bytes(p.read_bytes()[:200] + p.read_bytes()[210:]), "does not fit"),
    ("huggingface", gone("trainer_state.json"), "did not finish"),
    ("huggingface", put("trainer_state.json", b'{"global_step": 9}'), "of step 9"),
    ("huggingface", put("trainer_state.json", b'{"global_step": "10"}'), "no global_step"),
    ("huggingface", put("trainer_state.json", b'{"global_step": ' + b"9" * 5000 + b"}"), "not valid JSON"),
    ("huggingface", gone("model-00002-of-00002.safetensors"), "model-00002-of-00002.safetensors is missing"),
    ("huggingface", cut("model-00001-of-00002.safetensors"), "its header calls for"),
    ("huggingface", put("model-00001-of-00002.safetensors", b"\xff" * 64), "a header of"),
    ("huggingface", cut("optimizer.pt"), "optimizer.pt does not end"),
    ("huggingface", gone("rng_state_0.pth"), "RNG state of rank 0 is missing"),
    ("deepspeed", lambda p: (p.parent / "latest").write_text("global_step5"), "names global_step5"),
    ("deepspeed", lambda p: (p.parent / "latest").unlink(), "no save was finished"),
    ("deepspeed", gone("mp_rank_00_model_states.pt"), "rank 0 is missing"),
    ("deepspeed", gone("bf16_zero_pp_rank_0_mp_rank_01_optim_states.pt"), "1 ranks are missing"),
    ("deepspeed", cut("mp_rank_01_model_states.pt"), "does not end"),
    ("nemo", lambda p: p.with_name(f"{p.name}-unfinished").touch(), "-unfinished mark"),
    ("nemo", gone("weights/__0_0.distcp"), "__0_0.distcp is missing"),
    ("nemo", cut("weights/common.pt"), "common.pt does not end"),
]


@pytest.mark.parametrize(("kind", "damage", "reason"), TORN, ids=[f"{k}-{r}" for k, _, r in TORN])
def test_a_damaged_one_is_torn_with_its_reason(kind: str, damage: Damage, reason: str, build: Build) -> None:
    damage(whole(kind, build))
    found = survey(str(build.root))
    assert found.latest is None
    assert [c.verdict for c in found.candidates] == [Verdict.TORN]
    assert reason in found.candidates[0].reason


def test_the_newest_complete_one_wins_and_the_torn_ones_are_named(build: Build) -> None:
    build.huggingface(100)
    build.huggingface(90)
    build.huggingface(20)
    (build.root / "checkpoint-100" / "trainer_state.json").unlink()
    found = survey(str(build.root))
    assert found.latest is not None
    assert found.latest.step == 90
    assert [(c.step, c.verdict) for c in found.passed_over] == [(100, Verdict.TORN)]
    assert [c.step for c in survey_all(str(build.root)).candidates] == [100, 90, 20]


@pytest.mark.parametrize("where", ["train", "0_CLIPModel", "shards/model"])
def test_weights_of_the_trainer_in_folders_of_their_own_are_not_torn(where: str, build: Build) -> None:
    """A PEFT adapter that has a name, SentenceTransformers, optimum-neuron: all was written, and the job must not start afresh."""
    folder = build.huggingface(100, shards=1)
    (folder / "model.safetensors.index.json").unlink()
    (folder / where).mkdir(parents=True)
    next(folder.glob("model-*.safetensors")).rename(folder / where / "model.safetensors")
    assert [c.verdict for c in survey(str(build.root)).candidates] == [Verdict.UNREADABLE]


def test_a_cut_off_file_in_a_folder_of_the_trainers_checkpoint_is_torn(build: Build) -> None:
    """Of an adapter, or a module of SentenceTransformers: the mark may be on disk while another file is short."""
    folder = build.huggingface(100)
    (folder / "2_Dense").mkdir()
    build.safetensors("checkpoint-100/2_Dense/model.safetensors")
    assert survey(str(build.root)).latest is not None
    with (folder / "2_Dense/model.safetensors").open("r+b") as file:
        file.truncate(100)
    assert [c.verdict for c in survey(str(build.root)).candidates] == [Verdict.TORN]


@pytest.mark.parametrize("beside", [False, True])
def test_the_trainers_last_checkpoint_has_no_number(beside: bool, build: Build) -> None:
    """``hub_strategy="checkpoint"``."""
    if beside:
        build.huggingface(100)
    build.huggingface(200).rename(build.root / "last-checkpoint")
    found = survey(str(build.root)).latest
    assert found is not None
    assert found.name == "last-checkpoint"


def test_what_save_state_leaves_beside_the_checkpoints_is_no_checkpoint(build: Build) -> None:
    """``trainer.save_model(); trainer.save_state()`` in the directory of the run, and the folder above it is asked for."""
    build.huggingface(500)
    run = build.root / "exp1"
    run.mkdir()
    (build.root / "checkpoint-500").rename(run / "checkpoint-500")
    (run / "trainer_state.json").write_text('{"global_step": 500}')
    build.safetensors("exp1/model.safetensors")
    with pytest.raises(Unreadable, match="checkpoint-500"):
        latest(str(build.root))


def test_a_converted_copy_of_deepspeeds_is_not_the_newest(build: Build) -> None:
    """``ds_to_universal.py``: to a loader that does not know it, it has no optimizer."""
    build.deepspeed(200)
    build.archive("global_step200_universal/mp_rank_00_model_states.pt")
    found = survey(str(build.root)).latest
    assert found is not None
    assert found.name == "global_step200"


@pytest.mark.parametrize("lists_late", [False, True])
def test_what_is_deleted_while_it_is_read_is_not_torn(
    lists_late: bool, build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keep only the last one: save, then delete the one before. An outdated list of names shows none that still exists."""
    build.huggingface(100)
    readings = 0
    real = OpenFolder.names

    def names(folder: OpenFolder) -> list[str]:
        nonlocal readings
        found = real(folder)
        if "checkpoint-100" in found or (lists_late and any(n.startswith("checkpoint-2") for n in found)):
            readings += 1
            build.huggingface(200 + readings)
            for name in found:
                shutil.rmtree(build.root / name, ignore_errors=True)
        return found

    monkeypatch.setattr(OpenFolder, "names", names)
    if lists_late:  # each time
        with pytest.raises(Unreadable, match="changed each time that it was read"):
            latest(str(build.root))
        return
    found = latest(str(build.root))
    assert found is not None
    assert found.name == "checkpoint-201"


def test_a_name_that_is_written_again_and_again_has_no_number_to_be_beaten(build: Build) -> None:
    """open_clip, ``--save-most-recent``."""
    for number, name in enumerate(("epoch_1.pt", "epoch_2.pt", "epoch_latest.pt")):
        os.utime(build.archive(name), (1_000_000 + number * 100,) * 2)
    found = survey(str(build.root)).latest
    assert found is not None
    assert found.name == "epoch_latest.pt"


def test_the_order_is_by_number_and_not_by_name(build: Build) -> None:
    for step in (9, 10, 100, 99):
        build.dcp(f"step-{step}")
    found = survey(str(build.root)).latest
    assert found is not None
    assert found.step == 100


@pytest.mark.parametrize(("last_is_newer", "expected"), [(True, "last.ckpt"), (False, "epoch=0-step=10.ckpt")])
def test_lightnings_last_counts_by_its_time(last_is_newer: bool, expected: str, build: Build) -> None:
    build.lightning()
    last = build.lightning("last.ckpt")
    os.utime(build.root / "epoch=0-step=10.ckpt", (1_000_000, 1_000_000))
    os.utime(last, (1_000_001 if last_is_newer else 999_999,) * 2)
    found = survey(str(build.root)).latest
    assert found is not None
    assert found.name == expected


def test_huggingface_with_deepspeed_or_fsdp_inside(build: Build) -> None:
    build.huggingface(10)
    folder = build.root / "checkpoint-10"
    for name in [p for p in folder.iterdir() if p.name.startswith("model")]:
        name.unlink()
    assert survey(str(build.root)).candidates[0].reason == "no weights in it by a name that is known here"
    build.dcp("checkpoint-10/pytorch_model_fsdp_0")
    assert survey(str(build.root)).latest is not None
    (folder / "pytorch_model_fsdp_0" / "__1_0.distcp").unlink()
    assert survey(str(build.root)).latest is None


def of_accelerate(build: Build, step: int) -> None:
    """As ``Accelerator.save_state("checkpoint-N")`` writes it, which diffusers' trainings call."""
    build.safetensors(f"checkpoint-{step}/unet/diffusion_pytorch_model.safetensors")
    for name in ("optimizer.bin", "scheduler.bin"):
        build.archive(f"checkpoint-{step}/{name}")
    build.path(f"checkpoint-{step}/random_states_0.pkl").write_bytes(b"\x80\x02" + bytes(100))


def test_an_accelerators_save_is_no_torn_one_of_the_trainer(build: Build) -> None:
    for step in (500, 1000):
        of_accelerate(build, step)
    assert {c.verdict for c in survey_all(str(build.root)).candidates} == {Verdict.UNREADABLE}
    with pytest.raises(Unreadable):
        latest(str(build.root))


def lightning_deepspeed(build: Build, name: str, *, finished: bool = True) -> None:
    build.archive(f"{name}/checkpoint/mp_rank_00_model_states.pt")
    build.archive(f"{name}/checkpoint/zero_pp_rank_0_mp_rank_00_optim_states.pt")
    build.path(f"{name}/zero_to_fp32.py").write_text("print()")
    if finished:
        build.path(f"{name}/latest").write_text("checkpoint")


def test_lightning_with_deepspeed_inside(build: Build) -> None:
    lightning_deepspeed(build, "epoch=1-step=100.ckpt")
    lightning_deepspeed(build, "epoch=2-step=200.ckpt", finished=False)
    found = survey(str(build.root))
    assert [(c.name, c.verdict) for c in found.passed_over] == [("epoch=2-step=200.ckpt", Verdict.TORN)]
    assert found.latest is not None
    assert (found.latest.layout, found.latest.step) == (Layout.LIGHTNING, 100)
    (build.root / "epoch=1-step=100.ckpt" / "checkpoint" / "mp_rank_00_model_states.pt").unlink()
    assert survey(str(build.root)).latest is None


def test_a_lightning_folder_of_an_unknown_form_is_not_torn(build: Build) -> None:
    build.path("epoch=1-step=100.ckpt/shards/0").write_bytes(b"x" * 100)
    assert [c.verdict for c in survey(str(build.root)).candidates] == [Verdict.UNREADABLE]


@pytest.mark.parametrize("name", ["state.cpt", "restart.1000", "restart.0001.rst"])
def test_restart_files_of_simulations_are_not_nothing(name: str, build: Build) -> None:
    build.path(name).write_bytes(b"\x07" * 5000)
    with pytest.raises(Unreadable, match=name):
        latest(str(build.root))


def test_megatrons_tracker_says_what_was_finished(build: Build) -> None:
    build.dcp("iter_0000010")
    build.dcp("iter_0000020")
    (build.root / "latest_checkpointed_iteration.txt").write_text("10\n")
    found = survey(str(build.root)).latest
    assert found is not None
    assert (found.layout, found.step) == (Layout.NEMO, 10)


def test_logs_and_configs_are_no_candidates(build: Build) -> None:
    (build.root / "runs").mkdir()
    (build.root / "config.json").write_text(json.dumps({}))
    (build.root / "step-12").write_text("a file with a checkpoint's name")
    assert survey(str(build.root)).candidates == ()
    assert survey(str(build.root / "nowhere")).candidates == ()


@pytest.mark.parametrize(
    ("made", "step"),
    [
        (lambda b: b.archive("ckpt_10.pt"), 10),
        (lambda b: b.archive("checkpoint-10.pth"), 10),
        (lambda b: b.archive("step_10/state.pt").parent, 10),
        (lambda b: (b.archive("iter_0010/state.pt"), b.path("iter_0010/config.json").write_text("{}"))[0].parent, 10),
    ],
)
def test_plain_torch_save_is_found_and_judged(made: Any, step: int, build: Build) -> None:
    path = made(build)
    found = survey(str(build.root)).latest
    assert found is not None
    assert (found.layout, found.path, found.step, found.proof) == (Layout.TORCH, str(path), step, Proof.STRUCTURE)
    archive = path if path.is_file() else next(path.glob("*.pt"))
    os.truncate(archive, archive.stat().st_size - 1)
    assert [c.verdict for c in survey(str(build.root)).candidates] == [Verdict.TORN]


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (lambda b: (b.archive("step_10/model.pt"), b.archive("step_10/optimizer.pt")), "2 archives and no mark"),
        (lambda b: b.archive("step_10/rank0/state.pt"), "in no known layout (rank0)"),
        (lambda b: b.path("step_10/weights.npz").write_bytes(b"x"), "in no known layout (weights.npz)"),
        (lambda b: b.path("ckpt_10.pt").write_bytes(b"\x80\x02" + bytes(1000)), "before PyTorch 1.6"),
        (lambda b: b.path("epoch=0-step=10.ckpt").write_bytes(b"\x80\x02" + bytes(1000)), "before PyTorch 1.6"),
    ],
)
def test_what_cannot_be_judged_is_unreadable_and_not_none(made: Any, reason: str, build: Build) -> None:
    made(build)
    (candidate,) = survey(str(build.root)).candidates
    assert candidate.verdict is Verdict.UNREADABLE
    assert reason in candidate.reason
    with pytest.raises(Unreadable):
        latest(str(build.root))


def test_lightnings_own_save_at_a_restart_goes_by_its_time(build: Build) -> None:
    """The number in ``hpc_ckpt_2.ckpt`` counts restarts, so as a step it would be older than any other."""
    for at_s, name in ((1000, "epoch=0-step=500.ckpt"), (2000, "hpc_ckpt_2.ckpt"), (3000, "epoch=1-step=700.ckpt")):
        os.utime(build.archive(name), (at_s, at_s))
    assert [c.name for c in survey_all(str(build.root)).candidates] == [
        "epoch=1-step=700.ckpt",
        "hpc_ckpt_2.ckpt",
        "epoch=0-step=500.ckpt",
    ]


def _at(path: Path, seconds: float) -> None:
    os.utime(path, (1_000_000 + seconds,) * 2)


@pytest.mark.parametrize(
    ("kind", "mark", "younger", "by_s", "unreadable"),
    [
        ("dcp", ".metadata", "__0_0.distcp", 0.5, True),
        ("dcp", ".metadata", "__1_0.distcp", 5.0, False),
        ("dcp", ".metadata", "__1_0.distcp", 60.0, True),
        ("huggingface", "trainer_state.json", "model-00001-of-00002.safetensors", 60.0, True),
        ("huggingface", "trainer_state.json", "optimizer.pt", 60.0, True),
        ("huggingface", "trainer_state.json", "optimizer.pt", 5.0, False),
        ("huggingface", "trainer_state.json", "rng_state_1.pth", 60.0, False),
        ("huggingface", "trainer_state.json", "README.md", 60.0, False),
        ("deepspeed", "../latest", "mp_rank_00_model_states.pt", 60.0, True),
        ("deepspeed", "../latest", "mp_rank_00_model_states.pt", -60.0, False),
        ("nemo", "weights/.metadata", "weights/__0_0.distcp", 60.0, True),
    ],
)
def test_a_second_save_into_the_same_folder_that_was_cut_off_is_seen(
    kind: str, mark: str, younger: str, by_s: float, unreadable: bool, build: Build
) -> None:
    """The first save's mark is there all the time, so the folder looks complete while it holds two states."""
    folder = whole(kind, build)
    (folder / "README.md").touch()
    for path in (*folder.rglob("*"), build.root / "latest"):
        if path.is_file():
            _at(path, -100.0)
    _at(folder / mark, 0.0)
    _at(folder / younger, by_s)
    (found,) = survey(str(build.root)).candidates
    assert found.verdict is (Verdict.UNREADABLE if unreadable else Verdict.COMPLETE)
    assert verify(str(folder)).verdict is found.verdict
    if unreadable:
        assert f"{Path(younger).name} was written after {Path(mark).name}" in found.reason
        (folder / mark).touch()
        assert survey(str(build.root)).latest is not None


def test_tars_of_the_first_pytorch_are_judged_by_their_end(build: Build) -> None:
    path = build.path("ckpt_10.tar")
    with tarfile.open(path, "w") as tar:
        for name in ("sys_info", "pickle", "tensors", "storages"):
            tar.add(__file__, name)
    assert survey(str(build.root)).latest is not None
    whole_bytes = path.read_bytes()
    content = len(whole_bytes.rstrip(b"\0"))
    for length in (600, content // 2, content):
        path.write_bytes(whole_bytes[:length])
        assert [c.verdict for c in survey(str(build.root)).candidates] == [Verdict.TORN], length


def test_a_folder_of_very_many_samples_keeps_no_checkpoint_from_being_read(build: Build) -> None:
    samples = build.root / "a_samples"
    samples.mkdir()
    for number in range(300):
        (samples / f"{number}.png").touch()
    build.huggingface(10)
    build.archive("last.pt")
    limits = Limits(entries=200)
    assert [c.name for c in survey_all(str(build.root), limits=limits).candidates if c.complete] == [
        "last.pt",
        "checkpoint-10",
    ]


def test_a_directory_too_large_to_be_looked_through_is_not_taken_for_an_empty_one(build: Build) -> None:
    data = build.root / "data"
    data.mkdir()
    for number in range(300):
        (data / f"{number}.png").touch()
    found = survey(str(build.root), limits=Limits(entries=200))
    assert found.strays == ("data/",)
    with pytest.raises(Unreadable, match="data/ may be or hold one: name its folder"):
        latest(str(build.root), limits=Limits(entries=200))


@pytest.mark.slow
def test_many_files_are_ranked_in_no_time(build: Build) -> None:
    for number in range(3000):
        build.path(f"ckpt_{number}.pt").touch()
        build.path(f"m{number}_last.pt").touch()
    began_s = time.monotonic()
    survey(str(build.root))
    assert time.monotonic() - began_s < 20.0


def test_an_unreadable_newer_one_is_no_reason_to_take_an_older_one(build: Build) -> None:
    build.dcp("step-10")
    build.archive("step_20/model.pt")
    build.archive("step_20/optim.pt")
    with pytest.raises(Unreadable, match=r"step_20: 2 archives .*; it may be newer than step-10: resume from"):
        latest(str(build.root))


def test_plain_files_in_a_directory_of_the_librarys_own_are_not_its_checkpoints(build: Build) -> None:
    """A job of the library that keeps a copy of its weights there resumes; a script that asks gets a notice of the copy."""
    build.holdfast(10)
    for name in ("last.pt", "weights_step_20.pt"):
        build.archive(name, bytes(2000))
    resumed = Checkpointer(build.root, run=RunId("1", (1, 0, 0)), env={}).resume()
    assert resumed is not None
    assert resumed.step == 10
    with pytest.raises(Unreadable, match=r"last.pt may be newer than step-0000010"):
        latest(str(build.root))
