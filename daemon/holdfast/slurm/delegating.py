"""A scheduler that passes every verb to another one: base class of schedulers that override some verbs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

from holdfast.ports import Scheduler

_Given = ParamSpec("_Given")
_Answer = TypeVar("_Answer")


def _passed(verb: Callable[Concatenate[Scheduler, _Given], _Answer]) -> Callable[Concatenate[Any, _Given], _Answer]:
    def call(self: DelegatingScheduler, /, *args: _Given.args, **named: _Given.kwargs) -> _Answer:
        done: Callable[_Given, _Answer] = getattr(self._inner, verb.__name__)
        return done(*args, **named)

    return call


class DelegatingScheduler:
    """Implements :class:`holdfast.ports.Scheduler` over another one."""

    def __init__(self, inner: Scheduler) -> None:
        self._inner = inner

    view = _passed(Scheduler.view)
    node = _passed(Scheduler.node)
    job = _passed(Scheduler.job)
    components = _passed(Scheduler.components)
    jobs_on = _passed(Scheduler.jobs_on)
    all_nodes = _passed(Scheduler.all_nodes)
    all_reservations = _passed(Scheduler.all_reservations)
    version = _passed(Scheduler.version)
    config = _passed(Scheduler.config)
    partitions = _passed(Scheduler.partitions)
    topology = _passed(Scheduler.topology)
    drain = _passed(Scheduler.drain)
    undrain = _passed(Scheduler.undrain)
    set_instance_id = _passed(Scheduler.set_instance_id)
    set_down = _passed(Scheduler.set_down)
    power_down = _passed(Scheduler.power_down)
    power_up = _passed(Scheduler.power_up)
    requeue = _passed(Scheduler.requeue)
    release = _passed(Scheduler.release)
    delay_start = _passed(Scheduler.delay_start)
    set_array_throttle = _passed(Scheduler.set_array_throttle)
    hold = _passed(Scheduler.hold)
    set_excluded_nodes = _passed(Scheduler.set_excluded_nodes)
    set_num_nodes = _passed(Scheduler.set_num_nodes)
    set_job_reservation = _passed(Scheduler.set_job_reservation)
    tell_owner = _passed(Scheduler.tell_owner)
    create_reservation = _passed(Scheduler.create_reservation)
    set_reservation_nodes = _passed(Scheduler.set_reservation_nodes)
    delete_reservation = _passed(Scheduler.delete_reservation)
    reservation = _passed(Scheduler.reservation)
    reboot = _passed(Scheduler.reboot)
