"""Authenticated member names."""

from __future__ import annotations

import pytest

from holdfast.quorum.identity import (
    Farewell,
    Forged,
    GroupIdentity,
    identify,
    replica_name,
    room_token,
    split_farewell,
    split_observe,
)

TOKEN = room_token(b"k" * 32, "job-1")
OTHER = room_token(b"k" * 32, "job-2")


def test_a_name_made_with_the_token_is_believed_and_shown_without_its_proof() -> None:
    who = identify(replica_name(TOKEN, "3", "a1") + ":uuid", TOKEN)
    assert (who, str(who), who.fence) == (GroupIdentity("3", "a1", "uuid"), "3~a1:uuid", "3~a1")


@pytest.mark.parametrize(
    ("wire_id", "says"),
    [
        (replica_name(OTHER, "3", "a1") + ":u", "the token of group 3 is not this job's"),
        (replica_name(TOKEN, "3", "a1").replace("3~a", "4~a").replace("~3", "~4") + ":u", "the token of group 4"),
        (replica_name(TOKEN, "3", "a1").replace("a1", "a2") + ":u", "the token of group 3"),
        (replica_name(TOKEN, "3", "a1"), "GROUP~INCARNATION~PROOF"),
        ("train_ddp_0:u", "GROUP~INCARNATION~PROOF"),
        ("~~~:u", "GROUP~INCARNATION~PROOF"),
        ("3~a1~\N{GREEK SMALL LETTER PI}~3:u", "the token of group 3"),
        ("", "1 to 256"),
        ("x" * 300, "1 to 256"),
        ("a\nb", "1 to 256"),
    ],
)
def test_any_other_is_refused_in_one_line(wire_id: str, says: str) -> None:
    with pytest.raises(Forged, match=says) as caught:
        identify(wire_id, TOKEN)
    assert "\n" not in str(caught.value)
    assert TOKEN not in str(caught.value)


@pytest.mark.parametrize(
    ("wire_id", "group", "fence"),
    [
        ("torchtitan_ft_0:u-1", "torchtitan_ft_0", "torchtitan_ft_0:u-1"),
        ("u-1", "", "u-1"),
        ("a:b:u-1", "a:b", "a:b:u-1"),
    ],
)
def test_where_addresses_decide_stock_names_are_taken_as_they_are(wire_id: str, group: str, fence: str) -> None:
    who = identify(wire_id, None)
    assert (who.group, str(who), who.fence) == (group, wire_id, fence)


def test_a_leave_is_a_heartbeat_with_a_word_behind_it() -> None:
    assert split_farewell("0~a~p:u!leave") == ("0~a~p:u", Farewell.LEAVE)
    assert split_farewell("0~a~p:u!done") == ("0~a~p:u", Farewell.DONE)
    assert split_farewell("0~a~p:u") == ("0~a~p:u", None)


def test_a_look_is_a_quorum_request_with_a_word_behind_the_name() -> None:
    assert split_observe("0~a~p:u!observe") == ("0~a~p:u", True)
    assert split_observe("0~a~p:u") == ("0~a~p:u", False)
