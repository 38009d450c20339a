"""Parsers of Slurm's text, on captured output and on what users could write into it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from holdfast.model.errors import NotFound, NotPermitted, Rejected, Unavailable
from holdfast.model.slurm.cluster import Job
from holdfast.slurm import parse, records
from holdfast.slurm.details import details, gpu_indices, shared_indices
from holdfast.slurm.hosts import hosts, users_hosts
from holdfast.slurm.run import refusal
from holdfast.slurm.squeue import SqueueRow
from holdfast.slurm.tasks import waiting_tasks
from support.squeue import ROW

DATA = Path(__file__).parent / "data"
RECORD = (DATA / "job_22.05.txt").read_text()


def job_of(record: str = RECORD, row: SqueueRow = ROW) -> Job:
    found = details(record, row)
    assert found is not None
    return parse.job(row, "c", found)


def test_job() -> None:
    job = job_of()
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
    assert (job.comment, job.admin_comment) == ("lr=0.1 first try", "told you so")  # word: a job's text
    assert (job.work_dir, job.stdout) == ("/home/alice/a dir", "/home/alice/o ut.txt")
    assert (job.stderr, job.batch_host, job.dependency) == ("/home/alice/e rr.txt", "n1", None)
    assert job.time_limit_s == 86400 + 2 * 3600 + 3 * 60 + 4
    assert job.start_time == datetime.fromtimestamp(1795189185, UTC)
    assert (job.het_leader, job.array_task_id) == (None, None)


@pytest.mark.parametrize(
    ("task", "printed", "waiting", "throttle"),
    [
        ("0", "", (), None),
        ("3", " ArrayTaskThrottle=2", (), 2),
        ("2-4,9%2", " ArrayTaskThrottle=2", (2, 3, 4, 9), 2),
        ("5%1", " ArrayTaskThrottle=1", (5,), 1),
        ("0-8:4", "", (0, 4, 8), None),
        ("1,3,...", "", (), None),
    ],
)
def test_elements_of_an_array(task: str, printed: str, waiting: tuple[int, ...], throttle: int | None) -> None:
    record = RECORD.replace(" JobName=", f" ArrayJobId=7 ArrayTaskId={task}{printed} JobName=")
    job = job_of(record, ROW._replace(array_id="7", task=task))
    number = int(task) if task.isdigit() else None
    assert (job.array_job_id, job.array_task_id, job.array_tasks_waiting, job.array_throttle) == (
        7,
        number,
        waiting,
        throttle,
    )
    assert job.tasks == (waiting if number is None else (number,))


def test_job_of_a_release_that_prints_the_submit_line_and_a_second_id() -> None:
    text = (DATA / "job_26.05.txt").read_text()
    name = "a b\nJobId=9 UserId=x"
    row = ROW._replace(job_id="1", name=name, account="(null)", uid="1", alloc_node="localhost", nodes="n[1-2]")
    job = job_of(text, row)
    assert (job.name, job.state, job.nodes) == ("a b JobId=9 UserId=x", "RUNNING", ("n1", "n2"))
    assert job.gpu_indices == {"n1": frozenset(range(8)), "n2": frozenset(range(8))}
    assert job.exclusive


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
    assert job_of(RECORD.replace("OverSubscribe=NO", printed)).exclusive is exclusive


LIES = " SuspendTime=7 SecsPreSuspend=0 ReqNodeList=n9 ExcNodeList=n[1-999999999]   Nodes=n1 CPU_IDs=0 Mem=0 GRES=gpu:8(IDX:0-999999999)"


@pytest.mark.parametrize(
    "key", ["JobName", "Account", "WCKey", "AllocNode:Sid", "Network", "Licenses", "Command", "Comment", "WorkDir"]
)
def test_no_text_of_a_user_is_taken_for_a_detail(key: str) -> None:
    record = RECORD.replace(" QOS=normal", " QOS=normal WCKey=key")
    value = record.partition(f" {key}=")[2].partition(" ")[0].partition(":")[0]
    record = record.replace(f" {key}={value}", f" {key}={value}{LIES}", 1)
    fields = {"JobName": "name", "Account": "account", "WCKey": "wckey", "AllocNode:Sid": "alloc_node"}
    row = ROW._replace(wckey="key")
    row = row._replace(**{fields[key]: value + LIES}) if key in fields else row
    assert details(record, row) == details(RECORD, ROW)


def test_nodes() -> None:
    printed = records.nodes((DATA / "node_22.05.txt").read_text())
    down, idle = (parse.node(one) for (one,) in printed.values())
    assert (down.base_state, down.flags) == ("DOWN", frozenset({"DRAIN", "NOT_RESPONDING"}))
    assert (down.reason, down.reason_user) == ("holdfast[x]: a b c='d' [e]", "root")
    assert down.reason_time == datetime.fromtimestamp(1795189361, UTC)
    assert (down.gpu_count, down.partitions, down.port) == (8, ("train", "debug"), 22202)
    assert (idle.base_state, idle.flags, idle.responding) == ("IDLE", frozenset({"PLANNED", "NOT_RESPONDING"}), False)
    assert (idle.gpu_count, idle.boot_time, idle.reason, idle.reason_time) == (0, None, "", None)


STOPS = "NodeName=n3 Gres=gpu:8 State={state} ThreadsPerCore=1 Partitions=train  BootTime=1795187932 {texts}"
OURS = "Reason=holdfast[1m863jfv]: gpu.xid 79: off the bus [root@1795501408]"


@pytest.mark.parametrize(
    ("texts", "reason", "user"),
    [
        (f"{OURS} Comment=ticket 12 [bob@ops]", "holdfast[1m863jfv]: gpu.xid 79: off the bus", "root"),
        (f"{OURS} Comment=was: bad fan [bob@1700000000]", "holdfast[1m863jfv]: gpu.xid 79: off the bus", "root"),
        (
            f"{OURS} Comment=Reason=bad [bob@1700000000] Extra=x [y@1]",
            "holdfast[1m863jfv]: gpu.xid 79: off the bus",
            "root",
        ),
        (f'{OURS} Extra={{"a":1}} [eve@1700000000]', "holdfast[1m863jfv]: gpu.xid 79: off the bus", "root"),
        (f"{OURS} ReservationName=vendor", "holdfast[1m863jfv]: gpu.xid 79: off the bus", "root"),
        ("Reason=Not responding [slurm@1795501408] Comment=ticket 12 [bob@ops]", "Not responding", "slurm"),
        ("Reason=Not responding [slurm@Unknown]", "Not responding", "slurm"),
        ("Reason=as before [bob@1700000000] and now [root@1795501408]", "as before [bob@1700000000] and now", "root"),
        ("Reason=see Comment=12 [root@1795501408]", "see Comment=12", "root"),
        ("Reason=Not responding", "Not responding", ""),
        ("Comment=was: Reason=bad fan [bob@1700000000]", "", ""),
        ("Comment=State=DOWN Port=1 Gres=gpu:1", "", ""),
        ("", "", ""),
    ],
)
def test_no_comment_of_a_node_is_taken_for_its_reason(texts: str, reason: str, user: str) -> None:
    """Slurm prints a node's comment behind its reason, and quotes neither. With brackets in it our own drain was taken for a stranger's."""
    node = parse.node(STOPS.format(state="IDLE+DRAIN", texts=texts))
    assert (node.reason, node.reason_user) == (reason, user)
    assert (node.base_state, node.gpu_count, node.port) == ("IDLE", 8, parse.SLURMD_PORT)
    assert (node.reason_time is not None) is (bool(user) and "Unknown" not in texts)


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
    assert gpu_indices(record) == ({"n1": frozenset(indices)} if indices else {})


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
    assert gpu_indices(record) == ({"n1": gpus} if gpus else {})
    assert shared_indices(record) == ({"n1": shares} if shares else {})


def test_more_tasks_than_an_array_may_have_are_none() -> None:
    assert len(waiting_tasks("0-4000000")) == 4_000_001
    assert waiting_tasks("0-99999999999") == waiting_tasks("0-4000000,5-9") == ()


def test_the_default_output_of_an_arrays_element_is_named_by_the_array() -> None:
    """squeue of 22.05 shows it under the element's own id, which is not where slurmd writes to."""
    shown = {"work_dir": "/w", "stdout": "/w/slurm-11.out", "stderr": "/w/slurm-11.out"}
    element = job_of(row=ROW._replace(array_id="7", task="3", **shown))
    assert (element.stdout, element.stderr) == ("/w/slurm-7_3.out", "/w/slurm-7_3.out")
    other = job_of(row=ROW._replace(**shown))
    assert (other.stdout, other.stderr) == ("/w/slurm-11.out", "/w/slurm-11.out")
    named = job_of(row=ROW._replace(array_id="7", task="3", work_dir="/w", stdout="/w/%A_%a", stderr="/v/slurm-11.out"))
    assert (named.stdout, named.stderr) == ("/w/%A_%a", "/v/slurm-11.out")


def test_a_relative_output_is_in_the_working_directory() -> None:
    job = job_of(row=ROW._replace(work_dir="/w", stdout="o-%j", stderr=""))
    assert (job.stdout, job.stderr) == ("/w/o-%j", "")


@pytest.mark.parametrize(
    ("printed", "wanted"),
    [
        *(
            ("0", "0:0"),
            ("256", "1:0"),
            ("15", "0:15"),
            ("139", "0:11"),
            ("34304", "134:0"),
            ("1:0", "1:0"),
            ("0:9", "0:9"),
        ),
        *(("4021", "0:53"), ("53", "0:53"), ("4294967295", "0:0")),
    ],
)
def test_exit_codes_of_all_releases(printed: str, wanted: str) -> None:
    assert parse.exit_code(printed) == wanted


@pytest.mark.parametrize(
    ("printed", "error"),
    [
        *(("4021", 4021), ("4016", 4016)),
        *(("0", 0), ("256", 0), ("53", 0), ("15", 0), ("139", 0), ("34304", 0), ("65280", 0), ("4294967295", 0)),
        *(("0:53", None), ("1:0", None)),
    ],
)
def test_an_error_of_slurms_own_is_no_signal(printed: str, error: int | None) -> None:
    """Tried on 22.05: 4021 where the output cannot be opened, 53 for a script that ends by that signal; scontrol shows both as 0:53."""
    assert parse.slurm_error(printed) == error


def test_a_time_after_the_last_one_that_there_is() -> None:
    """A user may ask for any start time."""
    last = parse.time_or_none("99999999999999")
    assert last is not None
    assert last.year == 9999


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
    assert hosts("n[1-2,10],m3") == ("m3", "n1", "n2", "n10")
    assert hosts("(null)") == ()
    assert parse.fold(("n1", "n2", "n4")) == "n[1-2,4]"
    assert parse.fold(()) == ""
    with pytest.raises(Rejected):
        hosts("n[1-")


@pytest.mark.parametrize(
    "text", ["n1,,n2", "n1,n2,", ",n1,n2", "n1 n2", "n1\tn2 ", "n[1,2],", " n[1-2] , ", "n1,n2,,n1"]
)
def test_slurm_takes_lists_with_empty_parts_and_blanks(text: str) -> None:
    assert hosts(text) == ("n1", "n2")


@pytest.mark.parametrize("text", ["@all", "n*"])
def test_a_group_of_this_machine_is_no_node(text: str) -> None:
    assert hosts(text) == (text,)


@pytest.mark.parametrize(
    "name", ["@all", "@local:x;id", "@*", "n*", "n[1-3]", "n1,n2", "n1!n2", "n1&n1", "n1 n2", "", "ALL", "all"]
)
def test_what_is_no_name_of_one_node_is_in_no_list_of_ours(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ClusterShell hands the name of a group to a shell: an attacker who plans a step would have one in the actor."""
    (tmp_path / "groups.conf").write_text(
        f"[Main]\ndefault: local\n[local]\nmap: touch {tmp_path}/asked; echo $GROUP\n"
    )
    monkeypatch.setenv("CLUSTERSHELL_CFGDIR", str(tmp_path))
    with pytest.raises(Rejected):
        parse.fold(("n1", name))
    assert not (tmp_path / "asked").exists()


@pytest.mark.parametrize(
    "text", ["n[1-200000]", "n[1-999999999]", "n[1-99999999999999999999]", "n[1-600]-[1-600]", "n[1-70000],m[1-70000]"]
)
def test_a_users_list_of_very_many_names_is_not_made(text: str) -> None:
    """It would take the memory of the head node."""
    assert users_hosts("ExcNodeList", text) == ((), f"ExcNodeList={text}")
    assert len(hosts("n[1-9999]-[1-2],m[1,3-5]")) == 2 * 9999 + 4
