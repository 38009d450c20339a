"""What ``latest`` reports of checkpoints that are folders: by their names, by what belongs together, and by number against time."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from holdfast_checkpoint.cli import main

Build = Any
Out = pytest.CaptureFixture[str]
START_S = 1_700_000_000
HOUR_S = 3600.0


@dataclass(frozen=True)
class Row:
    """One directory. ``saves``: in the order of writing, an hour apart, or ``@SECONDS`` after the first one; the content after a ``|``."""

    saves: tuple[str, ...]
    status: int
    names: str = ""


def row(status: int, names: str, *saves: str) -> Row:
    return Row(saves, status, names)


def write(build: Build, spec: str) -> Path:
    """A DCP folder, ``hf`` (a Trainer's), ``torn`` (DCP without its mark), ``nemo``, ``empty``, or ``file`` (one archive)."""
    name, _, content = spec.partition("|")
    path: Path = build.path(name)
    if content == "hf":
        build.huggingface(int(name.rpartition("-")[2])).rename(path)
    elif content == "nemo":
        build.dcp(f"{name}/weights")
    elif content == "empty":
        path.mkdir()
    elif content == "file":
        build.archive(name, b"x" * 3000)
    else:
        build.dcp(name)
        if content == "torn":
            (path / ".metadata").unlink()
    return path


def lay(build: Build, saves: tuple[str, ...]) -> None:
    for number, save in enumerate(saves):
        spec, _, after = save.partition("@")
        path, at_s = write(build, spec), START_S + (float(after) if after else number * HOUR_S)
        inside = path.rglob("*") if path.is_dir() else ()
        for each in (*inside, path, *path.parents):
            if build.root in each.parents:
                os.utime(each, (at_s, at_s))


PAIRS = tuple(f"{what}_{step}" for step in (100, 200) for what in ("model", "optim"))
ROWS: dict[str, list[Row]] = {
    "what is kept beside the training": [  # word: a test's id
        *(
            row(0, "step_100", "step_100", beside)
            for beside in (
                *(
                    "ema",
                    "teacher",
                    "swa",
                    "best",
                    "pretrained",
                    "init",
                    "initial",
                    "ref",
                    "ref_model",
                    "reference-policy",
                ),
                *(
                    "ema_100",
                    "ema_200",
                    "step_200_ema",
                    "best_step_200",
                    "init_step_0",
                    "pretrained-step=9000",
                    "refModel_step_200",
                ),
                "pretrained/state.pt|file",
            )
        ),
        *(
            row(3, f"{alone}/", alone)
            for alone in ("ema", "best", "pretrained", "init", "ref_model", "ema_100", "teacher_step_100")
        ),
        row(0, "ema_step_100", "ema_step_50", "ema_step_100"),
    ],
    "what belongs together": [
        row(0, "model_200", *PAIRS),
        row(3, "no file like optim_200", *PAIRS, "model_300"),
        row(3, "is part of a save", *PAIRS, "optim_300"),
        row(0, "model_200", *PAIRS, "model_300", "optim_300|torn"),
        row(0, "model_200", *PAIRS, "model_300|torn", "optim_300"),
        row(3, "no older save", "model_100", "optim_100"),
        row(0, "model_100", "model_100"),
        row(3, "is part of a save", "optim_100"),
        row(3, "no older save", "model", "optim"),
        row(3, "no file like", "step_100", "optim_step_100", "step_200", "optim_step_200", "step_300"),
        row(
            3,
            "no file like",
            "llama_step_100",
            "llama_optim_step_100",
            "llama_step_200",
            "llama_optim_step_200",
            "llama_step_300",
        ),
        row(3, "no file like", "actor_1", "critic_1", "actor_2", "critic_2", "actor_3"),
        row(
            3,
            "model_step_200",
            *(f"{w}_step_{s}/a.pt|file" for s, w in ((100, "model"), (100, "optim"), (200, "model"))),
        ),
        row(0, "step_100", "vis_step_100|empty", "step_100"),
        row(0, "step_200", "step_100", "step_100_old", "step_200"),
        row(0, "slot_0", "slot_1", "slot_0"),
        row(0, "B", "A", "B"),
        row(0, "final", "step_100", "final"),
        row(0, "latest", "step_100", "latest"),
    ],
    "folders of no known number": [
        row(0, "epoch_2_step_100", "epoch_1_step_100", "epoch_1_step_900", "epoch_2_step_100"),
        row(0, "epoch2-step100", "epoch1-step100", "epoch1-step900", "epoch2-step100"),
        row(0, "epoch_2_step_100", *(f"epoch_{e}_step_{s}/state.pt|file" for e, s in ((1, 100), (1, 900), (2, 100)))),
        row(3, "epoch_2_step_100 may be newer", "epoch_2_step_100", "epoch_1_step_900"),
        row(0, "epoch_2_step_1000", "epoch_1_step_900", "epoch_2_step_1000"),
    ],
    "number and time": [
        row(3, "step-100 may be newer", "step-100000", "step-100"),
        row(3, "checkpoint-80 may be newer", "checkpoint-100000|hf", "checkpoint-80|hf"),
        row(3, "step_50 may be newer", "checkpoint-100|hf", "step_50"),
        row(3, "iter_0000050 may be newer", "iter_0000100", "iter_0000050"),
        row(3, "model-step=50 may be newer", "model-step=100|nemo", "model-step=50|nemo"),
        row(0, "step_200", "step_200", "step_150|torn"),
        row(0, "step_200", "step_200", "step_150_old"),
        row(0, "step_200", "step_200", "step_150 copy"),
        row(0, "step_200", "step_100", "step_200", "hf_step_100/a.pt|file", "hf_step_100/b.pt|file"),
        row(0, "step_200", "step_100", "step_200", "step_100_converted"),
        row(3, "hf_step_50 may be newer", "step_100", "step_200", "hf_step_50/a.pt|file", "hf_step_50/b.pt|file"),
        row(0, "step_200", "step_200@0", "step_100@20", "step_150@45"),
        row(0, "step_200", "step_200@0", "step_100@50", "step_150@100", "step_50@150"),
        row(3, "step_50 may be newer", "step_200@0", "step_100@50", "step_50@150"),
        row(0, "checkpoint-300", "checkpoint-100|hf", "checkpoint-200|hf", "checkpoint-300|hf"),
        row(0, "step_400", "step_200", "step_150", "step_400"),
    ],
    "DCP in a Trainer's name": [
        row(0, "checkpoint-200", "checkpoint-100", "checkpoint-200"),
        row(0, "checkpoint-100", "checkpoint-100", "checkpoint-200|torn"),
        row(3, "checkpoint-100", "checkpoint-100/model", "checkpoint-100/optim"),
        row(0, "checkpoint-100", "checkpoint-100/state.pt|file"),
        row(3, "checkpoint-100", "checkpoint-100/model.pt|file", "checkpoint-100/optim.pt|file"),
        row(4, "", "checkpoint-100/optimizer.pt|file"),
    ],
    "other programs' saves in a framework's name": [
        row(
            3,
            "in no known layout",
            "global_step_10/actor/model_world_size_1_rank_0.pt|file",
            "global_step_10/critic/model.pt|file",
        ),
        row(3, "2 archives", "global_step10/model.pt|file", "global_step10/optim.pt|file"),
        row(4, "", "global_step10|empty"),
        row(4, "", "global_step10/layer_01-model_00-model_states.pt|file"),
        row(3, "in no known layout", "step_10/weights/model.pt|file"),
        row(0, "step_10", "step_10/weights|file"),
        row(3, "in no known layout", "step=10/weights/module.decoder/0.0|file"),
        row(4, "", "step=10/weights|empty"),
        row(4, "", "step=10/weights/common.pt|file"),
        row(4, "", "step=10/weights|torn"),
    ],
    "younger in a folder": [
        row(3, "emergency_150", "step_100/state.pt|file", "emergency_150/state.pt|file"),
        row(3, "preempted", "ckpt_100.pt|file", "preempted/state.pt|file"),
        row(3, "preempted", "ckpt_100.pt|file", "preempted/model.pt|file", "preempted/optim.pt|file"),
        row(0, "ckpt_100.pt", "preempted/state.pt|file", "ckpt_100.pt|file"),
        row(0, "ckpt_100.pt", "ckpt_100.pt|file", "teacher/model.pt|file", "ema/state.pt|file", "runs/x/model.pt|file"),
        row(0, "ckpt_100.pt", "ckpt_100.pt|file", "old/state.pt|file"),
    ],
}


@pytest.mark.parametrize(
    "case", [pytest.param(each, id=f"{kind}-{' '.join(each.saves)}") for kind, rows in ROWS.items() for each in rows]
)
def test_a_folder_is_named_only_where_it_is_known_to_be_the_newest(case: Row, build: Build, capsys: Out) -> None:
    lay(build, case.saves)
    status = main(["latest", str(build.root)])
    out, err = capsys.readouterr()
    assert status == case.status, (out, err)
    assert out == (f"{build.root}/{case.names}\n" if status == 0 else "")
    if status == 3:
        assert case.names in err


def test_what_is_kept_beside_is_judged_when_it_is_asked_for_by_name(build: Build) -> None:
    assert main(["verify", str(build.dcp("pretrained"))]) == 0


def test_a_file_that_is_added_to_an_old_checkpoint_does_not_make_it_newer(build: Build, capsys: Out) -> None:
    """As zero_to_fp32.py and other conversions write."""
    lay(build, ("checkpoint-100|hf", "checkpoint-200|hf"))
    (build.root / "checkpoint-100" / "converted.bin").touch()
    assert main(["latest", str(build.root)]) == 0
    assert capsys.readouterr().out.endswith("/checkpoint-200\n")


def test_a_checkpoint_is_as_old_as_its_mark(build: Build, capsys: Out) -> None:
    lay(build, ("epoch1-step900", "epoch2-step100"))
    os.utime(build.root / "epoch1-step900", (START_S + 5 * HOUR_S,) * 2)
    assert main(["latest", str(build.root)]) == 0
    assert capsys.readouterr().out.endswith("/epoch2-step100\n")


@pytest.mark.parametrize("verb", ["latest", "list", "verify", "register"])
def test_no_path_is_wrong_use(verb: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main([verb, ""])
    assert ended.value.code == 2


@pytest.mark.parametrize("verb", ["latest", "list"])
@pytest.mark.parametrize("below", ["", "run7"])
def test_a_link_that_leads_nowhere_is_no_empty_directory(verb: str, below: str, tmp_path: Path, capsys: Out) -> None:
    link = tmp_path / "scratch"
    link.symlink_to("/nowhere/at-all")
    assert main([verb, str(link / below)]) == 3
    assert "leads nowhere" in capsys.readouterr().err
