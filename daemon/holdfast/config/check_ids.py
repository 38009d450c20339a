"""What the controller's settings say of checks. An id that no check has would leave a check observing without a word."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

from holdfast.config import strict
from holdfast.config.sections import ChecksSection
from holdfast.model.errors import ConfigError
from holdfast_checks.acting import ALL, CheckPolicy, Lists, flat
from holdfast_checks.custom_guard import PREFIX
from holdfast_checks.known import all_checks
from holdfast_checks.settings import thresholds


def check_policy(section: ChecksSection, where: str) -> CheckPolicy:
    """What ``[checks]`` says. Raises ConfigError, one line, for what this release does not know."""
    check_ids(section.act_on, f"{where}.act_on", (ALL,))
    check_ids(section.observe_only, f"{where}.observe_only")
    check_ids(section.checks_off, f"{where}.checks_off")
    numbers = check_thresholds(section.thresholds, f"{where}.thresholds")
    return CheckPolicy(Lists(section.act_on, section.observe_only), numbers, section.checks_off)


def check_ids(ids: Iterable[str], where: str, others: tuple[str, ...] = ()) -> None:
    """Raises ConfigError for an id that this release does not know, and that is none of ``others``. A site's own checks (``custom.NAME``)
    are known to their nodes alone."""
    known = all_checks()
    for each in ids:
        if each in known or each.startswith(PREFIX) or each in others:
            continue
        near = difflib.get_close_matches(each, known, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else "`holdfast checks` lists them"
        raise ConfigError(f"{where}: no check is called {each!r}; {hint}")


def check_thresholds(tables: Mapping[str, Mapping[str, float]], where: str) -> dict[str, float]:
    """By ``TABLE.KEY``. Raises ConfigError for one that no controller may set, or that is out of its range."""
    with strict.wrong_settings():
        return thresholds.read(flat(tables), where)
