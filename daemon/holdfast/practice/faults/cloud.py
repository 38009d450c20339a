"""EC2's announcements about a machine, made through its instance metadata as in EC2."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from holdfast.model.errors import Rejected
from holdfast.practice.aws import imds_state
from holdfast.practice.cluster.machine import PracticeMachine
from holdfast.practice.faults import PracticeFault

_EVENT = "instance-event-0practice0practice"


def _in_s(value: str) -> datetime:
    try:
        seconds = float(value)
    except ValueError:
        raise Rejected(f"{value!r} is no number of seconds") from None
    return datetime.now(UTC) + timedelta(seconds=seconds)


def _spot_notice(machine: PracticeMachine, value: str, _gpu: int) -> None:
    imds_state.change(machine.host.folder.resolve(), spot=imds_state.spot("terminate", _in_s(value)))


def _spot_notice_heals(machine: PracticeMachine) -> None:
    _heals(machine, "spot")
    _heals(machine, "gone")


def _rebalance(machine: PracticeMachine, _value: str, _gpu: int) -> None:
    now = datetime.now(UTC)
    imds_state.change(machine.host.folder.resolve(), rebalance={"noticeTime": f"{now:%Y-%m-%dT%H:%M:%SZ}"})


def _maintenance(machine: PracticeMachine, value: str, _gpu: int) -> None:
    code, _, seconds = value.partition(":")
    at = _in_s(seconds or "7200")
    planned = imds_state.event(code, f"scheduled {code}", at, at + timedelta(hours=2), _EVENT)
    imds_state.change(machine.host.folder.resolve(), scheduled=[planned])


def _away(machine: PracticeMachine, _value: str, _gpu: int) -> None:
    imds_state.change(machine.host.folder.resolve(), away=True)


def _heals(machine: PracticeMachine, piece: str) -> None:
    folder = machine.host.folder.resolve()
    if piece in imds_state.read(folder):
        imds_state.change(folder, **{piece: None})


FAULTS = (
    PracticeFault(
        "spot_notice",
        "EC2 takes the spot machine back after this many seconds: it announces that now and powers it off then.",
        _spot_notice,
        value="seconds from now",
        heal=_spot_notice_heals,
    ),
    PracticeFault(
        "spot_rebalance",
        "EC2 recommends to move away from the machine.",
        _rebalance,
        heal=lambda machine: _heals(machine, "rebalance"),
    ),
    PracticeFault(
        "maintenance",
        "EC2 schedules maintenance of the machine.",
        _maintenance,
        value="EC2's code, and after a colon in how many seconds (two hours), such as instance-retirement:3600",
        heal=lambda machine: _heals(machine, "scheduled"),
    ),
    PracticeFault(
        "imds_away",
        "The machine's instance metadata does not answer.",
        _away,
        heal=lambda machine: _heals(machine, "away"),
    ),
)
