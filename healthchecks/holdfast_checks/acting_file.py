"""The policy of checks that a controller gave, and the file in which an agent keeps it; a run by hand reads it too."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from holdfast_checks.acting import CheckPolicy, Lists, ids, parsed
from holdfast_checks.settings import thresholds
from holdfast_checks.settings.schema import WrongSetting
from holdfast_checks.whole_file import write_whole

FILE = "acting.json"
"""In the agent's ``state_dir``: what the controller gave last."""
_LONGEST = 64


@dataclass(frozen=True, slots=True)
class GivenPolicy:
    """A policy, and the version by which its controller knows it."""

    policy: CheckPolicy = field(default_factory=CheckPolicy)
    version: str = ""
    """Empty: its controller is older and gives none."""


def given_policy(given: object) -> GivenPolicy:
    """Read what a controller gives, as a whole; thresholds that this release does not know are passed over.

    Raises WrongSetting in one line."""
    lists = parsed(given)
    if lists is None or not isinstance(given, Mapping):
        raise WrongSetting("checks: act_on and observe_only must be lists of ids")
    numbers, version = given.get("thresholds", {}), given.get("version", "")
    if not isinstance(numbers, Mapping):
        raise WrongSetting("checks.thresholds: must be an object")
    off = ids(given.get("checks_off", []))
    if off is None:
        raise WrongSetting("checks.checks_off: must be a list of ids")
    read = thresholds.read(numbers, "checks.thresholds", others_too=True)
    return GivenPolicy(CheckPolicy(lists, read, off), version[:_LONGEST] if isinstance(version, str) else "")


def kept(state_dir: Path) -> GivenPolicy:
    """What the controller gave last; nothing where that is not known: then new checks observe. Thresholds that this release refuses (an
    agent of another one kept them) are dropped, the lists hold."""
    try:
        given = json.loads((state_dir / FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return GivenPolicy()
    try:
        return given_policy(given)
    except WrongSetting:
        return GivenPolicy(CheckPolicy(parsed(given) or Lists()))


def keep(state_dir: Path, given: GivenPolicy) -> None:
    """Write the file. Raises OSError."""
    write_whole(state_dir / FILE, json.dumps({**given.policy.document(), "version": given.version}))
