"""Catch-up of a group that joins a running job: it gets the state while the others continue.

It fetches its peers' state right after one step, from all of them in parallel; repeats the steps since, with the gradients
that its peers keep; and joins the quorum only when it is close to them. The last missing step or two come in the same way in
the step in which it joins."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

from torchft._torchft import LighthouseClient, ManagerClient

from holdfast_train.errors import TransferFailed
from holdfast_train.peers.fetching import ask, fetch
from holdfast_train.peers.history import TrainingPace
from holdfast_train.peers.replica import At, CaughtUp, Replica
from holdfast_train.tensors.codec import unpack

log = logging.getLogger(__name__)

MISSING_MAX = 16
"""Steps that may still be missing when a group joins: with more, the whole state is faster."""
SOURCES_MAX = 8
"""Peers that are asked; more would be no faster."""
ROUNDS = 2
"""How often the state is fetched before the group joins without it."""
_ANSWER_S = 2.0
_STALL_S = 3.0
_STALL_STEPS = 4
"""Peers that commit nothing for this long are waiting for a group, maybe for this one."""
_TRANSFER_S = 600.0
_NO_GAIN = 3
"""Consecutive repeated steps without getting closer."""
_LOOK_AGAIN_S = 0.02


class CatchUp:
    """Catch-up of one rank. ``at``: its present position; None: it has none, or takes part already."""

    def __init__(
        self, replica: Replica, key: bytes, check: Callable[[], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """``check`` is called from time to time, and raises to end it."""
        self._replica, self._key, self._check, self._clock = replica, key, check, clock
        self._sources: list[str] = []
        self._taken = 0
        self._tried = -1
        """The step whose state was requested last: after a failure another one is, possibly from other peers."""
        self.at: At | None = None

    def follow(self, sources: Sequence[str], step: int) -> bool:
        """Catch up from our own step. Returns whether this group is close to its peers now; otherwise it needs the whole state."""
        began_s = self._clock()
        for _ in range(ROUNDS):
            try:
                if self._follow(list(sources), step):
                    took_ms = round(1000 * (self._clock() - began_s))
                    log.info("event=caught_up at=%s took_ms=%d sources=%d", self.at, took_ms, len(self._sources))
                    return True
            except TransferFailed as error:
                log.warning("event=catch_up_failed reason=%r", str(error))
            else:
                break
        return False

    def missing(self, metadata: str, step: int, timeout_s: float) -> dict[str, Any] | None:
        """The difference to the peer at ``metadata`` after this step, in the form of torchft's state. None: our state does not lead
        there. Raises TransferFailed."""
        at = self.at
        if at is None or not 0 <= step - at.step <= MISSING_MAX:
            return None
        deadline_s = self._clock() + timeout_s
        sources = [metadata, *(url for url in self._sources if url != metadata)]
        deltas = []
        with ThreadPoolExecutor(1, thread_name_prefix="peer-rest") as pool:
            rest = pool.submit(fetch, metadata, f"rest/{step}", self._key, timeout_s)
            for number in range(at.step, step):
                deltas.append(self._delta(sources, at, number, deadline_s - self._clock()))
                at = At(number + 1, deltas[-1]["quorum"])
            said = unpack(rest.result())
        if said["rest"]["quorum"] != at.quorum:
            raise TransferFailed(f"the peer came to step {step} another way than we did")
        return {"user": {"default": CaughtUp(deltas, said["rest"])}, "torchft": said["torchft"]}

    def over(self) -> None:
        """This group takes part: peers need not keep anything for it."""
        if self.at is not None:
            sources, step, self.at = self._sources, self._taken, None
            threading.Thread(target=self._all, args=(sources, f"snapshot/{step}/done"), daemon=True).start()

    def _follow(self, sources: list[str], own: int) -> bool:
        paces = self._all(sources, "pace")
        newest = max((pace.step for pace in paces.values()), default=0)
        if newest <= own:
            return False
        kept = [pace.snapshot for pace in paces.values() if pace.snapshot not in (-1, self._tried)]
        self._tried = step = max(kept, default=newest + 1)
        armed = self._all([*paces], f"snapshot/{step}/arm")
        self._sources = [url for url, pace in armed.items() if pace.snapshot == step]
        if not self._sources:
            raise TransferFailed(f"no peer keeps its state after step {step}")
        self._wait(step)
        state = unpack(fetch(self._sources, f"snapshot/{step}", self._key, _TRANSFER_S))
        if not isinstance(state, dict) or state.get("step") != step or type(state.get("quorum")) is not int:
            raise TransferFailed("the answer is not a step's state")
        self._replica.load_bulk(state["bulk"])
        self.at, self._taken = At(step, state["quorum"]), step
        return self._repeat(self.at)

    def _wait(self, step: int) -> None:
        """Wait until that step is done. Raises TransferFailed if the others do not continue: they may be waiting for us."""
        while True:
            self._check()
            paces = self._all(self._sources, "pace").values()
            if any(pace.step >= step for pace in paces):
                return
            if not paces or min(p.idle_s - _STALL_STEPS * p.step_s for p in paces) > _STALL_S:
                raise TransferFailed("the peers do not advance: this group joins at once")
            time.sleep(_LOOK_AGAIN_S)

    def _repeat(self, at: At) -> bool:
        """Repeat the steps since, until none is left or the others are too fast."""
        behind, without_gain = 1 << 30, 0
        while True:
            self._check()
            paces = self._all(self._sources, "pace")
            newest = max((pace.step for pace in paces.values()), default=-1)
            left = newest - at.step
            without_gain = without_gain + 1 if left >= behind else 0
            behind = min(behind, left)
            if left <= 0 or (without_gain >= _NO_GAIN and left <= MISSING_MAX):
                return newest >= 0
            if without_gain >= _NO_GAIN * MISSING_MAX:
                raise TransferFailed("the others are too fast to catch up with")
            delta = self._delta(self._sources, at, at.step, _TRANSFER_S)
            self._replica.replay(delta)
            self.at = at = At(at.step + 1, delta["quorum"])

    def _delta(self, sources: list[str], at: At, number: int, timeout_s: float) -> dict[str, Any]:
        """Repeat one step. Raises TransferFailed, also if it does not follow ours."""
        delta = unpack(fetch(sources, f"delta/{number}", self._key, timeout_s))
        if not isinstance(delta, dict) or type(delta.get("quorum")) is not int or delta.get("before") != at.quorum:
            raise TransferFailed(f"step {number} of the peers does not follow on ours")
        self._replica.check(delta)
        return delta

    def _all(self, sources: list[str], path: str) -> dict[str, TrainingPace]:
        """The pace of the peers that answer."""
        found = {}
        with ThreadPoolExecutor(max(1, len(sources)), thread_name_prefix="peer-ask") as pool:
            asked = {url: pool.submit(ask, url, f"/v1/{path}", self._key, _ANSWER_S) for url in sources}
        for url, answer in asked.items():
            try:
                found[url] = _pace(answer.result())
            except TransferFailed as error:
                log.info("event=peer_silent reason=%r", str(error))
        return found


def find_peers(quorum: str, name: str, rank: int, least: int) -> list[str]:
    """URLs where the members of a rendezvous serve the state of this rank, queried as an observer. Empty when fewer than
    ``least`` are present, which then wait for us, or when there is no answer."""
    timeout = timedelta(seconds=_ANSWER_S)
    try:
        seen = LighthouseClient(quorum, connect_timeout=timeout).quorum(f"{name}!observe", timeout=timeout)
        addresses = [member.address for member in seen.participants]
        if len(addresses) < least:
            return []
    except (RuntimeError, TimeoutError, ValueError) as error:
        log.info("event=no_look_at_the_quorum reason=%r", str(error)[:200])
        return []

    def where(address: str) -> str:
        try:
            return str(ManagerClient(address, connect_timeout=timeout)._checkpoint_metadata(rank, timeout=timeout))
        except (RuntimeError, TimeoutError) as error:
            log.info("event=peer_silent peer=%s reason=%r", address, str(error)[:200])
            return ""

    with ThreadPoolExecutor(max(1, min(len(addresses), SOURCES_MAX)), thread_name_prefix="peer-look") as pool:
        found = list(pool.map(where, addresses[:SOURCES_MAX]))
    return [url for url in found if url]


def _pace(said: bytes) -> TrainingPace:
    """Raises TransferFailed."""
    try:
        pace = TrainingPace(**json.loads(said))
        if type(pace.step) is int and type(pace.snapshot) is int and pace.step_s >= 0 and pace.idle_s >= 0:
            return pace
    except (TypeError, ValueError) as error:
        raise TransferFailed("a peer does not report its step") from error
    raise TransferFailed("a peer does not report its step")
