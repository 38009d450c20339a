"""State between peers: complete and proven, or one clear line and nothing taken over."""

from __future__ import annotations

import http.client
import json
import math
import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the extra 'train' is not installed")

from holdfast_train.errors import TransferFailed  # noqa: E402
from holdfast_train.peers import serving, transport  # noqa: E402
from holdfast_train.tensors.codec import Packed, pack, unpack  # noqa: E402

pytestmark = pytest.mark.slow
_SOON = timedelta(seconds=10)


def state() -> dict[str, Any]:
    generator = torch.Generator().manual_seed(1)
    return {
        "model": {
            "w": torch.randn(300, 7, generator=generator).t(),
            "b": torch.randn(5).bfloat16(),
            "none": torch.empty(0, 3),
        },
        "optim": {
            "state": {0: {"step": torch.tensor(3.0)}},
            "groups": [{"betas": (0.9, 1e-300), "x": None, "f": True}],
        },
        "flags": [torch.tensor([True, False]), math.inf, -7, "ü"],
    }


def same(a: object, b: object) -> bool:
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return isinstance(b, dict) and list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


@pytest.fixture
def sender() -> Iterator[transport.PeerTransport]:
    made = transport.PeerTransport("token", "127.0.0.1")
    yield made
    made.shutdown()


@pytest.fixture
def receiver() -> Iterator[transport.PeerTransport]:
    made = transport.PeerTransport("token", "127.0.0.1")
    yield made
    made.shutdown()


def take(receiver: transport.PeerTransport, sender: transport.PeerTransport, step: int = 4) -> Any:
    return receiver.recv_checkpoint(0, sender.metadata(), step, _SOON)


def test_a_state_arrives_bit_by_bit_over_many_chunks(
    sender: transport.PeerTransport, receiver: transport.PeerTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("holdfast_train.peers.serving", "holdfast_train.peers.fetching"):
        monkeypatch.setattr(f"{module}.CHUNK_BYTES", 1000)
    sender.send_checkpoint([1], 4, state(), _SOON)
    assert same(take(receiver, sender)["optim"], state()["optim"])
    sent = state()
    sender.send_checkpoint([1], 4, sent, _SOON)
    got = take(receiver, sender)
    assert same(got, sent)


def test_nothing_that_changed_while_it_was_read_is_handed_out(
    sender: transport.PeerTransport, receiver: transport.PeerTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = torch.ones(1000)
    sender.send_checkpoint([1], 4, {"w": weights}, _SOON)
    honest = serving.chunk

    def slowly(*asked: Any) -> Any:
        body = honest(*asked)
        sender.disallow_checkpoint()  # as a commit does, before the optimizer changes anything
        weights.add_(1)
        return body

    monkeypatch.setattr(serving, "chunk", slowly)
    with pytest.raises(TransferFailed, match="no longer has it"):
        take(receiver, sender)


def test_another_step_and_a_finished_one_are_not_handed_out(
    sender: transport.PeerTransport, receiver: transport.PeerTransport
) -> None:
    sender.send_checkpoint([1], 4, state(), _SOON)
    with pytest.raises(TransferFailed, match="no longer has it"):
        take(receiver, sender, step=3)
    sender.disallow_checkpoint()
    with pytest.raises(TransferFailed, match="did not offer it in time"):
        receiver.recv_checkpoint(0, sender.metadata(), 4, timedelta(seconds=0.1))
    assert receiver.failures == 2


def test_who_asks_before_the_state_is_copied_waits_for_it(
    sender: transport.PeerTransport, receiver: transport.PeerTransport
) -> None:
    sent = state()
    sender.send_checkpoint([1], 3, sent, _SOON)
    later = threading.Timer(0.2, sender.send_checkpoint, ([1], 4, sent, _SOON))
    later.start()
    assert same(take(receiver, sender), sent)
    later.join()


def test_a_forged_token_is_one_line_on_both_sides(
    sender: transport.PeerTransport, caplog: pytest.LogCaptureFixture
) -> None:
    forger = transport.PeerTransport("another", "127.0.0.1")
    sender.send_checkpoint([1], 4, state(), _SOON)
    with pytest.raises(TransferFailed, match="refuses our token") as caught:
        take(forger, sender)
    forger.shutdown()
    assert "\n" not in str(caught.value)
    assert "token" not in sender.metadata()
    assert [r.message for r in caplog.records if "peer_refused" in r.message]


def test_without_any_proof_nothing_is_told(sender: transport.PeerTransport) -> None:
    sender.send_checkpoint([1], 4, state(), _SOON)
    for path in ("/v1/4/index", "/v1/4/0", "/", "/v1/../etc"):
        with closing(http.client.HTTPConnection("127.0.0.1", int(sender.metadata().rsplit(":", 1)[1]), timeout=5)) as c:
            c.request("GET", path)
            answer = c.getresponse()
            assert (answer.status, answer.read()) == (403, b"")


def test_an_impostor_that_answers_in_a_peer_s_place_is_not_believed(receiver: transport.PeerTransport) -> None:
    impostor = transport.PeerTransport("another", "127.0.0.1")
    body = pack({"w": torch.zeros(3)}).index
    impostor._server.answer = lambda path, nonce, shown: (200, body, "00" * 32)  # type: ignore[method-assign]
    with pytest.raises(TransferFailed, match="corrupt, or from a process"):
        take(receiver, impostor)
    impostor.shutdown()


@pytest.mark.parametrize(("broken", "arrives"), [(1, True), (2, True), (3, False)])
def test_a_flipped_bit_is_asked_for_again_and_never_used(
    broken: int, arrives: bool, sender: transport.PeerTransport, receiver: transport.PeerTransport
) -> None:
    honest, left = sender._server.answer, [broken]

    def flipping(path: str, nonce: str | None, shown: str | None) -> tuple[int, bytes | bytearray | memoryview, str]:
        status, body, proof = honest(path, nonce, shown)
        if path.endswith("/0") and left[0]:
            left[0] -= 1
            spoiled = bytearray(body)
            spoiled[len(spoiled) // 2] ^= 1
            return status, bytes(spoiled), proof
        return status, body, proof

    sender._server.answer = flipping  # type: ignore[method-assign]
    sent = state()
    sender.send_checkpoint([1], 4, sent, _SOON)
    if arrives:
        assert same(take(receiver, sender), sent)
        assert receiver.failures == 0
    else:
        with pytest.raises(TransferFailed, match="corrupt"):
            take(receiver, sender)
        assert receiver.failures == 1


def test_a_peer_that_dies_in_the_middle_is_one_line(receiver: transport.PeerTransport) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def drop() -> None:
            for _ in range(3):
                connection, _address = listener.accept()
                connection.recv(4096)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
                connection.close()

        dropping = threading.Thread(target=drop)
        dropping.start()
        with pytest.raises(TransferFailed, match="IncompleteRead"):
            receiver.recv_checkpoint(0, f"http://127.0.0.1:{listener.getsockname()[1]}", 4, _SOON)
        dropping.join()


@pytest.mark.parametrize("url", ["", "file:///etc/passwd", "http://", "http://127.0.0.1"])
def test_an_address_that_is_none_is_one_line(url: str, receiver: transport.PeerTransport) -> None:
    with pytest.raises(TransferFailed, match="gives no address"):
        receiver.recv_checkpoint(0, url, 4, _SOON)


@pytest.mark.parametrize(
    "state_part",
    [
        {"x": ["float32", [10**6], 0]},
        {"x": ["float32", [-1], 0]},
        {"x": ["float32", [1], -64]},
        {"x": ["float32", [1], 3]},
        {"x": ["object", [1], 0]},
        {"x": ["float32", [True], 0]},
        {"p": []},
        {"d": [[1.5, 2]]},
        {"d": 5},
        {"x": [], "d": []},
        {},
        [1],
    ],
)
def test_an_index_that_makes_no_sense_is_one_line(state_part: object) -> None:
    with pytest.raises(TransferFailed, match="is invalid"):
        unpack(Packed(json.dumps({"bytes": 64, "state": state_part}).encode(), bytearray(64)))


def test_what_cannot_be_sent_is_said_by_the_sender() -> None:
    for wrong in ({"f": print}, {1.5: 1}, [torch.eye(2).to_sparse()], {"s": {1, 2}}):
        with pytest.raises(TypeError, match="cannot be sent"):
            pack(wrong)


def test_it_listens_on_one_address_only(sender: transport.PeerTransport) -> None:
    port = int(sender.metadata().rsplit(":", 1)[1])
    with pytest.raises(OSError, match="refused"), socket.create_connection(("127.0.0.2", port), timeout=2):
        pass
    assert serving.CHUNK_BYTES % 64 == 0
