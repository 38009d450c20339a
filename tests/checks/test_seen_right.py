"""A check that takes an absence for a fault acts only where it has once seen the object in place."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from holdfast_checks.checks import host_munge
from holdfast_checks.known import all_checks
from holdfast_checks.result import Remedy, Result, Severity
from holdfast_checks.seen_right import SeenRight, places_of
from holdfast_checks.settings import CheckSettings, HostSettings

GONE = Result.finding("host.munge", Severity.DEGRADED, Remedy.REBOOT, code="down")
THERE = Result.ok("host.munge")


def of(munge_socket: str = HostSettings().munge_socket) -> SeenRight:
    return SeenRight(places_of(all_checks(), CheckSettings(host=HostSettings(munge_socket=munge_socket))))


def test_every_check_that_looks_in_one_place_says_where() -> None:
    places = places_of(all_checks(), CheckSettings())
    assert set(places) == {
        "host.credential",
        "host.modules",
        "host.mounts",
        "host.munge",
        "host.services",
        "host.slurmd",
    }
    assert all(places.values())
    assert places["host.munge"] == HostSettings().munge_socket


def test_one_ok_is_the_proof_and_it_lasts() -> None:
    seen = of()
    assert seen.unproven(GONE) == HostSettings().munge_socket
    assert not seen.learn([GONE, Result.unknown("host.munge"), Result.skipped("host.munge")])
    assert seen.unproven(GONE)
    assert seen.learn([THERE])
    assert not seen.learn([THERE]), "nothing new to write"
    assert seen.unproven(GONE) == ""
    later = of()
    later.load(seen.dump())
    assert later.unproven(GONE) == ""


def test_it_is_of_one_component_and_one_place() -> None:
    seen = of()
    seen.learn([replace(THERE, check="host.mounts", component="/home")])
    assert seen.unproven(replace(GONE, check="host.mounts", component="/home")) == ""
    assert seen.unproven(replace(GONE, check="host.mounts", component="/fsx"))
    seen.learn([THERE])
    moved = of(munge_socket="/run/elsewhere")
    moved.load(seen.dump())
    assert moved.unproven(GONE) == "/run/elsewhere", "a setting that a roll-out got wrong drains nothing"
    assert seen.unproven(replace(GONE, check="host.fds")) == "", "it judges no absence"


@pytest.mark.parametrize("kept", [None, "", "{", "[1]", '[["a","b"]]', "[null]"])
def test_what_cannot_be_read_proves_nothing(kept: str | None) -> None:
    seen = of()
    seen.load(kept)
    assert seen.unproven(GONE)


def test_it_does_not_grow_for_ever() -> None:
    seen = of()
    for number in range(1200):
        seen.learn([replace(THERE, check="host.mounts", component=f"/home/u{number}")])
    assert len(seen.dump()) < 200_000
    assert seen.unproven(replace(GONE, check="host.mounts", component="/home/u1199")) == ""


def test_the_place_is_what_the_check_reads() -> None:
    place = host_munge.CHECK.place
    assert place is not None
    assert place(CheckSettings(host=HostSettings(munge_socket="/x", munge_key=Path("/k")))) == "/x"
