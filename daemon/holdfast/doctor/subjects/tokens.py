"""Rules about the bearer tokens of the API (docs/how-to-tokens.md)."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.doctor.advice import Advice, AdviceLevel
from holdfast.doctor.facts import DoctorFacts, names
from holdfast.model.access.handover import two_in_use
from holdfast.model.access.tokens import Mark, TokenRow, marks


def end_soon(facts: DoctorFacts) -> Iterator[Advice]:
    if found := _marked(facts, Mark.ENDS_SOON):
        yield Advice(
            "tokens.end_soon",
            AdviceLevel.WARNING,
            f"tokens that end within 14 days: {_shown(found)}",
            "Requests with such a token are refused from then on.",
            "holdfast token create ROLE SUBJECT   # a new one for each owner who needs it; holdfast token list has the times",
        )


def never_end(facts: DoctorFacts) -> Iterator[Advice]:
    if found := _marked(facts, Mark.NEVER_ENDS):
        yield Advice(
            "tokens.never_end",
            AdviceLevel.HINT,
            f"tokens of people and programs without an end: {_shown(found)}",
            "A copied one stays valid for ever. Tokens that were made before an upgrade stay as they are.",
            "holdfast token create ROLE SUBJECT --days 90, hand it over, then holdfast token revoke HASH",
        )


def unused(facts: DoctorFacts) -> Iterator[Advice]:
    if found := _marked(facts, Mark.UNUSED):
        yield Advice(
            "tokens.unused",
            AdviceLevel.HINT,
            f"tokens that were not used for 30 days: {_shown(found)}",
            "If one was stolen, no one would notice.",
            "holdfast token revoke HASH   # when its owner no longer needs it",
        )


def replaced_in_use(facts: DoctorFacts) -> Iterator[Advice]:
    if found := two_in_use(facts.tokens, facts.now):
        yield Advice(
            "tokens.replaced_in_use",
            AdviceLevel.WARNING,
            "nodes that use two tokens: "
            + names(f"{old.subject} ({old.hash[:12]} and the newer {new.hash[:12]})" for old, new in found),
            "A node's older token ends ten minutes after its last use, and this one is still used: a second place that the node takes its "
            "token from, a second machine of its name, or a thief.",
            "check again in ten minutes; then put the newer one in every place of HOLDFAST_TOKEN_FROM, and holdfast token revoke HASH "
            "# the older one: what still uses it is refused within a minute",
        )


def _marked(facts: DoctorFacts, mark: Mark) -> list[TokenRow]:
    return [row for row in facts.tokens if mark in marks(row, facts.now)]


def _shown(rows: list[TokenRow]) -> str:
    return names(f"{row.role} {row.subject} ({row.hash[:12]})" for row in rows)


RULES = (end_soon, never_end, unused, replaced_in_use)
