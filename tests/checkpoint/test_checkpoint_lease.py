"""An elastic job's right to write: growing quorums, groups that were cut off, a second job, the last one to leave."""

from __future__ import annotations

import multiprocessing
import os
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast_checkpoint import FencedOff, TakenOver, latest, lease, survey_all
from holdfast_checkpoint.base.manifest import CheckpointManifest, folder_name
from holdfast_checkpoint.commit import hand_in, publish
from holdfast_checkpoint.fence import FOLDER
from holdfast_checkpoint.lease import Term
from support.killing import killed_at

Build = Any


def term(quorum_id: int, began: int = 0, room: str = "A", **more: Any) -> Term:
    return Term(room, quorum_id, began, **more)


def save(root: Path, t: Term, step: int, member: str = "0~1.0", content: str = "") -> None:
    lease.take(str(root), t, member)
    publish_only(root, t, step, member, content)


def publish_only(root: Path, t: Term, step: int, member: str = "0~1.0", content: str = "") -> None:
    folder = root / folder_name(step, t.run)
    folder.mkdir(exist_ok=True)
    (folder / "state").write_text(content or f"{t.run} {step}")
    files = hand_in(folder, ["state"], step, t.run, 0, 1)
    publish(folder, CheckpointManifest(step, t.run, 1, files), lambda: lease.check(str(root), t, member))


def test_a_world_saves_across_its_quorums(build: Build) -> None:
    root = build.root
    lease.start(str(root), term(3), "0~1.0")
    save(root, term(3), 10)
    save(root, term(3), 20)
    save(root, term(5, began=24), 30, member="1~2.0")
    save(root, term(6, began=31), 40)
    found = survey_all(str(root))
    assert [(c.step, c.complete) for c in found.candidates] == [(40, True), (30, True), (20, True), (10, True)]


def test_an_older_quorum_can_commit_no_more(build: Build) -> None:
    root = build.root
    lease.start(str(root), term(3), "0~1.0")
    save(root, term(3), 10)
    save(root, term(4, began=12), 20, member="1~2.0")
    with pytest.raises(FencedOff, match="newer quorum"):
        publish_only(root, term(3), 14)
    with pytest.raises(FencedOff):
        lease.take(str(root), term(3), "0~1.0")
    newest = latest(str(root))
    assert newest is not None
    assert newest.step == 20


def test_what_slips_through_between_look_and_rename_does_not_count(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, real = build.root, os.rename
    lease.start(str(root), term(3), "0~1.0")

    def rename(source: Any, target: Any) -> None:
        if str(target).endswith("MANIFEST.json"):
            monkeypatch.setattr(os, "rename", real)
            lease.take(str(root), term(4, began=12), "1~2.0")
        real(source, target)

    monkeypatch.setattr(os, "rename", rename)
    publish_only(root, term(3), 14)
    assert [c.verdict.value for c in survey_all(str(root)).candidates] == ["fenced"]
    assert latest(str(root)) is None


def test_two_members_of_one_quorum_never_both_write(build: Build) -> None:
    root = str(build.root)
    lease.start(root, term(3), "0~1.0")
    lease.take(root, term(3), "0~1.0")
    with pytest.raises(FencedOff, match="writes for"):
        lease.take(root, term(3), "0~1.1")


def test_a_start_in_a_quorum_that_is_not_the_newest_is_refused(build: Build) -> None:
    root = str(build.root)
    lease.start(root, term(8), "0~1.0")
    with pytest.raises(FencedOff):
        lease.start(root, term(5), "1~2.0")
    lease.take(root, term(8), "0~1.0")


def test_another_job_that_starts_takes_over_and_the_first_learns_it_for_good(build: Build) -> None:
    root = build.root
    lease.start(str(root), term(3), "0~1.0")
    save(root, term(3), 10)
    lease.start(str(root), term(1, began=10, room="B"), "0~9.0")
    for quorum_id in (3, 4):  # a new quorum is no way to come back
        with pytest.raises(TakenOver, match="another job"):
            save(root, term(quorum_id, began=10), 20)
    save(root, term(1, began=10, room="B"), 20, member="0~9.0")
    lease.start(str(root), term(9, began=20), "0~1.1")  # a start is
    save(root, term(9, began=20), 30, member="0~1.1")


def test_a_world_whose_quorum_counts_anew_goes_on_under_another_name(build: Build) -> None:
    root = build.root
    lease.start(str(root), term(57), "0~1.0")
    save(root, term(57), 10)
    with pytest.raises(FencedOff):
        save(root, term(1, began=12), 20)
    save(root, term(1, began=12, room="A2", formerly="A"), 20)
    with pytest.raises(FencedOff):
        publish_only(root, term(57), 14)
    found = latest(str(root))
    assert found is not None
    assert found.step == 20


def test_fences_that_are_gone_stop_a_world_that_goes_on(build: Build) -> None:
    root = build.root
    lease.start(str(root), term(3), "0~1.0")
    shutil.rmtree(root / FOLDER)
    with pytest.raises(FencedOff, match="are gone"):
        save(root, term(4), 10)


def test_the_last_who_leaves_is_told_so_and_one_alone_gets_the_last_term(build: Build) -> None:
    root = str(build.root)
    lease.start(root, term(3), "0~1.0")
    assert [lease.left(root, term(3), rank, 3) for rank in (1, 0, 2)] == [False, False, True]
    assert not lease.left(root, term(4), 0, 2)
    save(build.root, term(3, over=True), 12, member="2~1.0")
    with pytest.raises(FencedOff):
        lease.take(root, term(3, over=True), "0~1.0")
    lease.start(root, term(5, began=12), "0~2.0")
    lease.take(root, term(6, began=20), "0~2.0")
    assert not [name for name in os.listdir(build.root / FOLDER) if name.startswith("left-")]


def test_another_world_that_is_alive_is_seen_and_a_dead_one_is_not(build: Build) -> None:
    root = str(build.root)
    lease.start(root, term(3), "0~1.0")
    mine, counts = frozenset({"B"}), iter(range(100))

    def seen(moves: bool) -> str | None:
        def sleep(_: float) -> None:
            if moves:
                lease.show_life(root, "A", next(counts))

        return lease.alive_elsewhere(root, mine, 1, sleep)

    assert seen(moves=False) is None
    lease.show_life(root, "A", next(counts))
    assert seen(moves=False) is None
    assert seen(moves=True) == "A"
    lease.show_life(root, "A", 200, ended=True)
    assert seen(moves=False) is None
    lease.show_life(root, "B", 1)
    assert lease.alive_elsewhere(root, mine, 1, lambda _: pytest.fail("one's own sign is not watched")) is None


def world_once(root: Path, quorum_id: int, step: int) -> None:
    t = term(quorum_id, began=step - 1)
    lease.start(str(root), t, f"0~{quorum_id}.0")
    save(root, t, step, member=f"0~{quorum_id}.0", content=f"state of {step}")


@pytest.mark.slow
def test_killed_before_every_system_call_what_was_complete_stays_and_the_next_world_goes_on(
    build: Build, tmp_path: Path
) -> None:
    world_once(build.root, 1, 1)
    call, seen, again = 0, set(), True
    while again:
        call += 1
        root = tmp_path / f"killed-at-{call}"
        shutil.copytree(build.root, root)
        again = killed_at(call, partial(world_once, root, 2, 2))
        found = latest(str(root))
        assert found is not None
        assert found.step in (1, 2), f"after call {call}"
        assert (Path(found.path) / "state").read_text() == f"state of {found.step}"
        seen.add(found.step)
        world_once(root, 3, 3)
        after = latest(str(root))
        assert after is not None
        assert after.step == 3, f"after call {call}"
    assert call > 30, "the walk met few boundaries"
    assert seen == {1, 2}


def _race(root: Path, quorum_id: int, barrier: Any, results: Any) -> None:
    t = term(quorum_id, began=1)
    barrier.wait()
    try:
        save(root, t, 10, member=f"{quorum_id}~1.0")
    except FencedOff:
        results.put((quorum_id, False))
    else:
        results.put((quorum_id, True))


def test_of_worlds_that_race_the_newest_quorum_alone_is_sure_to_publish(build: Build) -> None:
    lease.start(str(build.root), term(1), "0~1.0")
    context = multiprocessing.get_context("fork")
    results, barrier = context.SimpleQueue(), context.Barrier(4)
    worlds = [context.Process(target=_race, args=(build.root, q, barrier, results)) for q in (2, 3, 4, 5)]
    for world in worlds:
        world.start()
    outcome = dict(results.get() for _ in worlds)
    for world in worlds:
        world.join()
    assert outcome[5]
    found = latest(str(build.root))
    assert found is not None
    assert str(found.run) == "jA-r5.0.0"


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["form", "take", "publish"]), st.integers(0, 3)), max_size=25))
def test_what_counts_is_one_line_of_states_whatever_order_worlds_act_in(
    tmp_path_factory: pytest.TempPathFactory, acts: list[tuple[str, int]]
) -> None:
    """Up to four members hold terms of ever newer quorums, act late and out of turn. No member of an older quorum ever
    publishes after a newer one took the directory, and what counts of it is never newer than that one's beginning."""
    root = tmp_path_factory.mktemp("line")
    lease.start(str(root), term(1), "start")
    newest, step = 1, 0
    held, began = {1}, {1: 0}
    terms: dict[int, Term] = {}
    for act, who in acts:
        if act == "form":
            newest += 1
            began[newest] = step
            terms[who] = term(newest, began=step)
        elif who in terms:
            step += 1
            t = terms[who]
            try:
                if act == "take":
                    lease.take(str(root), t, str(who))
                    held.add(t.quorum_id)
                else:
                    publish_only(root, t, step, str(who))
            except FencedOff:
                assert act == "publish" or t.quorum_id < max(held)
            else:
                assert t.quorum_id == max(held)
    for candidate in survey_all(str(root)).candidates:
        if candidate.complete and candidate.run is not None and candidate.step is not None:
            own = candidate.run.generation[0]
            assert own in held
            assert all(candidate.step <= began[other] for other in held if other > own)
