"""Ends a provider after the effect of its n-th AWS call and before it gets the answer, as a crash of the process would."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class CutError(Exception):
    """Stands for a process that ended here."""


def cut_at(number: int, clients: Iterable[Any]) -> None:
    """From now on the clients' call of this number (from 1, counted together) has its effect and then raises CutError."""
    calls = 0

    def count(**_: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == number:
            raise CutError(f"cut at call {number}")

    for client in clients:
        client.meta.events.register(f"after-call.{client.meta.service_model.service_name}", count)
