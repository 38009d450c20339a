"""Parsers of Slurm's text, on captured output and on what users could write into it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.errors import NotFound, NotPermitted, Rejected, Unavailable
from holdfast.slurm import parse, records
from holdfast.slurm.job_listing import JobListing
from holdfast.slurm.records import OwnTexts
from holdfast.slurm.run import refusal

DATA = Path(__file__).parent / "data"
RECORD = (DATA / "job_22.05.txt").read_text()
OWN = OwnTexts("train", "lab", 1001)


def test_job() -> None:
    job = parse.job(RECORD, "c", OWN)
    assert job.key.text == "c/11@1795189184"
    assert (job.name, job.user, job.uid, job.account, job.qos) == ("train", "alice", 1001, "lab", "normal")
    assert (job.state, job.reason, job.restarts, job.requeueable) == ("RUNNING", "", 2, True)
    assert (job.nodes, job.num_nodes) == (("n1", "n2", "n3"), 3)
    assert (job.required_nodes, job.excluded_nodes) == ((), ("n7", "n9"))
    assert job.gpu_indices == {
        "n1": frozenset({0, 3}),
        "n2": frozenset({0, 3}),
        "n3": frozenset({4, 5}),
    }
    assert (job.exclusive, job.reservation) == (True, "r1")
    assert (job.comment, job.admin_comment) == ("lr=0.1 first try", "told you so")
    assert (job.work_dir, job.stdout) == ("/home/alice/a dir", "/home/alice/o ut.txt")
    assert job.time_limit_s == 86400 + 2 * 3600 + 3 * 60 + 4
    assert job.start_time == datetime.fromtimestamp(1795189185, UTC)
    assert (job.het_leader, job.array_task_id) == (None, None)


@pytest.mark.parametrize(
    ("printed", "task", "waiting", "throttle"),
    [
        ("ArrayJobId=7 ArrayTaskId=0", 0, (), None),
        ("ArrayJobId=7 ArrayTaskId=3 ArrayTaskThrottle=2", 3, (), 2),
        ("ArrayJobId=7 ArrayTaskId=2-4,9%2 ArrayTaskThrottle=2", None, (2, 3, 4, 9), 2),
        ("ArrayJobId=7 ArrayTaskId=5%1 ArrayTaskThrottle=1", None, (5,), 1),
        ("ArrayJobId=7 ArrayTaskId=0-8:4", None, (0, 4, 8), None),
        ("ArrayJobId=7 ArrayTaskId=1,3,...", None, (), None),
        ("ArrayJobId=7 ArrayTaskId=N/A", None, (), None),
    ],
)
def test_elements_of_an_array(printed: str, task: int | None, waiting: tuple[int, ...], throttle: int | None) -> None:
    job = parse.job(RECORD.replace(" JobName=", f" {printed} JobName="), "c", OWN)
    assert (job.array_job_id, job.array_task_id, job.array_tasks_waiting, job.array_throttle) == (
        7,
        task,
        waiting,
        throttle,
    )
    assert job.tasks == (waiting if task is None else (task,))


def test_job_of_a_release_that_prints_the_submit_line_and_a_second_id() -> None:
    text = (DATA / "job_26.05.txt").read_text()
    own = OwnTexts("a b\nJobId=9 UserId=x", "(null)", 1)
    record = records.first_record(text, 1, {1: own})
    assert record is not None
    job = parse.job(record, "c", own)
    assert (job.name, job.user, job.state, job.nodes) == ("a b JobId=9 UserId=x", "daemon", "RUNNING", ("n1", "n2"))
    assert job.gpu_indices == {"n1": frozenset(range(8)), "n2": frozenset(range(8))}


@pytest.mark.parametrize(
    ("printed", "exclusive"),
    [
        ("OverSubscribe=OK", False),
        ("OverSubscribe=NO", True),
        ("OverSubscribe=USER", False),
        ("OverSubscribe=NO Exclusive=NO", False),
        ("OverSubscribe=NO Exclusive=NODE", True),
        ("OverSubscribe=NO Exclusive=USER", False),
        ("OverSubscribe=YES Exclusive=NO", False),
    ],
)
def test_who_has_its_nodes_alone(printed: str, exclusive: bool) -> None:
    assert parse.job(RECORD.replace("OverSubscribe=NO", printed), "c", OWN).exclusive is exclusive


def test_nodes() -> None:
    down, idle = (parse.node(line) for line in records.lines((DATA / "node_22.05.txt").read_text()))
    assert (down.base_state, down.flags) == ("DOWN", frozenset({"DRAIN", "NOT_RESPONDING"}))
    assert (down.reason, down.reason_user) == ("holdfast[x]: a b c='d' [e]", "root")
    assert down.reason_time == datetime.fromtimestamp(1795189361, UTC)
    assert (down.gpu_count, down.partitions, down.port) == (8, ("train", "debug"), 22202)
    assert (idle.base_state, idle.flags, idle.responding) == ("IDLE", frozenset({"PLANNED", "NOT_RESPONDING"}), False)
    assert (idle.gpu_count, idle.boot_time, idle.reason, idle.reason_time) == (0, None, "", None)


def test_reservation() -> None:
    found = parse.reservation(records.lines((DATA / "reservation_22.05.txt").read_text())[0])
    assert (found.name, found.nodes, found.users) == ("holdfast-1", ("n1", "n3", "n5"), ("alice", "root"))
    assert found.flags == {"FLEX", "IGNORE_JOBS", "SPEC_NODES"}
    assert found.end_time is not None
    assert found.start_time is not None
    assert (found.end_time - found.start_time).total_seconds() == 600


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1-00:00:00", 86400),
        ("365-00:00:00", 365 * 86400),
        ("02:00:01", 7201),
        ("05:00", 300),
        ("UNLIMITED", None),
        ("Partition_Limit", None),
        ("", None),
    ],
)
def test_durations(text: str, seconds: int | None) -> None:
    assert parse.duration_s(text) == seconds


@pytest.mark.parametrize(
    ("gres", "indices"),
    [
        ("gpu:2(IDX:0-1)", {0, 1}),
        ("gpu:h100:2(IDX:0,3)", {0, 3}),
        ("gpu:a:1(IDX:0),gpu:b:2(IDX:5-6)", {0, 5, 6}),
        ("gres/gpu:h100:8(IDX:0-7)", set(range(8))),
        ("nic:1(IDX:0)", None),
        ("gpu:0(IDX:)", None),
        ("", None),
    ],
)
def test_gpu_indices(gres: str, indices: set[int] | None) -> None:
    record = f"JobId=1 JOB_GRES=x   Nodes=n1 CPU_IDs=0-3 Mem=0 GRES={gres} MinCPUsNode=1 Command=x"
    assert parse.gpu_indices(record) == ({"n1": frozenset(indices)} if indices else {})


@pytest.mark.parametrize(
    ("gres", "gpus", "shares"),
    [
        # as 22.05 prints them
        ("gpu:1g.5gb:1(IDX:2)", {2}, {}),
        ("shard:3(IDX:1)", set(), {"shard": {1}}),
        ("gpu:1(IDX:0),shard:tesla:3(IDX:4-5)", {0}, {"shard": {4, 5}}),
        ("gres/mps:50(IDX:0)", set(), {"mps": {0}}),
        ("gpu_mem:80(IDX:3)", set(), {}),
        ("shard:0(IDX:)", set(), {}),
    ],
)
def test_mig_instances_and_shares(gres: str, gpus: set[int], shares: dict[str, set[int]]) -> None:
    record = f"JobId=1 JOB_GRES=x   Nodes=n1 CPU_IDs=0-3 Mem=0 GRES={gres} MinCPUsNode=1 Command=x"
    assert parse.gpu_indices(record) == ({"n1": gpus} if gpus else {})
    assert parse.shared_indices(record) == ({"n1": shares} if shares else {})


def named(job_id: int, name: str, account: str = "lab", comment: str = "") -> str:
    record = RECORD.replace("JobId=11", f"JobId={job_id}").replace("JobName=train", f"JobName={name}")
    return record.replace("Account=lab", f"Account={account}").replace("lr=0.1 first try", comment)


HEAD = RECORD.partition(" Command=")[0].replace("n[1-3]", "n9")


FORGED = "x HetJobId=77 HetJobOffset=1 ArrayJobId=500 ArrayTaskId=0-9 ArrayTaskThrottle=3 NodeList=n5"


@pytest.mark.parametrize("key", ["Comment", "WorkDir", "Network", "Licenses"])
def test_no_text_of_a_user_makes_a_job_a_part_of_another(key: str) -> None:
    record = RECORD.replace(f" {key}=", f" {key}={FORGED} ", 1) if f" {key}=" in RECORD else f"{RECORD} {key}={FORGED}"
    job = parse.job(record, "c", OWN)
    assert (job.het_leader, job.array_job_id, job.array_task_id) == (None, None, None)
    assert (job.array_tasks_waiting, job.array_throttle, job.nodes) == ((), None, ("n1", "n2", "n3"))


def test_more_tasks_than_an_array_may_have_are_none() -> None:
    assert len(parse.waiting_tasks("0-4000000")) == 4_000_001
    assert parse.waiting_tasks("0-99999999999") == parse.waiting_tasks("0-4000000,5-9") == ()


@pytest.mark.parametrize(
    ("name", "account", "comment"),
    [
        ("plain", "lab", ""),
        ("a b", "la b", "x=y"),
        ("x UserId=root(0) JobState=FAILED", "lab", ""),
        (f"x\n{HEAD}", "lab", ""),
        (f"x\n{HEAD.replace('JobId=11', 'JobId=12')}\n", "lab", f"\n{HEAD}\n"),
        ("x", "lab QOS=z JobState=FAILED Requeue=0 NodeList=n9", ""),
        ("JobName=train", "lab", "UserId=root(0)"),
    ],
)
def test_users_texts_change_nothing_else(name: str, account: str, comment: str) -> None:
    mark = "0123456789abcdef"
    listing = f"{mark}11{mark}1001{mark}train{mark}lab{mark}\n{mark}21{mark}1001{mark}{name}{mark}{account}{mark}\n"
    texts = records.own_texts(listing, mark)
    assert texts[21] == OwnTexts(name, account, 1001)
    text = RECORD + "\n" + named(21, name, account, comment) + "\n"
    listed = JobListing().read(text, texts, "c")
    for job_id, job in listed.jobs.items():
        assert (job.uid, job.state, job.nodes) == (1001, "RUNNING", ("n1", "n2", "n3")), job_id
    if comment.startswith("\n"):
        assert listed.doubtful >= {21}  # a forged line in a comment is seen: nothing of that job is believed
    else:
        assert set(listed.jobs) == {11, 21}


@given(st.text(max_size=80), st.text(max_size=20))
def test_no_text_of_a_user_breaks_the_parser(name: str, comment: str) -> None:
    texts = {21: OwnTexts(name, "lab", 1001)}
    listed = JobListing().read(named(21, name, comment=comment), texts, "c")
    for job in listed.jobs.values():
        assert job.uid == 1001


def test_one_record_read_alone_is_believed_up_to_its_users_texts() -> None:
    hostile = named(21, "x", comment=f"\n{HEAD.replace('JobId=11', 'JobId=21')}\n")
    texts = {21: OwnTexts("x", "lab", 1001)}
    record = records.first_record(hostile, 21, texts)
    assert record is not None
    assert parse.job(record, "c", OWN).nodes == ("n1", "n2", "n3")
    assert records.first_record(hostile, 22, texts) is None
    assert records.first_record(hostile, 21, {21: OWN}) is None, "renamed since its name was read"
    assert records.first_record(hostile, 21, {21: OwnTexts("x", "lab", 0)}) is None, "another user's"


def test_jobs_that_the_listing_lacks_are_doubtful() -> None:
    listed = JobListing().read(RECORD + "\n" + named(12, "new"), {11: OWN}, "c")
    assert (set(listed.jobs), listed.doubtful) == (set(), frozenset({11, 12}))
    assert JobListing().read("No jobs in the system\n", {}, "c").jobs == {}


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("slurm_update error: Invalid node name specified", NotFound),
        ("Node nx not found", NotFound),
        ("Invalid job id specified for job 999", NotFound),
        ("slurm_update error: Invalid user id", NotPermitted),
        ("scontrol_reboot_nodes error: Permission denied", NotPermitted),
        ("Access/permission denied for job 5", NotPermitted),
        ("slurm_load_node error: Unable to contact slurm controller (connect failure)", Unavailable),
        ("Unexpected message received for job 1", Unavailable),
        ("slurm_update error: Socket timed out on send/recv operation", Unavailable),
        ("Job is pending execution for job 11", Rejected),
        ("Requested operation is presently disabled for job 14", Rejected),
        ("slurm_update error: Invalid node state specified", Rejected),
        ("", Rejected),
    ],
)
def test_words_of_refusal(words: str, kind: type[Exception]) -> None:
    assert type(refusal(("scontrol", "update"), words)) is kind


def test_config() -> None:
    found = parse.config(
        "Configuration data as of 1\nAuthInfo = socket=/x,cred_expire=5\nX = (null)\n\nCgroup Support\n"
    )
    assert found == {"AuthInfo": "socket=/x,cred_expire=5", "X": ""}


def test_host_lists() -> None:
    assert parse.hosts("n[1-2,10],m3") == ("m3", "n1", "n2", "n10")
    assert parse.hosts("(null)") == ()
    assert parse.fold(("n1", "n2", "n4")) == "n[1-2,4]"
    assert parse.fold(()) == ""
    with pytest.raises(Rejected):
        parse.hosts("n[1-")
