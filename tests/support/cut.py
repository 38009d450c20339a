"""Cuts a provider off at its n-th AWS call, before the call is sent or after its effect: a process that ends there."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any


class CutError(Exception):
    """The process ended here."""


def cut_at(number: int, clients: Iterable[Any], *, after: bool) -> Callable[[], int]:
    """From now on the clients' call of this number (from 1) ends in CutError. The answer counts the calls so far."""
    calls = 0

    def count(**_: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == number:
            raise CutError(f"cut at call {number}")

    for client in clients:
        service = client.meta.service_model.service_name
        client.meta.events.register(f"{'after-call' if after else 'before-call'}.{service}", count)
    return lambda: calls
