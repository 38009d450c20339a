"""The wire form, byte by byte, against torchft's published field numbers."""

from __future__ import annotations

from holdfast.quorum import messages
from holdfast.quorum.identity import GroupIdentity
from holdfast.quorum.nouns import Quorum, QuorumMember

REQUEST = bytes.fromhex(
    "0a2b"  # requester, 43 bytes
    "0a03613a75"  # 1: replica_id "a:u"
    "1208687474703a2f2f6d"  # 2: address "http://m"
    "1a03733a31"  # 3: store_address "s:1"
    "2007"  # 4: step 7
    "2802"  # 5: world_size 2
    "3001"  # 6: shrink_only
    "3a0d7b2261223a205b312c20325d7d"  # 7: data
    "4003"  # 8: commit_failures 3
)


def test_a_request_is_read() -> None:
    assert messages.read_quorum_request(REQUEST) == messages.Requester(
        "a:u", "http://m", "s:1", 7, 2, True, 3, '{"a": [1, 2]}'
    )


def test_an_empty_request_and_one_with_unknown_fields_are_read() -> None:
    assert messages.read_quorum_request(b"").replica_id == ""
    assert messages.read_heartbeat(bytes.fromhex("0a03613a75") + bytes.fromhex("f80101")) == "a:u"


def test_a_quorum_is_written() -> None:
    member = QuorumMember(GroupIdentity("a", "", "u"), "a:u", "http://m", "s:1", 7, 2, True, 3, '{"a": [1, 2]}')
    written = messages.write_quorum((Quorum(5, (member,)), 1.5))
    quorum = bytes.fromhex("0805") + b"\x12" + REQUEST[1:] + bytes.fromhex("1a080801" + "1080cab5ee01")
    assert written == b"\x0a" + bytes([len(quorum)]) + quorum
    assert messages.write_nothing(None) == b""
