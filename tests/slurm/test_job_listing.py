"""A record that reads as before is not parsed again, and nothing that a user writes passes for one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.slurm import parse, records
from holdfast.slurm.job_listing import JobListing
from holdfast.slurm.records import OwnTexts

RECORD = (Path(__file__).parent / "data" / "job_22.05.txt").read_text().strip()
OWN = OwnTexts("train", "lab", 1001)


def _record(job_id: int, **changed: str) -> str:
    text = RECORD.replace("JobId=11", f"JobId={job_id}")
    for key, value in changed.items():
        old = next(word for word in text.split() if word.startswith(f"{key}="))
        text = text.replace(old, f"{key}={value}", 1)
    return text


def _text(*texts: str) -> str:
    return "".join(f"{text}\n" for text in texts)


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Ids of the records that were parsed."""
    ids: list[str] = []
    plain: Callable[..., object] = parse.job

    def job(record: str, cluster: str, own: OwnTexts) -> object:
        ids.append(record.split(maxsplit=1)[0].removeprefix("JobId="))
        return plain(record, cluster, own)

    monkeypatch.setattr(parse, "job", job)
    return ids


def test_only_what_has_changed_is_parsed(parsed: list[str]) -> None:
    listing = JobListing()
    texts = dict.fromkeys((11, 12, 13), OWN)
    assert listing.unchanged(_text(RECORD)) is None
    first = listing.read(_text(RECORD, _record(12), _record(13)), texts, "c")
    assert parsed == ["11", "12", "13"]
    later = _text(_record(11, RunTime="00:09:59"), _record(12, RunTime="00:09:59"), _record(13, RunTime="00:09:59"))
    assert listing.unchanged(later) == first.jobs, "time passes, and nothing else has changed"
    ended = _text(RECORD, _record(12, JobState="COMPLETING"), _record(13))
    assert listing.unchanged(ended) is None
    second = listing.read(ended, texts, "c")
    assert second.jobs[12].state == "COMPLETING"
    assert second.jobs[13] is first.jobs[13]
    assert parsed == ["11", "12", "13", "12"]
    assert listing.unchanged(_text(RECORD)) == {11: first.jobs[11]}, "jobs that are gone need no question"
    assert listing.unchanged("No jobs in the system\n") == {}


def test_a_job_that_was_renamed_is_parsed_again(parsed: list[str]) -> None:
    listing = JobListing()
    listing.read(_text(RECORD), {11: OWN}, "c")
    renamed = _text(_record(11, JobName="other"))
    assert listing.unchanged(renamed) is None
    assert listing.read(renamed, {11: OwnTexts("other", "lab", 1001)}, "c").jobs[11].name == "other"
    again = _text(_record(11, JobName="third"))
    assert listing.read(again, {11: OwnTexts("third", "lab", 1001)}, "c").jobs[11].name == "third"
    assert parsed == ["11"] * 3


AFTER_NAME = RECORD.partition("JobName=train")[2].partition(" Command=")[0].replace("alice(1001)", "root(0)")


@pytest.mark.parametrize(
    "name",
    [
        f"y{AFTER_NAME} Command=/y",
        f"x{AFTER_NAME} Command=/y",
        f"x{AFTER_NAME.replace('root(0)', 'alice(1001)').replace('n[1-3]', 'n9')} Command=/y",
        f"x SLUID=1 Partition=big{AFTER_NAME} Command=/y",
        "x SLUID=1 Partition=big",
        "y",
    ],
)
def test_a_job_that_is_renamed_between_two_readings_is_doubtful(name: str) -> None:
    """It was called ``name`` when the records were read, and ``x`` when the names were; then its record is not remembered either."""
    listing = JobListing()
    text = _text(RECORD.replace("JobName=train", f"JobName={name}"), _record(12))
    listed = listing.read(text, {11: OwnTexts("x", "lab", 1001), 12: OWN}, "c")
    assert (set(listed.jobs), listed.doubtful) == ({12}, frozenset({11}))
    assert listing.unchanged(text) is None


@pytest.mark.parametrize(
    "account", ["other", f"lab{AFTER_NAME.partition('Account=lab')[2]} Command=/y", "lab QOS=x Partition=big"]
)
def test_an_account_that_is_changed_between_two_readings_makes_the_record_doubtful(account: str) -> None:
    text = _text(RECORD.replace("Account=lab", f"Account={account}"))
    assert JobListing().read(text, {11: OWN}, "c").doubtful == {11}


def test_a_record_that_a_rename_forged_is_that_of_no_job_submitted_in_between() -> None:
    """Job 11 was named with two records when the records were read; 12 and 13 were submitted before the names were."""
    forged = f"x{AFTER_NAME} Command=/y\nJobId=12 JobName=train{AFTER_NAME} Command=/y\nJobId=13 JobName=train"
    texts = {11: OwnTexts("x", "lab", 1001), 12: OwnTexts("train", "lab", 1002), 13: OWN}
    listed = JobListing().read(_text(RECORD.replace("JobName=train", f"JobName={forged}")), texts, "c")
    assert set(listed.jobs) <= {13}, "of the user that Slurm shows, and of no other"


def test_a_copy_of_a_record_in_a_users_text_brings_no_job_back() -> None:
    """Job 11 has ended; another user's job shows its record, letter by letter, within its comment or its name."""
    for name, comment in (("x", f"\n{RECORD}\n"), (f"x\n{RECORD}\n", "")):
        listing = JobListing()
        own = {12: OwnTexts(name, "lab", 1001)}
        forged = _record(12).replace("JobName=train", f"JobName={name}").replace("lr=0.1 first try", comment)
        listing.read(_text(RECORD, forged), {11: OWN, **own}, "c")
        for _ in range(2):
            assert listing.unchanged(_text(forged)) is None
            assert 11 not in listing.read(_text(forged), own, "c").jobs


def test_a_text_that_may_forge_a_record_is_cut_before_the_records_are_told_apart() -> None:
    name = f"x\n{RECORD}"
    text = _text(RECORD, _record(12).replace("JobName=train", f"JobName={name}"))
    texts = {11: OWN, 12: OwnTexts(name, "lab", 1001)}
    assert texts[12].may_forge
    assert not OWN.may_forge
    listed = JobListing().read(text, texts, "c")
    assert (set(listed.jobs), listed.doubtful) == ({11, 12}, frozenset())


def test_what_comes_before_a_record_that_appears_twice_is_doubtful() -> None:
    name = f"x{AFTER_NAME.replace('root(0)', 'alice(1001)')} Command=/y\nJobId=13 JobName=train"
    texts = {11: OwnTexts("x", "lab", 1001), 12: OWN, 13: OWN}
    forged = RECORD.replace("JobName=train", f"JobName={name}")
    listed = JobListing().read(_text(forged, _record(12), _record(13)), texts, "c")
    assert (set(listed.jobs), listed.doubtful) == (set(), frozenset({11, 12, 13}))


def test_a_nodes_line_is_the_same_under_another_load() -> None:
    line = next(iter(records.lines((Path(__file__).parent / "data" / "node_22.05.txt").read_text())))
    load = next(word for word in line.split() if word.startswith("CPULoad="))
    assert records.node_key(line) == records.node_key(line.replace(load, "CPULoad=99.99"))
    assert records.node_key(line) != records.node_key(line.replace("State=", "State=X"))
