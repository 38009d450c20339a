"""A record that reads as before is not parsed again, and nothing that a user writes passes for one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.slurm import parse, records
from holdfast.slurm.job_listing import JobListing
from holdfast.slurm.records import OwnTexts

RECORD = (Path(__file__).parent / "data" / "job_22.05.txt").read_text().strip()
OWN = OwnTexts("train", "lab")


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
    assert listing.read(renamed, {11: OwnTexts("other", "lab")}, "c").jobs[11].name == "other"
    assert listing.read(renamed, {11: OwnTexts("third", "lab")}, "c").jobs[11].name == "third"
    assert parsed == ["11"] * 3


def test_a_copy_of_a_record_in_a_users_text_brings_no_job_back() -> None:
    """Job 11 has ended; another user's job shows its record, letter by letter, within its comment or its name."""
    for name, comment in (("x", f"\n{RECORD}\n"), (f"x\n{RECORD}\n", "")):
        listing = JobListing()
        own = {12: OwnTexts(name, "lab")}
        forged = _record(12).replace("JobName=train", f"JobName={name}").replace("lr=0.1 first try", comment)
        listing.read(_text(RECORD, forged), {11: OWN, **own}, "c")
        for _ in range(2):
            assert listing.unchanged(_text(forged)) is None
            assert 11 not in listing.read(_text(forged), own, "c").jobs


def test_a_text_that_may_forge_a_record_is_cut_before_the_records_are_told_apart() -> None:
    name = f"x\n{RECORD}"
    text = _text(RECORD, _record(12).replace("JobName=train", f"JobName={name}"))
    texts = {11: OWN, 12: OwnTexts(name, "lab")}
    assert texts[12].may_forge
    assert not OWN.may_forge
    listed = JobListing().read(text, texts, "c")
    assert (set(listed.jobs), listed.doubtful) == ({11, 12}, frozenset())


def test_a_nodes_line_is_the_same_under_another_load() -> None:
    line = next(iter(records.lines((Path(__file__).parent / "data" / "node_22.05.txt").read_text())))
    load = next(word for word in line.split() if word.startswith("CPULoad="))
    assert records.node_key(line) == records.node_key(line.replace(load, "CPULoad=99.99"))
    assert records.node_key(line) != records.node_key(line.replace("State=", "State=X"))
