"""Ids of checks in the controller's settings: an id that no check has would leave a check observing without a word."""

from __future__ import annotations

import difflib

from holdfast.config.sections import ChecksSection
from holdfast.model.errors import ConfigError
from holdfast_checks.custom_guard import PREFIX
from holdfast_checks.known import all_checks
from holdfast_checks.registry import ALL


def check_ids(section: ChecksSection, where: str) -> None:
    """Raises ConfigError, one line, for an id that this release does not know. A site's own checks (``custom.NAME``) are known to
    their nodes alone."""
    known = all_checks()
    for key, ids in (("act_on", section.act_on), ("observe_only", section.observe_only)):
        for each in ids:
            if each in known or each.startswith(PREFIX) or (each == ALL and key == "act_on"):
                continue
            near = difflib.get_close_matches(each, known, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}?" if near else "`holdfast checks` lists them"
            raise ConfigError(f"{where}.{key}: no check is called {each!r}; {hint}")
