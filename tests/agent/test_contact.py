"""Whether the agent counts as reporting: not after sixty seconds without a success, but one lost request changes nothing."""

from __future__ import annotations

import pytest

from holdfast.agent.sending.contact import Contact, ContactChange, ContactState, after_failure, after_success
from holdfast.agent.sending.failures import SendFailure, SendFailureKind

HEAD, OTHER = "https://head:8460", "https://head2:8460"


def refused(url: str = HEAD, kind: SendFailureKind = SendFailureKind.TCP) -> SendFailure:
    return SendFailure(kind, "connection refused", "start it", url)


def lived(*events: tuple[float, SendFailure | str], limit_s: float = 60.0) -> list[tuple[float, ContactChange]]:
    """The changes, with their times. An event: a failure, or the URL of a controller that accepted a request."""
    contact, changes = Contact(limit_s, 0.0), []
    for at_s, what in events:
        contact, change = (
            after_success(contact, what, at_s) if isinstance(what, str) else after_failure(contact, what, at_s)
        )
        if change is not None:
            changes.append((at_s, change))
    return changes


def standings(changes: list[tuple[float, ContactChange]]) -> list[tuple[float, ContactState]]:
    return [(at_s, change.contact.standing) for at_s, change in changes]


def test_a_first_success_is_made_known_once() -> None:
    assert standings(lived((1, HEAD), (11, HEAD), (21, HEAD))) == [(1, ContactState.REPORTING)]


def test_a_minute_without_success_is_one_change() -> None:
    events = [(10.0 * n, refused()) for n in range(1, 30)]
    (_, (at_s, change)) = lived((0, HEAD), *events)
    assert (at_s, change.contact.standing, change.silent_s) == (60, ContactState.NOT_REPORTING, 60)


def test_an_agent_that_no_controller_ever_answered_counts_from_its_start() -> None:
    assert standings(lived(*((10.0 * n, refused()) for n in range(8)))) == [(60, ContactState.NOT_REPORTING)]


@pytest.mark.parametrize("events", [[(59.9, refused())], [(70.0, refused())], [(30.0, refused()), (50.0, refused())]])
def test_less_than_a_minute_or_one_lost_request_is_nothing(events: list[tuple[float, SendFailure | str]]) -> None:
    """The interval of heartbeats may be a minute itself."""
    assert lived((0, HEAD), *events)[1:] == []


def test_a_success_ends_it_with_the_length_of_the_silence() -> None:
    changes = lived((0, HEAD), (30, refused()), (60, refused()), (95, HEAD))
    assert standings(changes)[1:] == [(60, ContactState.NOT_REPORTING), (95, ContactState.REPORTING)]
    assert changes[-1][1].silent_s == 95
    assert changes[-1][1].contact.failures == ()


def test_another_reason_is_made_known_and_the_same_one_is_not() -> None:
    tls = refused(kind=SendFailureKind.TLS)
    changes = lived((0, HEAD), (30, refused()), (60, refused()), (70, refused()), (80, tls), (90, tls))
    assert [at_s for at_s, _ in changes] == [0, 60, 80]


def test_two_controllers_that_fail_in_turn_for_reasons_of_their_own_are_one_message() -> None:
    standby = SendFailure(SendFailureKind.CONTROLLER, "it is the standby", "the other one", OTHER)
    events = [(30.0 + n, standby if n % 2 else refused()) for n in range(100)]
    ((at_s, change),) = lived((0, HEAD), *events)[1:]
    assert at_s == 60
    assert {f.url for f in change.contact.failures} == {HEAD, OTHER}


def test_another_leader_is_made_known() -> None:
    changes = lived((0, HEAD), (10, OTHER))
    assert [change.contact.url for _, change in changes] == [HEAD, OTHER]
