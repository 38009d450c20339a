"""Which of several spares is chosen: near the job, like the node that it replaces, no lemon, not under test."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from holdfast.model.background import Lemon, Topology
from holdfast.model.book import NodeRecord
from support.simulated import Site

SWITCHES: dict[str, tuple[str, ...]] = {
    "n1": ("leaf1", "root"),
    "n2": ("leaf1", "root"),
    "n3": ("leaf2", "root"),
    "n4": ("leaf2", "root"),
    "n5": ("leaf1", "root"),
    "n6": ("leaf2", "root"),
}


def _spare_for(arrange: Callable[[Site], object]) -> str | None:
    """n1 and n2 hold a job, n1 fails; n4, n5 and n6 are spares."""
    site = Site(6, spares=("n4", "n5", "n6"))
    job = site.slurm.submit(2, comment="holdfast", exclusive=True)
    assert job.nodes == ("n1", "n2")
    site.run(5)
    arrange(site)
    site.fault("n1")
    site.react()
    return site.recovery(job.job_id).spare


def _topology(site: Site) -> None:
    site.slurm.switches = SWITCHES
    site.read_background()


def _lemon(site: Site) -> None:
    watch = site.loop.observer.background
    until = site.clock.now() + timedelta(days=1)
    watch.newest = replace(watch.newest, lemons={"n4": Lemon(2, until), "n5": Lemon(1)})


def _noted(site: Site) -> None:
    record = site.book.nodes["n4"]
    site.store._put_node(replace(record, check_note="active.burn failed"), None)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("arrange", "spare"),
    [
        (lambda _site: None, "n4"),
        (_topology, "n5"),
        (_lemon, "n5"),
        (_noted, "n5"),
        (lambda site: site.slurm.gres.update(n1="gpu:h100:8", n4="gpu:a100:8", n6="gpu:h100:8"), "n5"),
        (
            lambda site: site.slurm.gres.update(dict.fromkeys(("n4", "n5", "n6"), "gpu:a100:8") | {"n1": "gpu:h100:8"}),
            None,
        ),
        (lambda site: site.slurm.features.update(n1=frozenset({"ib", "x"}), n6=frozenset({"ib", "x"})), "n6"),
    ],
    ids=["by name", "near", "no lemon", "nothing found", "same type", "none of the type", "features"],
)
def test_the_spare_that_is_taken(arrange: Callable[[Site], object], spare: str | None) -> None:
    assert _spare_for(arrange) == spare


def test_distances() -> None:
    tree = Topology(
        {"a": ("l1", "s1", "r"), "b": ("l1", "s1", "r"), "c": ("l2", "s1", "r"), "d": ("l9", "s9", "r"), "e": ("x",)}
    )
    assert [tree.distance("a", other) for other in "abcdez"] == [0, 0, 1, 2, 3, 0]


def test_a_node_record_begins_unchecked() -> None:
    assert (NodeRecord("n1").checked_at, NodeRecord("n1").deep_at, NodeRecord("n1").check_note) == (None, None, "")
