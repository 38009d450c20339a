"""The head node's own connects to silent nodes, over real sockets of this machine."""

from __future__ import annotations

import socket
import time
from dataclasses import replace

from holdfast.controller.observing.head_reach import HeadReached, connect, resolve
from support.descriptors import descriptors_left
from support.simulated import Site
from support.simulated.provider import FULL


def test_accepted_and_refused_are_answers_and_a_full_backlog_is_none() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as full:
        port = server.getsockname()[1]
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            refused = free.getsockname()[1]
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        with socket.create_connection(full.getsockname()):
            began_s = time.monotonic()
            answered = connect(
                {
                    "accepts": ("127.0.0.1", port),
                    "refuses": ("127.0.0.1", refused),
                    "is silent": full.getsockname(),
                    "has no name": ("no-such-host.invalid", 1),
                },
                0.3,
            )
            assert time.monotonic() - began_s < 5.0
    assert answered == HeadReached(frozenset({"accepts", "refuses"}))


def test_what_cannot_be_tried_for_want_of_descriptors_is_not_known() -> None:
    targets = {f"n{n}": ("127.0.0.1", 9) for n in range(9)}
    with descriptors_left(0):
        assert connect(targets, 0.3) == HeadReached(untried=frozenset(targets))
    with descriptors_left(1):
        assert connect(targets, 0.3) == HeadReached(untried=frozenset(targets))
    with descriptors_left(4):
        few = connect(targets, 0.3)
    assert few == HeadReached(frozenset(targets)), "few at a time"
    assert connect(targets, 0.3) == HeadReached(frozenset(targets))


def test_a_round_with_few_descriptors_ends() -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        with socket.create_connection(full.getsockname()):
            targets = {f"n{n}": full.getsockname() for n in range(50)}
            began_s = time.monotonic()
            with descriptors_left(3):
                found = connect(targets, 0.2)
            assert time.monotonic() - began_s < 3.0
    assert found.answered == frozenset()
    assert 40 < len(found.untried) < 50


def test_a_name_that_cannot_be_looked_up_for_want_of_descriptors_is_not_known() -> None:
    targets = {"n1": ("localhost", 9), "n2": ("no-such-host.invalid", 9)}
    connect(targets, 0.3)  # modules that a look-up loads
    with descriptors_left(1):
        assert connect(targets, 0.3).untried == {"n1", "n2"}


def test_a_silent_node_that_cannot_be_tried_is_not_taken_for_dead() -> None:
    """Its peers do not reach it. The head node's own result is missing, and comes when there are descriptors again."""
    site = Site(6, can=replace(FULL, status=False))
    site.registers(site.slurm.submit(1, comment="holdfast", exclusive=True))
    site.run(2)
    site.no_descriptors = True
    site.machine("n1").powered = False
    site.run(120)
    assert site.loop.observer.head.newest == {}
    assert [c for c in site.slurm.calls if c[0] == "set_down"] == []
    site.no_descriptors = False
    site.run(60)
    assert [c for c in site.slurm.calls if c[0] == "set_down"] == [("set_down", "n1")]


def test_a_probe_that_could_not_be_made_leaves_the_one_before_as_it_was() -> None:
    site = Site(6, can=replace(FULL, status=False))
    site.machine("n1").cut_off = True
    site.run(30)
    before = site.loop.observer.head.newest["n1"]
    site.no_descriptors = True
    site.run(60)
    assert before.failures > 0
    assert site.loop.observer.head.newest["n1"] == before


def test_the_actor_that_cannot_ask_once_more_does_not_take_the_step() -> None:
    site = Site(6, can=replace(FULL, status=False))
    site.registers(site.slurm.submit(1, comment="holdfast", exclusive=True))
    site.run(2)
    reach = site.actor.outside.reach
    site.actor.outside = replace(site.actor.outside, reach=lambda targets, _s: HeadReached(untried=frozenset(targets)))
    site.machine("n1").powered = False
    site.run(60)
    assert [c for c in site.slurm.calls if c[0] == "set_down"] == []
    site.actor.outside = replace(site.actor.outside, reach=reach)
    site.run(120)
    assert ("set_down", "n1") in site.slurm.calls


def test_names_that_resolve_become_addresses() -> None:
    found = resolve({"n1": "localhost", "n2": "no-such-host.invalid"})
    assert set(found) == {"n1"}
    assert found["n1"] in ("127.0.0.1", "::1")
