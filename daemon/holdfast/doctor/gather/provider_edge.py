"""Asks the provider what it can do and what it would let this user do, by calls that change nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeVar, runtime_checkable

from holdfast.model.errors import InsufficientCapacity, NotFound, NotPermitted, OutsideError, Unavailable
from holdfast.model.machine import Instance, MetadataOptions, ProviderCan
from holdfast.ports import Provider

NO_SUCH_NODE = "holdfast-doctor-no-such-node"


@runtime_checkable
class Examinable(Protocol):
    """A provider that can ask for its rights by dry runs."""

    def permissions(self, instance_id: str) -> Mapping[str, OutsideError | None]:
        """Call → None when it would succeed on this machine, else the error that it would meet."""
        ...


@runtime_checkable
class ShowsMetadata(Protocol):
    """A provider that says how it serves a machine's instance metadata."""

    def metadata_options(self, instance_id: str) -> MetadataOptions | None:
        """None: it does not say."""
        ...


def metadata_options(provider: Provider | None, instance_id: str) -> MetadataOptions | None:
    """Of this machine. None: it could not be had."""
    if not instance_id or not isinstance(provider, ShowsMetadata):
        return None
    try:
        return provider.metadata_options(instance_id)
    except OutsideError:
        return None


@dataclass(frozen=True, slots=True)
class Examined:
    """What was found out."""

    problem: str = ""
    """Why it does not answer at all."""
    denied: Mapping[str, str] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    can: ProviderCan | None = None
    repairs: bool = False


def examine(provider: Provider, nodes: tuple[str, ...] = ()) -> Examined:
    """Every reading call once, then, where the provider knows how, each acting call as a dry run on the first machine that it has
    for one of ``nodes``. Raises nothing."""
    failed: dict[str, OutsideError] = {}
    can = _ask(failed, "its abilities", lambda: provider.can)
    repairs = _ask(failed, "whether it repairs automatically", provider.repairs_itself)
    _ask(failed, "its notices", provider.notices)
    _ask(failed, "machines on trial", provider.on_trial)
    machine = next(
        filter(None, (_ask(failed, "a node's machine", _of(provider, name)) for name in (*nodes, NO_SUCH_NODE))), None
    )
    silent = [error for error in failed.values() if isinstance(error, Unavailable)]
    if silent:
        return Examined(str(silent[0]) or type(silent[0]).__name__)
    if machine is not None and isinstance(provider, Examinable):
        found = provider.permissions(machine.instance_id)
        failed |= {call: error for call, error in found.items() if error is not None}
    denied = {call: str(error) for call, error in failed.items() if isinstance(error, NotPermitted)}
    # No capacity now says nothing of the rights, and may be otherwise at the next fault.
    refused = {c: str(e) for c, e in failed.items() if c not in denied and not isinstance(e, InsufficientCapacity)}
    return Examined("", denied, refused, can, repairs is True)


T = TypeVar("T")


def _of(provider: Provider, node: str) -> Callable[[], Instance | None]:
    return lambda: provider.instance_of(node)


def _ask(failed: dict[str, OutsideError], what: str, call: Callable[[], T]) -> T | None:
    """Its answer; None when it failed, which is recorded."""
    try:
        return call()
    except NotFound:
        return None  # it answered
    except OutsideError as error:
        failed[what] = error
        return None
