"""A group that catches up with a running job: to the same bits, from several peers, and whatever is wrong with one of them."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the extra 'train' is not installed")
pytest.importorskip("torchft", reason="the extra 'train' is not installed")

from holdfast_train.peers import catchup  # noqa: E402
from holdfast_train.peers.history import History  # noqa: E402
from holdfast_train.peers.replica import At, CaughtUp, Replica  # noqa: E402
from holdfast_train.peers.sharing import Sharing  # noqa: E402
from holdfast_train.peers.transport import PeerTransport  # noqa: E402
from holdfast_train.tensors.buckets import Buckets  # noqa: E402

pytestmark = pytest.mark.slow
_SOON = timedelta(seconds=10)
_QUORUM = 7


class Counter:
    """An object of the user's that no step brings about."""

    def __init__(self) -> None:
        self.value = 0

    def state_dict(self) -> dict[str, int]:
        return {"value": self.value}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.value = state["value"]


class Group:
    """A replica group without a quorum: it steps when called."""

    def __init__(self, *, width: int = 40, word: str = "a", check: Callable[[], None] = lambda: None) -> None:
        torch.manual_seed(1)
        self.model = torch.nn.Sequential(
            torch.nn.Linear(width, width), torch.nn.BatchNorm1d(width), torch.nn.Linear(width, 3)
        )
        self.unused = torch.nn.Parameter(torch.ones(5))
        self.model.register_parameter("unused", self.unused)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2, weight_decay=0.1)
        self.buckets, self.counter = Buckets(self.model.parameters()), Counter()
        self.replica = Replica(self.model, self.optimizer, self.buckets, {"counter": self.counter})
        self.transport = PeerTransport(word, "127.0.0.1")
        self.sharing = Sharing(self.replica, self.transport, word, check)
        self.steps, self.width = 0, width

    @property
    def history(self) -> History:
        return self.sharing._history

    def step(self, quorum: int = _QUORUM) -> None:
        """As a session does one: the gradients are the same in every group."""
        torch.manual_seed(1000 + self.steps)
        self.optimizer.zero_grad()
        for group in self.optimizer.param_groups:
            group["lr"] = 1e-2 / (1 + self.steps)
        torch.nn.functional.dropout(self.model(torch.randn(8, self.width)), 0.3).square().sum().backward()
        self.buckets.reduce(lambda _flat: _Done())
        self.steps += 1
        self.sharing.step(self.buckets.divide(4), self.steps, quorum)
        self.counter.value += 3

    def offer(self) -> None:
        """As torchft's Manager does in a step with a group to heal."""
        state = {
            "user": {"default": {"whole": torch.zeros(3)}},
            "torchft": {"step": self.steps, "batches_committed": 9},
        }
        self.transport.send_checkpoint([1], self.steps, state, _SOON)

    def join(self, source: Group) -> Any:
        """As torchft's Manager does in the group that is healed; what came, which was also loaded."""
        got = self.transport.recv_checkpoint(0, source.transport.metadata(), source.steps, _SOON)
        self.sharing.take(got["user"]["default"])
        self.steps = got.get("torchft", {}).get("step", 0)
        return got["user"]["default"]

    def bits(self) -> list[bytes]:
        held = [v for p in self.model.parameters() for v in (p.detach(), *self.optimizer.state.get(p, {}).values())]
        return [bytes(t.reshape(-1).view(torch.uint8).tolist()) for t in held]


class _Done:
    def wait(self) -> None:
        """The sum over one group."""


@contextmanager
def going_on(*groups: Group, pause_s: float = 0.02) -> Iterator[None]:
    """They train in lock step while the test runs."""
    over = threading.Event()

    def train() -> None:
        while not over.wait(pause_s):
            for group in groups:
                group.step()

    training = threading.Thread(target=train)
    training.start()
    try:
        yield
    finally:
        over.set()
        training.join()


@pytest.fixture
def groups() -> Iterator[Callable[..., Group]]:
    made: list[Group] = []

    def make(**options: Any) -> Group:
        made.append(Group(**options))
        return made[-1]

    yield make
    for group in made:
        group.transport.shutdown()


def urls(*groups: Group) -> list[str]:
    return [group.transport.metadata() for group in groups]


def follow(newcomer: Group, *peers: Group) -> bool:
    return newcomer.sharing._catch_up.follow(urls(*peers), newcomer.steps)


def test_a_newcomer_catches_up_with_peers_that_go_on_and_joins_to_the_same_bits(groups: Callable[..., Group]) -> None:
    a, b, newcomer = groups(), groups(), groups()
    for group in (a, b, a, b):
        group.step()
    with going_on(a, b):
        assert follow(newcomer, a, b)
    assert a.steps == b.steps
    assert newcomer.sharing._catch_up.at is not None
    assert a.steps - newcomer.sharing._catch_up.at.step <= 3
    a.step()
    b.step()
    a.offer()
    got = newcomer.join(a)
    assert isinstance(got, CaughtUp)
    assert 1 <= len(got.deltas) <= 4
    assert (newcomer.steps, newcomer.counter.value) == (a.steps, a.counter.value)
    assert torch.equal(newcomer.model[1].running_mean, a.model[1].running_mean)
    for _ in range(3):
        assert newcomer.bits() == a.bits() == b.bits()
        for group in (a, b, newcomer):
            group.transport.disallow_checkpoint()
            group.step()
    assert newcomer.bits() == a.bits()


def test_two_newcomers_share_what_their_peer_keeps_and_it_is_let_go_when_both_are_in(
    groups: Callable[..., Group],
) -> None:
    a, one, two = groups(), groups(), groups()
    a.step()
    with going_on(a):
        assert follow(one, a)
        assert follow(two, a)
    assert one.sharing._catch_up._taken == two.sharing._catch_up._taken
    a.offer()
    one.join(a)
    two.join(a)
    assert one.bits() == two.bits() == a.bits()
    _until(lambda: a.history._users == 0)
    a.step()
    assert (a.history.pace().snapshot, len(a.history._deltas), a.history._snapshot) == (-1, 0, None)


def test_an_optimizer_that_clips_in_place_is_repeated_with_the_gradients_it_was_given(
    groups: Callable[..., Group],
) -> None:
    a, newcomer = groups(), groups()
    for group in (a, newcomer):
        parameters = list(group.model.parameters())
        group.optimizer.register_step_pre_hook(
            lambda _o, _a, _k, parameters=parameters: torch.nn.utils.clip_grad_norm_(parameters, 0.01) and None
        )
    a.step()
    with going_on(a):
        assert follow(newcomer, a)  # the step whose state is taken shows it
    a.offer()
    assert isinstance(newcomer.join(a), CaughtUp)
    assert newcomer.bits() == a.bits()


def test_a_peer_that_came_another_way_gives_its_whole_state(groups: Callable[..., Group]) -> None:
    a, b, newcomer = groups(), groups(), groups()
    a.step()
    b.step()
    with going_on(a, b):
        assert follow(newcomer, a)
    at = newcomer.sharing._catch_up.at
    assert at is not None
    newcomer.sharing._catch_up.at = At(at.step, at.quorum + 1)
    b.offer()
    assert set(newcomer.join(b)) == {"whole"}
    assert newcomer.sharing._catch_up.at is None


@pytest.mark.parametrize("wrong", ["corrupt", "dead", "slow", "lies"])
def test_a_peer_that_fails_is_done_without(
    wrong: str, groups: Callable[..., Group], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("holdfast_train.peers.serving", "holdfast_train.peers.fetching"):
        monkeypatch.setattr(f"{module}.CHUNK_BYTES", 1024)
    a, b, newcomer = groups(), groups(), groups()
    a.step()
    b.step()
    honest, asked = b.transport._server.answer, [0]
    ready = threading.Event()

    def answer(path: str, nonce: str | None, shown: str | None) -> Any:
        status, body, proof = honest(path, nonce, shown)
        if "/snapshot/" not in path or path.endswith(("arm", "done", "index")):
            return status, body, proof
        asked[0] += 1
        ready.set()
        if wrong == "corrupt":
            return status, bytes(len(body)), proof
        if wrong == "dead":
            b.transport.shutdown()
            raise OSError("gone")
        if wrong == "lies":
            return status, bytes(body) + bytes(body), proof
        time.sleep(9.0)
        return status, body, proof

    honest_a = a.transport._server.answer

    def after_it(path: str, nonce: str | None, shown: str | None) -> Any:
        if path.endswith("/0") and "/snapshot/" in path:
            ready.wait(10)  # both are asked, whichever is faster
        return honest_a(path, nonce, shown)

    b.transport._server.answer = answer  # type: ignore[method-assign]
    a.transport._server.answer = after_it  # type: ignore[method-assign]
    with going_on(a, b, pause_s=0.5):
        began_s = time.monotonic()
        assert follow(newcomer, a, b)
    assert asked[0] > 0
    assert wrong != "slow" or time.monotonic() - began_s < 8.5
    a.offer()
    newcomer.join(a)
    assert newcomer.bits() == a.bits()


def test_peers_that_do_not_go_on_are_not_waited_for(
    groups: Callable[..., Group], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(catchup, "_STALL_S", 0.2)
    a, newcomer = groups(), groups()
    a.step()
    assert not follow(newcomer, a)
    assert "this group joins at once" in caplog.text
    assert newcomer.sharing._catch_up.at is None


def test_nobody_to_catch_up_with_is_seen_at_once(groups: Callable[..., Group]) -> None:
    fresh, newcomer = groups(), groups()
    assert not follow(newcomer, fresh)
    fresh.transport.shutdown()
    assert not follow(newcomer, fresh)


def test_a_forged_token_is_told_nothing(groups: Callable[..., Group], caplog: pytest.LogCaptureFixture) -> None:
    a, forger = groups(), groups(word="another")
    a.step()
    with going_on(a):
        assert not follow(forger, a)
    assert "peer_refused" in caplog.text
    assert a.history.pace().snapshot == -1


def test_another_program_s_steps_are_not_repeated(
    groups: Callable[..., Group], caplog: pytest.LogCaptureFixture
) -> None:
    a, other = groups(), groups(width=8)
    before = other.bits()
    a.step()
    with going_on(a):
        assert not follow(other, a)
    assert "a peer's model differs from ours" in caplog.text
    assert other.bits() == before


def test_a_group_that_is_told_to_leave_does_so_while_it_catches_up(groups: Callable[..., Group]) -> None:
    def check() -> None:
        raise SystemExit(85)

    a, leaving = groups(), groups(check=check)
    a.step()
    with pytest.raises(SystemExit):
        follow(leaving, a)


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def kept(state: Any, clock: Clock, free_bytes: int = 1 << 40) -> History:
    return History(lambda: {"w": state}, lambda: state.numel() * state.element_size(), clock, lambda: free_bytes)


def go(history: History, step: int, gradient: float = 0.0) -> bool:
    history.before_step([torch.full((256,), gradient)])
    return history.committed(step, 1, [{"lr": 0.1}])


def test_nothing_is_kept_until_somebody_asks_nor_when_nobody_does_any_more() -> None:
    clock = Clock()
    history = kept(torch.zeros(256), clock)
    assert not go(history, 1)
    assert history.find("snapshot", 1) == (410, None)
    assert history.arm(2).snapshot == 2
    assert history.find("snapshot", 2) == (404, None)
    assert history.find("delta", 1)[0] == 404
    assert not go(history, 2)
    assert go(history, 3)
    assert history.find("snapshot", 2)[0] == history.find("delta", 2)[0] == 200
    clock.now_s += 31
    assert not go(history, 4)
    assert history.find("snapshot", 2) == history.find("delta", 2) == (410, None)


def test_a_state_that_is_past_or_too_large_is_not_promised(caplog: pytest.LogCaptureFixture) -> None:
    history = kept(torch.zeros(256), Clock(), free_bytes=2000)
    go(history, 1)
    assert history.arm(1).snapshot == -1
    assert history.arm(2).snapshot == -1
    assert "reason=memory" in caplog.text


def test_history_is_bounded_and_says_so_to_who_needs_what_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast_train.peers.history.HISTORY_BYTES", 0)
    history = kept(torch.zeros(256), Clock())
    history.arm(1)
    go(history, 1)
    for step in range(2, 12):
        go(history, step)
    assert history._delta_bytes <= 4 * 1024
    assert history.find("delta", 1) == (410, None)
    assert history.find("delta", 10)[0] == 200
    assert history.find("snapshot", 1) == (410, None)
    assert history.arm(12).snapshot == 12


def test_the_copy_is_of_the_step_that_was_asked_for_though_the_loop_goes_on() -> None:
    state = torch.zeros(1 << 20)
    history = kept(state, Clock())
    history.arm(1)
    go(history, 1)
    history.before_step([torch.zeros(256)])  # waits for the copy
    state.add_(1)
    _until(lambda: history.find("snapshot", 1)[0] == 200)
    found = history.find("snapshot", 1)[1]
    assert found is not None
    assert not any(found.read(0, found.size_bytes))


def test_a_step_that_came_from_a_peer_ends_what_was_kept() -> None:
    history = kept(torch.zeros(256), Clock())
    history.arm(1)
    go(history, 1)
    assert go(history, 2)
    assert not go(history, 4)
    assert history.find("delta", 1) == (410, None)


@pytest.mark.parametrize(
    "said", [b"", b"[]", b'{"step": 1}', b'{"step":"1","step_s":0,"idle_s":0,"snapshot":0}', b"\xff"]
)
def test_a_peer_that_says_nonsense_is_done_without(said: bytes, groups: Callable[..., Group]) -> None:
    peer, newcomer = groups(), groups()
    peer.transport._server._words = lambda path, match: (200, said)  # type: ignore[method-assign]
    assert not follow(newcomer, peer)


def test_a_pace_is_a_few_words_of_json(groups: Callable[..., Group]) -> None:
    peer = groups()
    peer.step()
    status, said = peer.transport._server._answer("/v1/pace")
    assert (status, json.loads(bytes(said))["step"]) == (200, 1)


def _until(what: Callable[[], bool]) -> None:
    until_s = time.monotonic() + 10
    while not what():
        assert time.monotonic() < until_s
        time.sleep(0.01)
