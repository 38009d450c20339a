"""The outbox: on disk before it counts, bounded, sent under names that never change their content."""

from __future__ import annotations

import json
import sqlite3
import time
from pathlib import Path

import pytest

from holdfast.agent.sending.memory import FILE, AgentMemory
from holdfast.agent.sending.outbox import Batch, Outbox, OutboxItem


def finding(code: str, size: int = 0) -> OutboxItem:
    return OutboxItem({"kind": "finding", "check": "gpu.xid", "code": code, "summary": "x" * size}, time.monotonic())


def clear(component: str) -> OutboxItem:
    return OutboxItem({"kind": "clear", "check": "gpu.ecc", "component": component}, time.monotonic())


def progress(job: int, step: int) -> OutboxItem:
    body = {"kind": "statement", "statement": "progress", "job_id": job, "step": step}
    return OutboxItem(body, time.monotonic(), key=f"progress/{job}")


def said(uid: int, job: int, kind: str = "checkpoint.saved", size: int = 0) -> OutboxItem:
    body = {"kind": "statement", "statement": kind, "job_id": job, "uid": uid, "path": "/" + "é" * size}
    return OutboxItem(body, time.monotonic(), key=f"progress/{job}/0" if kind == "progress" else "")


def jobs(batch: Batch | None) -> list[int]:
    assert batch is not None
    return [item["job_id"] for item in batch.items]


def codes(batch: Batch | None) -> list[str]:
    assert batch is not None
    return [str(item.get("code", item["kind"])) for item in batch.items]


def outbox(folder: Path, boot_id: str = "boot-1", max_items: int = 100, max_bytes: int = 1 << 20) -> Outbox:
    return Outbox(AgentMemory(folder), boot_id, max_items=max_items, max_bytes=max_bytes)


def test_items_survive_the_process_and_keep_the_outbox_id(tmp_path: Path) -> None:
    first = outbox(tmp_path)
    assert first.put([finding("79")])
    again = outbox(tmp_path)
    assert again.id == first.id
    assert codes(again.next_batch()) == ["79"]


def test_a_text_that_is_not_unicode_is_kept_without_what_cannot_be_sent(tmp_path: Path) -> None:
    box = outbox(tmp_path)
    assert box.put([OutboxItem({"kind": "finding", "check": "site.x", "code": "half \ud800"}, time.monotonic())])
    assert codes(box.next_batch()) == ["half ?"]


def test_a_report_keeps_its_name_and_items_until_it_is_answered_also_over_a_restart(tmp_path: Path) -> None:
    box = outbox(tmp_path)
    box.put([finding("1"), finding("2")])
    sent = box.next_batch()
    assert sent is not None
    box.put([finding("3")])
    for later in (box, outbox(tmp_path)):
        batch = later.next_batch()
        assert batch is not None
        assert (batch.sequence, codes(batch)) == (sent.sequence, ["1", "2"])
    box.accepted(sent)
    rest = box.next_batch()
    assert codes(rest) == ["3"]
    assert rest is not None
    assert rest.sequence > sent.sequence


def test_faults_go_before_everything_else_and_never_share_a_report_with_it(tmp_path: Path) -> None:
    box = outbox(tmp_path)
    box.put([progress(1, 5), finding("79"), progress(2, 5)])
    first = box.next_batch()
    assert codes(first) == ["79"]
    assert first is not None
    box.accepted(first)
    assert codes(box.next_batch()) == ["statement", "statement"]


def test_a_report_stays_below_the_size_that_the_api_takes(tmp_path: Path) -> None:
    box = outbox(tmp_path, max_bytes=1 << 24)
    box.put([finding(str(n), 400_000) for n in range(5)])
    seen: list[str] = []
    while (batch := box.next_batch()) is not None:
        assert len(json.dumps(batch.items)) < 1_000_000
        seen += codes(batch)
        box.accepted(batch)
    assert seen == ["0", "1", "2", "3", "4"]


def test_only_the_latest_progress_of_a_job_waits_but_not_in_place_of_one_already_sent(tmp_path: Path) -> None:
    box = outbox(tmp_path)
    for step in range(5):
        box.put([progress(7, step)], durable=False)
    assert len(box) == 1
    sent = box.next_batch()
    box.put([progress(7, 9)])
    again = box.next_batch()
    assert sent is not None
    assert again is not None
    assert [item["step"] for item in again.items] == [4]
    box.accepted(again)
    last = box.next_batch()
    assert last is not None
    assert [item["step"] for item in last.items] == [9]


def test_when_full_progress_goes_first_then_clears_and_findings_never(tmp_path: Path) -> None:
    box = outbox(tmp_path, max_items=4)
    box.put([progress(1, 1), clear("a"), clear("b"), finding("1")])
    box.put([finding("2"), finding("3")])
    assert len(box) == 4
    assert codes(box.next_batch()) == ["clear", "1", "2", "3"]
    box.put([finding(str(n)) for n in range(10, 20)])
    assert len(box) == 13  # only findings are left: over the limit rather than losing one


def test_of_a_fault_that_is_told_again_and_again_the_first_word_is_kept(tmp_path: Path) -> None:
    box = outbox(tmp_path, max_items=5)
    box.put([clear("a"), finding("79"), *(finding("13") for _ in range(50)), finding("48")])
    batch = box.next_batch()
    found = codes(batch)
    assert (len(found), found[0], found[-1]) == (5, "79", "48")
    assert found.count("13") == 3


def test_age_grows_while_an_item_waits_and_is_not_lost_over_a_boot(tmp_path: Path) -> None:
    item = OutboxItem({"kind": "finding", "code": "79"}, time.monotonic() - 30)
    outbox(tmp_path).put([item])
    for boot_id in ("boot-1", "boot-2"):
        batch = outbox(tmp_path, boot_id).next_batch()
        assert batch is not None
        assert batch.boot_id == "boot-1"
        assert batch.items[0]["age_s"] == pytest.approx(30, abs=2)


def test_items_of_two_boots_never_share_a_report(tmp_path: Path) -> None:
    outbox(tmp_path, "boot-1").put([finding("1")])
    box = outbox(tmp_path, "boot-2")
    box.put([finding("2")])
    first = box.next_batch()
    assert codes(first) == ["1"]
    assert first is not None
    box.accepted(first)
    second = box.next_batch()
    assert second is not None
    assert (second.boot_id, codes(second)) == ("boot-2", ["2"])


@pytest.mark.parametrize("cut", [1, 100, 4000, 4200])
def test_a_torn_log_costs_at_most_the_last_item(tmp_path: Path, cut: int) -> None:
    box = outbox(tmp_path)
    box.put([finding("1")])
    box.put([finding("2")])
    torn = tmp_path / "torn"
    torn.mkdir()
    for name in (FILE, f"{FILE}-wal"):
        (torn / name).write_bytes((tmp_path / name).read_bytes())
    wal = torn / f"{FILE}-wal"
    wal.write_bytes(wal.read_bytes()[:-cut])
    again = outbox(torn)
    assert codes(again.next_batch()) in (["1"], ["1", "2"])
    again.put([finding("3")])


def test_a_damaged_file_is_put_aside_and_a_new_outbox_begun(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    old = outbox(tmp_path)
    (tmp_path / FILE).write_bytes(b"no database at all" * 1000)
    (tmp_path / f"{FILE}-wal").unlink()
    box = outbox(tmp_path)
    assert box.id != old.id
    assert box.put([finding("79")])
    assert "event=memory_unreadable" in caplog.text
    assert list(tmp_path.glob("*.unreadable-*"))


def test_a_full_disk_keeps_items_in_memory_says_so_and_still_sends(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    memory = AgentMemory(tmp_path)
    box = Outbox(memory, "boot-1")
    box.put([finding("1")])
    limit = memory.read("PRAGMA page_count")[0][0]
    memory.read(f"PRAGMA max_page_count={limit}")
    filler = [finding(str(n), 3000) for n in range(2, 40)]
    assert not box.put(filler)
    assert f"event=outbox_disk_refused path={memory.path} " in caplog.text, "an operator reads which disk is full"
    assert len(box) == 39
    seen: list[str] = []
    while (batch := box.next_batch()) is not None and len(seen) < 100:
        seen += codes(batch)
        box.accepted(batch)
    assert seen == [str(n) for n in range(1, 40)]
    memory.read("PRAGMA max_page_count=100000")
    assert box.put([finding("99")])
    assert len(box) == 1


def test_when_even_sealing_fails_the_oldest_is_sent_alone_and_not_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = AgentMemory(tmp_path)
    box = Outbox(memory, "boot-1")
    box.put([finding("1"), finding("2")])

    def refuse(**_options: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(memory, "transaction", refuse)
    seen: list[str] = []
    while (batch := box.next_batch()) is not None:
        seen += codes(batch)
        box.accepted(batch)
    assert seen == ["1", "2"]
    monkeypatch.undo()
    assert box.next_batch() is None
    assert box.put([finding("3")])
    assert len(box) == 1


def test_facts_and_items_are_one_transaction(tmp_path: Path) -> None:
    memory = AgentMemory(tmp_path)
    box = Outbox(memory, "boot-1")
    unserialisable = OutboxItem({"kind": "finding", "bad": object()}, 0.0)
    with pytest.raises(TypeError):
        box.put([finding("1"), unserialisable], {"cursor": "5"})
    assert memory.get("cursor") is None
    assert box.next_batch() is None
    box.put([finding("1")], {"cursor": "5"})
    assert memory.get("cursor") == "5"


def test_a_wall_clock_that_jumps_changes_no_age(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    box = outbox(tmp_path)
    box.put([OutboxItem({"kind": "finding", "code": "79"}, time.monotonic() - 5)])
    real_s = time.time()
    for jump_s in (-86400.0, 86400.0):
        monkeypatch.setattr("holdfast.agent.sending.outbox.time.time", lambda jump_s=jump_s: real_s + jump_s)
        batch = box.next_batch()
        assert batch is not None
        assert batch.items[0]["age_s"] == pytest.approx(5, abs=2)


def test_an_empty_outbox_does_not_ask_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At each heartbeat the sender asks for what there is to send."""
    box = outbox(tmp_path)
    monkeypatch.setattr(box, "_choose", lambda _db: pytest.fail("the disk was asked"))
    assert box.next_batch() is None


# Reports of users


def test_a_users_flood_keeps_no_other_users_word_from_the_next_report(tmp_path: Path) -> None:
    box = outbox(tmp_path, max_items=2000, max_bytes=1 << 24)
    box.put([said(65534, 6, size=3700) for _ in range(400)])
    box.put([said(1000, 7, "progress"), said(1000, 7), said(1001, 8)])
    first = jobs(box.next_batch())
    assert [first.count(job) for job in (7, 8)] == [2, 1]
    assert first.count(6) > 10


@pytest.mark.slow
def test_a_users_flood_takes_no_other_users_word_out_of_a_full_outbox(tmp_path: Path) -> None:
    box = outbox(tmp_path, max_items=1000, max_bytes=200_000)
    box.put([said(1000, 7, "checkpoint.register"), said(1000, 7, "progress")])
    for _ in range(20):
        box.put([said(65534, 6, size=2000) for _ in range(10)])
        box.put([said(1000, 7, "progress")])
    for _ in range(30):
        box.put([said(65534, 6, "checkpoint.resumed") for _ in range(100)])
    assert len(box) <= 1000
    first = box.next_batch()
    assert first is not None
    assert [i["statement"] for i in first.items if i["uid"] == 1000] == ["checkpoint.register", "progress"]


def test_of_a_users_own_flood_the_oldest_go_and_progress_last(tmp_path: Path) -> None:
    box = outbox(tmp_path, max_items=16)
    box.put([said(1000, 7, "progress"), *(said(1000, 100 + n) for n in range(20))])
    assert jobs(box.next_batch()) == [7, *range(106, 120)]


def test_progress_keeps_its_place_while_newer_words_replace_it(tmp_path: Path) -> None:
    box = outbox(tmp_path, max_items=1000)
    box.put([said(1000, 7, "progress")])
    for number in range(300):
        box.put([said(1000, 1000 + number), said(1000, 7, "progress")], durable=False)
    assert jobs(box.next_batch())[0] == 7


def test_it_says_how_long_progress_waits_whatever_replaces_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    box = outbox(tmp_path)
    assert box.words_wait_s() == 0
    box.put([said(1000, 7)])
    assert box.words_wait_s() == 0
    now_s = time.monotonic()
    for later_s in range(50):
        monkeypatch.setattr("time.monotonic", lambda later_s=later_s: now_s + later_s)
        box.put([said(1000, 7, "progress")])
    assert box.words_wait_s() == pytest.approx(49, abs=1)
    batch = box.next_batch()
    assert batch is not None
    assert batch.items[-1]["age_s"] == pytest.approx(0, abs=1)
    box.put([said(1000, 7, "progress")])
    box.accepted(batch)
    assert box.words_wait_s() == pytest.approx(0, abs=1)


def test_while_the_disk_refuses_a_users_flood_takes_no_other_users_word_out_of_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = AgentMemory(tmp_path)
    box = Outbox(memory, "boot-1")

    def refuse(**_options: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(memory, "transaction", refuse)
    box.put([said(1000, 7)])
    for _ in range(12):
        box.put([said(65534, 6) for _ in range(100)])
    monkeypatch.undo()
    box.put([])
    assert len(box) == 1000
    assert 7 in jobs(box.next_batch())


def test_a_refused_report_is_halved(tmp_path: Path) -> None:
    box = outbox(tmp_path)
    box.put([finding(str(n)) for n in range(5)])
    whole = box.next_batch()
    assert whole is not None
    assert box.split(whole)
    box.put([finding("later")])
    found: list[list[str]] = []
    while (batch := outbox(tmp_path).next_batch()) is not None:
        found.append(codes(batch))
        box.accepted(batch)
    assert found == [["0", "1"], ["2", "3", "4"], ["later"]]
