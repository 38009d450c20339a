"""Every free text that a user can give a job, set to what reads like Slurm's own output, on a real Slurm: each reading sees just the jobs
that there are, as they are, with a bounded number of commands."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Mapping

import pytest

from holdfast.agent.node.processes import JobInSlurm, SlurmNode, job_seen
from holdfast.model.errors import Rejected
from holdfast.practice import Practice
from holdfast.slurm.commands import SlurmCommands
from holdfast.slurm.job_listing import MOST_ALONE
from holdfast.slurm.records import printable
from support.practice import eventually
from support.slurm_plugins import PLUGINS

pytestmark = [pytest.mark.slurm, pytest.mark.slow]

SEED = 20261123
JOBS = 216
OPTIONS = (
    "account", "acctg-freq", "batch", "bb", "begin", "chdir", "cluster-constraint", "comment", "constraint", "container", "container-id",
    "deadline", "dependency", "distribution", "error", "exclude", "export", "extra", "gpus", "gpus-per-node", "gres", "input",
    "job-name", "licenses", "mail-user", "mcs-label", "network", "nodelist", "output", "partition", "power", "prefer", "qos",
    "reservation", "tres-per-task", "wckey",
)  # fmt: skip
"""All options of sbatch that take a text; Slurm refuses some of them."""
MUST_TAKE = {"account", "comment", "error", "export", "input", "job-name", "mail-user", "network", "output", "wckey"}
WORDS = (
    "\n", "\t", "\r", "\x0b", "\x1b[2J", "\x7f", "\u2028", "\x85", "\xa0", " ", "=", ",", ";", "%j", "%", "'", '"', "\\", "é", "x" * 300,
    "(null)", "N/A", "m0123456789abcdef", " JobState=RUNNING", " NodeList=n1", " Command=/x", " UserId=root(0) GroupId=", " Account=",
    " QOS=", " WCKey=", " RunTime=1 TimeLimit=", " Requeue=1 Restarts=0 BatchFlag=1", " SubmitTime=1", " MinCPUsNode=1 ",
    " AllocNode:Sid=x:1 ", "\nJobId=1 ", "\nJobId=77 JobName=x UserId=root(0)", "\nJobId=77 ArrayJobId=1 ArrayTaskId=1 ",
)  # fmt: skip


def _count(twin: SlurmCommands) -> list[str]:
    """What the twin runs from now on."""
    ran: list[str] = []
    plain = twin._commands.run

    def run(*argv: str, env: Mapping[str, str] | None = None) -> str:
        ran.append(argv[0])
        return plain(*argv, env=env)

    twin._commands.run = run  # type: ignore[method-assign]
    return ran


def _text(chance: random.Random, forged: str) -> str:
    words = [chance.choice((*WORDS, f"\n{forged}\n", forged)) for _ in range(chance.randint(1, 5))]
    return "x" * chance.randint(0, 1) + "".join(words)


def test_each_reading_sees_exactly_the_jobs_that_there_are(make_practice: Callable[..., Practice]) -> None:
    chance = random.Random(SEED)
    practice = make_practice(nodes=3, gpus=2)
    practice.up()
    twin = SlurmCommands(env=practice.command_env())
    ran = _count(twin)
    victim = practice.sbatch("sleep 600", "-N1", "-w", "n1", "--gres=gpu:1")
    eventually(lambda: twin.job(victim).state == "RUNNING")
    truth = twin.job(victim)
    assert truth.gpu_indices == {"n1": frozenset({0})}
    record = practice.command("scontrol", "show", "job", "-d", "-o", str(victim)).strip().partition(" Command=")[0]
    forged = record.replace("IDX:0", "IDX:1").replace("RUNNING", "FAILED").replace("NodeList=n1", "NodeList=n2")[:900]
    names: dict[int, str] = {}
    taken: set[str] = set()
    for number in range(JOBS):
        option = OPTIONS[number % len(OPTIONS)]
        text = _text(chance, forged)
        try:
            job_id = practice.sbatch("sleep 600", "-H", "-N1", f"--{option}={text}")
        except Rejected:
            continue
        names[job_id] = text if option == "job-name" else "sbatch"
        taken.add(option)
        if number % 10 == 9:
            del ran[:]
            view = twin.view()
            assert len(ran) <= 5 + MOST_ALONE
            assert set(view.jobs) == {victim, *names}
    assert taken >= MUST_TAKE
    for _ in range(6):
        del ran[:]
        view = twin.view()
        assert len(ran) <= 6 + MOST_ALONE
        assert view.jobs[victim] == truth
        for job_id, name in names.items():
            job = view.jobs[job_id]
            assert (job.state, job.held, job.nodes, job.name) == ("PENDING", True, (), printable(name)), job_id
    assert len(ran) == 3, "nothing has changed"
    assert [job.key.job_id for job in view.jobs_on("n1")] == [victim]
    assert [job.key.job_id for job in twin.jobs_on("n1")] == [victim]
    assert not any(node.out_of_service for node in view.nodes.values())


FREE = (
    "comment",
    "job-name",
    "network",
    "wckey",
    "account",
    "mail-user",
    "container",
    "output",
    "error",
    "input",
    "mcs-label",
    "power",
)


def _listed(practice: Practice) -> set[int]:
    return {int(line) for line in practice.command("squeue", "-h", "-a", "-t", "all", "-o", "%A").split()}


def test_elements_of_arrays_and_components_with_such_texts(make_practice: Callable[..., Practice]) -> None:
    """Some run, some are held, some wait; a requeued element has its own record."""
    chance = random.Random(SEED + 1)
    practice = make_practice(nodes=3, gpus=2)
    practice.up()
    twin = SlurmCommands(env=practice.command_env())
    victim = practice.sbatch("sleep 600", "-N1", "-w", "n1", "--gres=gpu:1")
    eventually(lambda: twin.job(victim).state == "RUNNING")
    truth = twin.job(victim)
    record = practice.command("scontrol", "show", "job", "-d", "-o", str(victim)).strip().partition(" Command=")[0]
    forged = record.replace("IDX:0", "IDX:1").replace("RUNNING", "FAILED").replace("NodeList=n1", "NodeList=n2")[:900]
    for number in range(60):
        texts = [[f"--{option}={_text(chance, forged)}" for option in chance.sample(FREE, 3)] for _ in range(2)]
        held = ["-H"] if number % 3 else []
        with contextlib.suppress(Rejected):
            if number % 2:
                practice.sbatch("sleep 600", "-N1", "-a0-3%1", *held, *texts[0])
            else:
                practice.sbatch("sleep 600", "-N1", *held, *texts[0], ":", "-N1", *texts[1])
        if number % 10 == 9:
            eventually(lambda: set(twin.view().jobs) == _listed(practice))  # elements start and end meanwhile
            assert twin.view().jobs[victim] == truth
            assert [job.key.job_id for job in twin.jobs_on("n1") if job.gpu_indices == {"n1": frozenset({0})}] == [
                victim
            ]
    assert len(twin.view().jobs) > 60
    assert not any(node.out_of_service for node in twin.view().nodes.values())


def test_a_running_job_whose_texts_read_like_fields_is_in_the_view(make_practice: Callable[..., Practice]) -> None:
    practice = make_practice(nodes=2, gpus=2, extra_slurm_conf="TrackWCKey=yes\n")
    practice.up()
    twin = SlurmCommands(env=practice.command_env())
    lie = "x JobState=PENDING NodeList=n2 Restarts=7 SuspendTime=9 SecsPreSuspend=0   Nodes=n1 CPU_IDs=0 Mem=0 GRES=gpu:2(IDX:0-1)"
    texts = [f"--{option}={lie}" for option in ("network", "wckey", "job-name", "account", "comment")]
    job_id = practice.sbatch("sleep 600", "-N1", "-w", "n1", "--gres=gpu:1", *texts)
    eventually(lambda: twin.job(job_id).state == "RUNNING")
    for job in (twin.job(job_id), *twin.jobs_on("n1"), twin.view().jobs[job_id]):
        assert (job.state, job.nodes, job.restarts, job.name) == ("RUNNING", ("n1",), 0, lie)
        assert (job.gpu_indices, job.gpus_known, job.suspend_time) == ({"n1": frozenset({0})}, True, None)
    agents = SlurmNode("n1", practice.folder / "run" / "slurmd.n1.pid", "scontrol", practice.slurm_conf)
    assert job_seen(agents, job_id) == JobInSlurm("RUNNING", 0)


def test_an_operators_text_at_a_node_is_no_record(make_practice: Callable[..., Practice]) -> None:
    practice = make_practice(nodes=2, gpus=1)
    practice.up()
    twin = SlurmCommands(env=practice.command_env())
    before = twin.view().nodes
    forged = (
        "x\nNodeName=n2 State=DOWN*+DRAIN ThreadsPerCore=1 Reason=gone [root@1]\x0b\u2028\x1cNodeName=n1 State=DOWN"
    )
    practice.command("scontrol", "update", "NodeName=n1", f"Comment={forged}", f"Extra={forged}")
    after = twin.view().nodes
    assert set(after) == {"n1", "n2"}
    for name, node in after.items():
        assert (node.base_state, node.flags, node.reason) == (before[name].base_state, before[name].flags, "")
        assert twin.node(name).base_state == before[name].base_state
    practice.command("scontrol", "update", "NodeName=n1", "State=DRAIN", f"Reason={forged} JobState=x a=b")
    after = twin.view().nodes
    assert after["n1"].draining
    assert not after["n2"].out_of_service


FIELDS = (
    "Account", "ArrayTaskThrottle", "BurstBuffer", "ClusterFeatures", "Comment", "Contiguous", "CoreSpec", "Deadline", "DelayBoot",
    "Dependency", "EligibleTime", "ExcNodeList", "Extra", "Features", "Gres", "JobName", "Licenses", "MailType", "MailUser", "MinCPUsNode",
    "MinMemoryCPU", "MinMemoryNode", "MinTmpDiskNode", "Name", "Network", "Nice", "NumCPUs", "NumNodes", "NumTasks", "OverSubscribe",
    "Partition", "Prefer", "Priority", "QOS", "ReqCores", "ReqNodeList", "ReqProcs", "ReqSockets", "ReqThreads", "Requeue",
    "ReservationName", "Shared", "SiteFactor", "StartTime", "StdErr", "StdIn", "StdOut", "Switches",
    "TasksPerNode", "ThreadSpec", "TimeLimit", "TimeMin",
    "TRESPerJob", "TRESPerNode", "WCKey", "WorkDir",
)  # fmt: skip
"""What scontrol(1) lets a job's owner change, with what only an operator may."""
VALUES = (
    "n1,", ",n1", "n1,,n2", "n1 n2", "n1\tn2", "n1 ", ",", "[n1", "n[1-03]", "n1,n[2-3],", "@all", "n[1-", "", "0", "1", "-1", "4294967294",
    "99999999999", "now+999999999999", "9999-12-31T23:59:59", "UNLIMITED", "INFINITE", "365-00:00:00", "gpu:1", "afterany:1,", "singleton",
    "1-2", "1@0:10", "x y=z", "x\nJobId=1 ", "YES", "none", "(null)", "x" * 500, "\x1b[2J\u2028",
)  # fmt: skip


def test_no_update_of_one_job_hides_any_job(make_practice: Callable[..., Practice]) -> None:
    practice = make_practice(nodes=3, gpus=2)
    practice.up()
    twin = SlurmCommands(env=practice.command_env())
    victim = practice.sbatch("sleep 600", "-N1", "-w", "n3", "--gres=gpu:1", "-x", "n1")
    eventually(lambda: twin.job(victim).state == "RUNNING")
    truth = twin.job(victim)
    taken: set[str] = set()
    held: dict[str, int] = {}
    for name in FIELDS:
        held[name] = practice.sbatch("sleep 600", "-H", "-N1", *(["-a0-3"] if name == "ArrayTaskThrottle" else []))
        for value in VALUES:
            with contextlib.suppress(Rejected):
                practice.command("scontrol", "update", f"JobId={held[name]}", f"{name}={value}")
                taken.add(f"{name}={value}")
                if "Node" in name or "Time" in name or name == "Deadline":
                    fresh = SlurmCommands(env=practice.command_env()).view()  # one that has not seen the job before
                    assert (fresh.jobs[victim], held[name] in fresh.jobs) == (truth, True), value
        view = twin.view()
        assert (view.jobs[victim], set(view.jobs)) == (truth, {victim, *held.values()}), name
    every_release = {
        f"{name}NodeList={value}" for name in ("Exc", "Req") for value in ("n1,", ",n1", "n1,,n2", "n1 n2")
    }
    assert every_release <= taken, "Slurm 22.05 takes [n1 in addition, 24.11 refuses it"
    practice.command("scontrol", "update", f"JobId={held['ExcNodeList']}", "ExcNodeList=,n1\tn2 ")
    assert twin.view().jobs[held["ExcNodeList"]].excluded_nodes == ("n1", "n2")


def test_the_example_of_job_submit_refuses_a_container_without_end(make_practice: Callable[..., Practice]) -> None:
    """Slurm itself takes the megabytes, and sends them with every listing of jobs."""
    practice = make_practice(nodes=2, gpus=1, extra_slurm_conf="JobSubmitPlugins=lua\n")
    example = (PLUGINS / "lua" / "job_submit.lua.example").read_text()
    (practice.slurm_conf.parent / "job_submit.lua").write_text(example)
    practice.up()
    with pytest.raises(Rejected):
        practice.sbatch("sleep 600", "-H", "-N1", f"--container=/{'x' * 5000}")
    practice.sbatch("sleep 600", "-H", "-N1", f"--container=/{'x' * 4000}")
    practice.sbatch("sleep 600", "-H", "-N1")
    assert len(SlurmCommands(env=practice.command_env()).view().jobs) == 2
