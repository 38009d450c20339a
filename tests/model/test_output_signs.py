"""What a line of a job's output shows about its end. Lines as srun 22.05 to 25.05, torch 2.x, NCCL and Python write them."""

from __future__ import annotations

import time

import pytest

from holdfast.model.jobs.job_ends import Clue, Sign
from holdfast.model.jobs.output_signs import signs_of

LINES = [
    ("srun: error: Node failure on n2", Sign.NODE_FAILED, "n2"),
    ("slurmstepd: error: *** STEP 5.0 ON n1 CANCELLED AT 2026-03-01T12:00:00 DUE TO TIME LIMIT ***", Sign.TIME, ""),
    ("slurmstepd: error: *** JOB 5 ON n1 CANCELLED AT 2026-03-01T12:00:00 DUE TO PREEMPTION ***", Sign.STOPPED, ""),
    ("slurmstepd: error: Detected 1 oom_kill event in StepId=5.0. Some of the step tasks have been OOM Killed.", Sign.MEMORY, ""),
    ("slurmstepd: error: Detected 1 oom-kill event(s) in StepId=5.batch.", Sign.MEMORY, ""),
    ("srun: error: n1: task 0: Out Of Memory", Sign.MEMORY, "n1"),
    ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", Sign.MEMORY, ""),
    ("MemoryError", Sign.MEMORY, ""),
    ("OSError: [Errno 28] No space left on device: '/scratch/x'", Sign.DISK, ""),
    ("cp: error writing 'x': Disk quota exceeded", Sign.DISK, ""),
    ("RuntimeError: CUDA error: uncorrectable ECC error encountered", Sign.GPU_LOST, ""),
    ("RuntimeError: CUDA error: device-side assert triggered", Sign.ASSERT, ""),
    ("RuntimeError: CUDA error: an illegal memory access was encountered", Sign.CUDA, ""),
    ("RuntimeError: cuDNN error: CUDNN_STATUS_EXECUTION_FAILED", Sign.CUDA, ""),
    ("torch.distributed.DistBackendError: NCCL error in: ../ProcessGroupNCCL.cpp:1331", Sign.NCCL, ""),
    ("[rank1]:[E] ProcessGroupNCCL.cpp:607 Watchdog caught collective operation timeout: WorkNCCL(…)", Sign.NCCL, ""),
    ("RuntimeError: [../gloo/transport/tcp/pair.cc:525] Connection closed by peer [10.0.0.2]:36591", Sign.NCCL, ""),
    ("srun: error: n1: task 0: Segmentation fault (core dumped)", Sign.SIGNAL, "n1"),
    ("./job.sh: line 3: 4242 Segmentation fault      ./a.out", Sign.SIGNAL, ""),
    ("Fatal Python error: Segmentation fault", Sign.SIGNAL, ""),
    ("srun: error: gpu-7.cluster: tasks 0-7: Exited with exit code 1", Sign.TASK, "gpu-7.cluster"),
    ("srun: error: n1: task 3: Killed", Sign.TASK, "n1"),
    ("KeyError: 'loss'", Sign.EXCEPTION, ""),
    ("[rank3]: ValueError: bad shape", Sign.EXCEPTION, ""),
    ("2: yaml.scanner.ScannerError: mapping values are not allowed here", Sign.EXCEPTION, ""),
    ("AssertionError", Sign.EXCEPTION, ""),
    ("/tmp/slurmd/job00005/slurm_script: line 4: trian.py: command not found", Sign.EXCEPTION, ""),
    ("python: can't open file '/home/ada/trian.py': [Errno 2] No such file or directory", Sign.EXCEPTION, ""),
    ("slurmstepd-n1: error: *** STEP 9.0 ON n1 CANCELLED AT 2026-11-24T06:41:13 DUE TO TIME LIMIT ***", Sign.TIME, ""),
    ("slurmstepd-n3: error: execve(): /no/such/program: No such file or directory", Sign.EXCEPTION, ""),
    ("slurmstepd-n3: error: execve(): bad interpreter(/no/such/interp): No such file or directory", Sign.EXCEPTION, ""),
    ("OSError: [Errno 5] Input/output error", Sign.OTHER, ""),
    ("ConnectionRefusedError: [Errno 111] Connection refused", Sign.OTHER, ""),
    ("torch.distributed.elastic.multiprocessing.errors.ChildFailedError:", Sign.OTHER, ""),
]  # fmt: skip


@pytest.mark.parametrize(("line", "sign", "node"), LINES)
def test_a_line_says_what_it_says(line: str, sign: Sign, node: str) -> None:
    (clue,) = signs_of(f"step 7 loss 2.1\n{line}\n")
    assert (clue.sign, clue.node) == (sign, node)


@pytest.mark.parametrize(
    "line",
    [
        "step 100 loss 2.13 lr 0.0003",
        "UserWarning: The given buffer is not writable",
        "  File \"train.py\", line 3, in <module>",
        "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.",
        "NCCL version 2.21.5+cuda12.4",
        "Error rate: 0.1",
    ],
)  # fmt: skip
def test_other_lines_say_nothing(line: str) -> None:
    assert signs_of(line) == ()


def test_few_lines_of_each_sign_are_kept_and_none_is_long_or_hides_anything() -> None:
    found = signs_of("\n".join(["KeyError: \x1b[31m" + "x" * 5000] * 50))
    assert len(found) == 2
    assert all(len(clue.line) <= 240 and clue.line.isprintable() for clue in found)


@pytest.mark.parametrize("stepd", ["slurmstepd", "slurmstepd-n1"])
@pytest.mark.parametrize("why", ["JOB REQUEUE", "PREEMPTION"])
def test_what_an_earlier_run_wrote_to_the_same_file_does_not_count(stepd: str, why: str) -> None:
    requeued = f"{stepd}: error: *** JOB 5 ON n1 CANCELLED AT 2026-03-01T12:00:00 DUE TO {why} ***"
    assert signs_of(f"KeyError: 'x'\n{requeued}\nMemoryError\n") == (Clue(Sign.MEMORY, "MemoryError"),)


def test_a_node_failure_at_the_very_end_is_of_this_run() -> None:
    line = (
        "slurmstepd: error: *** JOB 5 ON n1 CANCELLED AT 2026-03-01T12:00:00 DUE TO NODE FAILURE, SEE SLURMCTLD LOG ***"
    )
    assert [(c.sign, c.node) for c in signs_of(line + "\n")] == [(Sign.NODE_FAILED, "n1")]


CAUGHT = [
    "torch.OutOfMemoryError: CUDA out of memory. (batch size halved)",
    "wandb: WARNING could not write cache: [Errno 28] No space left on device",
    "RuntimeError: CUDA error: unspecified launch failure",
]


@pytest.mark.parametrize("line", CAUGHT)
def test_what_a_program_lived_through_says_nothing_of_its_end(line: str) -> None:
    went_on = "\n".join(f"step {n} loss 2.1" for n in range(20))
    assert signs_of(f"{line}\n{went_on}\n") == ()
    assert len(signs_of(f"{went_on}\n{line}\n")) == 1


@pytest.mark.parametrize("line", CAUGHT)
def test_the_end_of_a_launcher_is_no_life(line: str) -> None:
    """What torchrun and the other ranks write after a program has died."""
    traceback = (
        "Traceback (most recent call last):\n" + '  File "train.py", line 3, in step\n    loss.backward()\n' * 20
    )
    torchrun = "\n".join(
        [
            *["W1124 06:30:01.000000 123 torch/distributed/elastic/multiprocessing/api.py:900] Sending process 7"] * 12,
            "=" * 60,
            "train.py FAILED",
            "-" * 60,
            "Failures:",
            "  <NO_OTHER_FAILURES>",
            "Root Cause (first observed failure):",
            "[0]:",
            "  rank      : 3 (local_rank: 1)",
            "srun: error: n1: task 0: Exited with exit code 1",
        ]
    )
    assert signs_of(f"{traceback}{line}\n{torchrun}\n")


def test_slurms_own_lines_of_the_job_are_never_old() -> None:
    line = "slurmstepd: error: *** JOB 5 ON n1 CANCELLED AT 2026-03-01T12:00:00 DUE TO TIME LIMIT ***"
    text = line + "\n" + "cleaning up\n" * 50
    assert [c.sign for c in signs_of(text)] == [Sign.TIME]


@pytest.mark.parametrize(
    "line",
    [
        "slurmstepd: error: *** STEP 5.0 ON n1 CANCELLED AT 2026-03-01T12:00:00 DUE TO TIME LIMIT ***",
        "srun: error: Node failure on n2",
    ],
)
def test_a_script_may_go_on_after_the_end_of_a_step(line: str) -> None:
    """``srun --time=1 evaluate``, ``srun --no-kill`` in a loop."""
    text = line + "\n" + "step 9 loss 0.1\n" * 50 + "KeyError: 'x'\n"
    assert [c.sign for c in signs_of(text)] == [Sign.EXCEPTION]


SLOW_S = 2.0
"""CPU time that no end of an output may cost (``tests/fuzz``): usually 0.1 s. Nothing else of the agent runs meanwhile."""
HELD_UP = (
    "slurmstepd-", "gloo", "slurmstepd: error: *** ", "slurmstepd: error: *** JOB ", "srun: error: n1: tasks ", "srun: error: ", "task 0",
    "AError: DataLoader worker ", "[rank1]: ", "1: ", "A.", "A", " ", "CUDA", "x" * 250 + ": tasks ", " DUE TO JOB REQUEUE",
)  # fmt: skip


@pytest.mark.parametrize("words", HELD_UP)
def test_no_output_of_a_users_holds_up_the_agent(words: str) -> None:
    """Beginnings of lines that are looked for, again and again on one line, in front of nothing."""
    for text in (
        words * (65_536 // len(words)),
        "slurmstepd: error: *** JOB x" + words * (30_000 // len(words)) + "\n" * 30_000,
    ):
        began_s = time.thread_time()
        signs_of(text)
        assert time.thread_time() - began_s < SLOW_S
