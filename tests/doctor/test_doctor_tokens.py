"""The doctor's findings on the API's tokens."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from doctor.test_doctor import NOW, good
from holdfast.doctor import AdviceLevel, diagnose
from holdfast.model.access.tokens import TokenRow

DAY = timedelta(days=1)
USED = NOW - DAY


def row(role: str = "viewer", **changes: object) -> TokenRow:
    one = TokenRow("ab" * 32, role, "grafana", NOW - 60 * DAY, NOW + 30 * DAY, revoked=False, last_used_at=USED)
    return replace(one, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("token", "said"),
    [
        (row(), []),
        (row(expires_at=NOW + 13 * DAY), [("tokens.end_soon", AdviceLevel.WARNING)]),
        (row(expires_at=NOW + 15 * DAY), []),
        (row(expires_at=NOW - DAY), []),
        (row(expires_at=None), [("tokens.never_end", AdviceLevel.HINT)]),
        (row(expires_at=None, revoked=True), []),
        (row("agent", expires_at=None), []),
        (row("agent", expires_at=None, created_at=NOW - 400 * DAY), []),
        (row(last_used_at=None), [("tokens.unused", AdviceLevel.HINT)]),
        (row(last_used_at=None, recorded_since=NOW - DAY), []),
        (row(last_used_at=None, recorded_since=NOW - 31 * DAY), [("tokens.unused", AdviceLevel.HINT)]),
        (row("agent", expires_at=None, last_used_at=NOW - 31 * DAY), [("tokens.unused", AdviceLevel.HINT)]),
    ],
)
def test_what_is_said(token: TokenRow, said: list[tuple[str, AdviceLevel]]) -> None:
    before = diagnose(good())
    found = [one for one in diagnose(replace(good(), tokens=(token,))) if one not in before]
    assert [(one.id, one.level) for one in found] == said
    assert all("viewer grafana (abababababab)" in one.what or token.role == "agent" for one in found)


@pytest.mark.parametrize(
    ("old_used_min", "new_used_min", "said"),
    [
        (1, 2, True),
        (9, 5, True),
        (7, 1, False),  # the node has changed to the newer one
        (1, 8, False),  # the newer one was tried
        (40, 40, False),
        (None, 1, False),
        (1, None, False),
    ],
)
def test_a_node_that_uses_two_tokens(old_used_min: int | None, new_used_min: int | None, said: bool) -> None:
    def token(name: str, made: timedelta, used_min: int | None) -> TokenRow:
        used_at = None if used_min is None else NOW - timedelta(minutes=used_min)
        return TokenRow(name * 32, "agent", "n1", NOW - made, None, revoked=False, last_used_at=used_at)

    tokens = (token("ab", 9 * DAY, old_used_min), token("cd", DAY, new_used_min))
    found = [a for a in diagnose(replace(good(), tokens=tokens)) if a.id == "tokens.replaced_in_use"]
    assert len(found) == said
    assert all("n1 (abababababab and the newer cdcdcdcdcdcd)" in one.what for one in found)
