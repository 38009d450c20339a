"""Faults that DCGM finds, or that make it hang."""

from __future__ import annotations

from typing import Any

from holdfast.model.errors import Rejected
from holdfast.practice.cluster.machine import PracticeMachine
from holdfast.practice.faults import PracticeFault
from holdfast.practice.hardware import dcgm


def _diag_fail(machine: PracticeMachine, value: str, gpu: int) -> None:
    _put(machine, "diag", value, gpu, dcgm.TESTS)


def _health_fail(machine: PracticeMachine, value: str, gpu: int) -> None:
    _put(machine, "health", value, gpu, tuple(dcgm.SYSTEMS))


def _put(machine: PracticeMachine, what: str, name: str, gpu: int, known: tuple[str, ...]) -> None:
    if name not in known:
        raise Rejected(f"{name!r} is none of {', '.join(known)}")
    told = dcgm.wrong(machine.host.folder)
    told[what][name] = gpu
    dcgm.put(machine.host.folder, told)


def _hang(machine: PracticeMachine, _value: str, _gpu: int) -> None:
    dcgm.put(machine.host.folder, {**dcgm.wrong(machine.host.folder), "hang": True})


def _heal(machine: PracticeMachine, *names: str) -> None:
    told: dict[str, Any] = dcgm.wrong(machine.host.folder)
    if any(told[name] for name in names):
        dcgm.put(machine.host.folder, {key: each for key, each in told.items() if key not in names})


FAULTS = (
    PracticeFault(
        "dcgm_diag_fail",
        "A test of dcgmi diag fails on one GPU.",
        _diag_fail,
        value=f"the test: {', '.join(dcgm.TESTS)}",
        heal=lambda machine: _heal(machine, "diag"),
    ),
    PracticeFault(
        "dcgm_health_fail",
        "DCGM's health watches report an incident of one GPU.",
        _health_fail,
        value=f"the system: {', '.join(dcgm.SYSTEMS)}",
        heal=lambda machine: _heal(machine, "health"),
    ),
    PracticeFault("dcgm_hang", "dcgmi does not answer.", _hang, heal=lambda machine: _heal(machine, "hang")),
)
