"""Cuts a provider off after the effect of its n-th AWS call, before it learns of it: a process that ends there."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class CutError(Exception):
    """The process ended here."""


def cut_at(number: int, clients: Iterable[Any]) -> None:
    """From now on the clients' call of this number (from 1, counted together) has its effect and ends in CutError."""
    calls = 0

    def count(**_: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == number:
            raise CutError(f"cut at call {number}")

    for client in clients:
        client.meta.events.register(f"after-call.{client.meta.service_model.service_name}", count)
