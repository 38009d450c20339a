"""A record that reads as before is not parsed again, and nothing that a user writes passes for one."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.slurm.cluster import Job
from holdfast.slurm import parse, records, squeue
from holdfast.slurm.details import Details
from holdfast.slurm.job_listing import MOST_ALONE, JobListing, Stillness
from holdfast.slurm.squeue import SqueueRow
from support.squeue import printed, row

DATA = Path(__file__).parent / "data"
RECORD = (DATA / "job_22.05.txt").read_text().strip()
GPUS = {"n1": frozenset({0, 3}), "n2": frozenset({0, 3}), "n3": frozenset({4, 5})}


def _record(job_id: int, **changed: str) -> str:
    text = RECORD.replace("JobId=11", f"JobId={job_id}")
    for key, value in changed.items():
        old = next(word for word in text.split() if word.startswith(f"{key}="))
        text = text.replace(old, f"{key}={value}", 1)
    return text


def _text(*texts: str) -> str:
    return "".join(f"{text}\n" for text in texts)


def _rows(*rows: SqueueRow) -> dict[int, SqueueRow]:
    return {one.number: one for one in rows}


@dataclass
class Alone:
    """What ``scontrol show job ID`` prints."""

    records: Mapping[int, str] = field(default_factory=dict)
    asked: list[int] = field(default_factory=list)

    def __call__(self, job_id: int) -> str | None:
        self.asked.append(job_id)
        return self.records.get(job_id)


def _listing(alone: Alone | None = None) -> JobListing:
    return JobListing("c", lambda: 1795190000.0, alone or Alone(), lambda: 0.0)


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Ids of the jobs that were parsed."""
    ids: list[int] = []
    plain = parse.job

    def job(one: SqueueRow, cluster: str, details: Details) -> Job:
        ids.append(one.number)
        return plain(one, cluster, details)

    monkeypatch.setattr(parse, "job", job)
    return ids


def test_only_what_has_changed_is_parsed(parsed: list[int]) -> None:
    listing = _listing()
    rows = _rows(row(11), row(12), row(13))
    first = listing.read(_text(RECORD, _record(12), _record(13)), rows)
    assert parsed == [11, 12, 13]
    later = _text(*(_record(job_id, RunTime="00:09:59", LastSchedEval="9") for job_id in rows))
    assert listing.read(later, rows) == first, "time passes, and nothing else has changed"
    assert parsed == [11, 12, 13]
    rows[12] = rows[12]._replace(state="COMPLETING")
    second = listing.read(_text(RECORD, _record(12, JobState="COMPLETING"), _record(13)), rows)
    assert second[12].state == "COMPLETING"
    assert second[13] is first[13]
    assert parsed == [11, 12, 13, 12]
    assert listing.read("No jobs in the system\n", {}) == {}


AFTER_NAME = RECORD.partition("JobName=train")[2].partition(" Command=")[0].replace("alice(1001)", "root(0)")
FORGED = f"JobId=11 JobName=train{AFTER_NAME.replace('IDX:0,3', 'IDX:7').replace('root(0)', 'alice(1001)')} Command=/y"


@pytest.mark.parametrize("name", [f"y{AFTER_NAME} Command=/y", "x SLUID=1 Partition=big", "y", f"y\n{FORGED}\n"])
def test_a_job_that_is_renamed_between_two_readings_is_there_with_what_is_certain(name: str) -> None:
    """It was called ``name`` when the records were read, and ``train`` when squeue was asked."""
    alone = Alone({12: _record(12)})
    text = _text(_record(12).replace("JobName=train", f"JobName={name}"))
    (job,) = _listing(alone).read(text, _rows(row(12))).values()
    assert (job.name, job.uid, job.state) == ("train", 1001, "RUNNING")
    assert (job.nodes, job.gpu_indices) == (("n1", "n2", "n3"), GPUS)
    assert alone.asked == [12]
    (job,) = _listing().read(text, _rows(row(12))).values()
    assert (job.name, job.state, job.nodes, job.gpus_known) == ("train", "RUNNING", ("n1", "n2", "n3"), False)


def test_a_copy_of_a_record_brings_no_job_back() -> None:
    """Job 11 has ended; another user's job shows its record, letter by letter."""
    text = _text(_record(12).replace("lr=0.1 first try", f"\n{RECORD}\n"))
    assert set(_listing().read(text, _rows(row(12)))) == {12}


def test_an_imitated_record_is_read_alone_once() -> None:
    alone = Alone({11: RECORD})
    listing = _listing(alone)
    text = _text(RECORD, _record(12).replace("Network=(null)", f"Network=x\n{FORGED}"))
    rows = _rows(row(11), row(12))
    for _ in range(3):
        found = listing.read(text, rows)
        assert found[11].gpu_indices == found[12].gpu_indices == GPUS
    assert alone.asked == [11]


def test_what_was_read_of_a_run_counts_while_its_record_is_imitated_ever_anew() -> None:
    alone = Alone()
    listing = _listing(alone)
    rows = _rows(row(11), row(12))
    listing.read(_text(RECORD, _record(12)), rows)
    for number in range(3):
        text = _text(RECORD, _record(12).replace("Network=(null)", f"Network={number}\n{FORGED}"))
        assert listing.read(text, rows)[11].gpu_indices == GPUS
    assert alone.asked == [11] * 3
    rows[11] = rows[11]._replace(restarts="3")
    found = listing.read(text, rows)[11]
    assert (found.restarts, found.gpus_known, found.gpu_indices) == (3, False, {}), "another run"


def test_however_many_records_are_imitated_some_are_read_in_a_reading() -> None:
    """All jobs are there from the first reading on; those that hold nodes are asked for first, and none is passed over for ever."""
    ids = range(100, 140)
    rows = _rows(*(row(job_id, state="PENDING" if job_id % 2 else "RUNNING") for job_id in ids))
    texts = {job_id: _record(job_id, JobState=rows[job_id].state) for job_id in ids}
    alone = Alone(texts)
    listing = _listing(alone)
    for reading in range(1, 6):
        # the forger changes its text at every reading
        found = listing.read(_text(*texts.values(), *(f"{text} {reading}" for text in texts.values())), rows)
        assert set(found) == set(ids)
        assert {found[job_id].state for job_id in ids} == {"PENDING", "RUNNING"}
        assert len(alone.asked) == MOST_ALONE * reading
    assert set(alone.asked[:20]) == {job_id for job_id in ids if job_id % 2 == 0}
    assert all(job.gpus_known for job in found.values() if job.state == "RUNNING")


def test_a_slow_slurmctld_is_not_asked_for_one_after_the_other() -> None:
    clock = iter(range(100))
    alone = Alone()
    listing = JobListing("c", lambda: 1795190000.0, alone, lambda: float(next(clock)))
    rows = _rows(row(11), row(12))
    assert set(listing.read("", rows)) == {11, 12}
    assert len(alone.asked) <= 1


@pytest.mark.slow
def test_a_million_forged_starts_of_a_record_do_not_cost_their_square() -> None:
    """800 jobs of 18 kB of text that holds nothing but the start of one record; numbers as long as they may be."""
    rows = _rows(row(11), *(row(job_id) for job_id in range(1000, 1800)))
    starts = "\nJobId=11 JobName=" * 1000
    text = _text(
        RECORD, *(f"{_record(job_id)}{starts}" for job_id in range(1000, 1800)), f"\nJobId={'9' * 9999} JobName=x"
    )
    began = time.process_time()
    found = _listing(Alone({11: RECORD})).read(text, rows)
    assert time.process_time() - began < 60, "what grew with the square took hours"
    assert found[11].gpu_indices == found[1799].gpu_indices == GPUS
    assert squeue.rows_of(lambda *argv, env: printed(env, row(10, task="1-5", array_id="10")), text)


RECORDS = {release: (DATA / f"job_{release}.txt").read_text().strip() for release in ("22.05", "24.11", "26.05")}
TEXTS = st.lists(
    st.one_of(
        st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20),
        st.sampled_from(["\n", "JobId=11 ", "\nJobId=12 ", " JobState=FAILED", " NodeList=n9", f"\n{FORGED}", " Command=", " RunTime=",
                         " UserId=root(0) GroupId=", " Account=", " QOS=", " MinCPUsNode=", " AllocNode:Sid=", "\x85", "\u2028"]),
    ),
    max_size=6,
).map("".join)  # fmt: skip


@pytest.mark.slow
@given(st.sampled_from(sorted(RECORDS)), *[TEXTS] * 5)
def test_no_text_of_a_user_changes_what_is_read_of_any_job(
    release: str, name: str, account: str, comment: str, network: str, other: str
) -> None:
    """Two jobs of a release, of which one's user writes any text. The other's record is read alone at worst."""
    tail = RECORDS[release].partition(" JobName=")[2]
    tail = tail[re.search(r" (?:SLUID=\S+ )?UserId=[^=]*\(\d+\) GroupId=", tail).start() :]  # type: ignore[union-attr]
    uid = re.search(r"UserId=[^(]*\((\d+)\)", tail)[1]  # type: ignore[index]
    alloc = re.search(r"AllocNode:Sid=([^:]+):", tail)[1]  # type: ignore[index]
    was = re.search(r" Account=(\S+) ", tail)[1]  # type: ignore[index]
    plain = {"uid": uid, "alloc_node": alloc, "account": was}

    def printed(job_id: int, name: str, account: str, comment: str, network: str) -> str:
        text = tail.replace(" Network=(null)", f" Network={network}")
        text = text.replace(f" Account={was} ", f" Account={account} ", 1)
        return f"JobId={job_id} JobName={name}{text} Comment={comment} MailUser={comment}"

    rows = _rows(row(11, **plain), row(12, **{**plain, "name": name, "account": account, "comment": comment}))
    texts = {11: printed(11, "train", was, other, "(null)"), 12: printed(12, name, account, comment, network)}
    alone = Alone(texts)
    found = _listing(alone).read(_text(*texts.values()), rows)
    assert set(found) == {11, 12}
    quiet = _listing().read(_text(printed(11, "train", was, "", "")), _rows(rows[11]))[11]
    assert found[11] == quiet
    mine = found[12]
    assert (mine.state, mine.nodes, mine.uid, mine.gpu_indices) == (
        quiet.state,
        quiet.nodes,
        quiet.uid,
        quiet.gpu_indices,
    )
    assert len(alone.asked) <= 2


def test_a_nodes_line_is_the_same_under_another_load() -> None:
    (line,) = records.nodes((DATA / "node_22.05.txt").read_text())["n1"]
    load = next(word for word in line.split() if word.startswith("CPULoad="))
    assert records.node_key(line) == records.node_key(line.replace(load, "CPULoad=99.99"))
    assert records.node_key(line) != records.node_key(line.replace("State=", "State=X"))


@dataclass
class Jobs:
    """Slurm's two listings of some jobs; without details that of the GPUs is missing."""

    records: dict[int, str]

    def plain(self) -> str:
        return "\n".join(re.sub(r"JOB_GRES=.*(?=MinCPUsNode)", "", text) for text in self.records.values())

    def details(self) -> str:
        return "\n".join(self.records.values())

    def row(self, job_id: int) -> SqueueRow:
        words = dict(word.partition("=")[::2] for word in self.records[job_id].split())
        return row(
            job_id, name=words["JobName"], state=words["JobState"], restarts=words["Restarts"], nodes=words["NodeList"]
        )


class Reader:
    """As :class:`SlurmCommands` reads; ``asked`` records the calls."""

    def __init__(self, slurm: Jobs) -> None:
        self.slurm = slurm
        self.listing, self.stillness = _listing(), Stillness()
        self.asked = ""

    def read(self) -> Mapping[int, Job]:
        self.asked = ""
        plain = ""
        if self.stillness.may_last:
            self.asked, plain = "plain ", self.slurm.plain()
        if (still := self.stillness.jobs(plain)) is not None:
            return still
        self.asked += "details"
        text = self.slurm.details()
        jobs = self.listing.read(text, {job_id: self.slurm.row(job_id) for job_id in self.slurm.records})
        self.stillness.read(jobs, text, plain)
        return jobs


def test_while_nothing_changes_the_listing_without_details_is_enough() -> None:
    slurm = Jobs({11: RECORD, 12: _record(12)})
    reader = Reader(slurm)
    first = reader.read()
    assert first[11].gpu_indices == {"n1": {0, 3}, "n2": {0, 3}, "n3": {4, 5}}
    asked = [(reader.asked, reader.read() == first, reader.asked)[1:] for _ in range(4)]
    assert asked == [(True, "details"), (True, "plain details"), (True, "plain "), (True, "plain ")]
    slurm.records = {11: _record(11, RunTime="1-00:00:00"), 12: _record(12, RunTime="1-00:00:00")}
    assert (reader.read(), reader.asked) == (first, "plain ")


@pytest.mark.parametrize(
    "then",
    [
        {11: RECORD, 12: _record(12, JobState="COMPLETING")},
        {11: RECORD, 12: _record(12, JobName="other")},
        {11: RECORD, 12: _record(12, Restarts="3")},
        {11: RECORD},
        {11: RECORD, 12: _record(12), 13: _record(13)},
        {11: RECORD, 12: _record(12, NodeList="n[4-6]")},
    ],
)
def test_whatever_changes_is_read_with_its_details(then: dict[int, str]) -> None:
    reader = Reader(Jobs({11: RECORD, 12: _record(12)}))
    for _ in range(5):
        reader.read()
    reader.slurm.records = then
    reader.read()
    assert reader.asked == "plain details"


def test_a_change_while_both_listings_are_read_is_not_taken_for_stillness() -> None:
    """The listing without details counts only where the jobs were the same before and after it."""
    slurm = Jobs({11: RECORD, 12: _record(12)})
    reader = Reader(slurm)
    for _ in range(2):
        reader.read()
    slurm.records = {11: RECORD}
    gone = slurm.plain()
    slurm.records = {11: RECORD, 12: _record(12)}
    jobs = reader.read()
    reader.stillness.read({}, "", gone)
    reader.stillness.read(jobs, slurm.details(), gone)
    assert reader.stillness.jobs(gone) is None


@pytest.mark.parametrize("written", ["n1,,n2", "n1 n2", ",n2,n1 "])
def test_lists_of_nodes_as_users_write_them(written: str) -> None:
    record = RECORD.replace("ReqNodeList=(null)", f"ReqNodeList={written}").replace(
        "ExcNodeList=n[7,9]", f"ExcNodeList={written}"
    )
    (job,) = _listing().read(_text(record), _rows(row(11)._replace(required=written))).values()
    assert (job.required_nodes, job.excluded_nodes, job.unreadable) == (("n1", "n2"), ("n1", "n2"), "")


def test_a_list_that_only_slurm_can_read_is_unknown_and_hides_no_job(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    record = RECORD.replace("ReqNodeList=(null)", "ReqNodeList=n[1-03]").replace(
        "ExcNodeList=n[7,9]", "ExcNodeList=[n1"
    )
    rows = _rows(row(11)._replace(required="n[1-03]"), row(12))
    first, second = _listing().read(_text(record, _record(12)), rows).values()
    assert (first.state, first.nodes, first.gpu_indices) == ("RUNNING", ("n1", "n2", "n3"), GPUS)
    assert (first.required_nodes, first.excluded_nodes) == ((), ())
    assert first.unreadable == "ReqNodeList=n[1-03] ExcNodeList=[n1"
    assert (second.excluded_nodes, second.unreadable) == (("n7", "n9"), "")
    assert caplog.text.count("event=node_lists_unreadable jobs=1 first=11") == 1
