"""One group's membership in the quorum: torchft's Manager, configured so that it survived every tested fault."""

from __future__ import annotations

import concurrent.futures
import logging
import re
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import TCPStore
from torchft._torchft import LighthouseClient
from torchft.manager import REPLICA_ID_KEY, Manager
from torchft.process_group import ProcessGroupNCCL

from holdfast_train.errors import QuorumAway, Refused, TrainError
from holdfast_train.failure.breaking import BreakableGloo, CollectiveGuard
from holdfast_train.failure.events import REQUEUE
from holdfast_train.failure.lines import Lines
from holdfast_train.failure.lookout import Lookout
from holdfast_train.peers.catchup import find_peers
from holdfast_train.peers.proof import replica_name
from holdfast_train.peers.transport import PeerTransport
from holdfast_train.ranks import RankGroup
from holdfast_train.settings import TrainSettings

log = logging.getLogger(__name__)

_LEAVE_S = 1.0
_DONE_S = 10.0
"""How long the end is reported to a quorum service that does not answer: it may be restarting."""
_AGAIN_S = 0.5
_LOOK_S = 2.0
"""After this long a wait for the quorum is checked: torchft's Manager does not report a refusal."""
_REFUSED = re.compile(r'status: (?:PermissionDenied|Unauthenticated), message: "((?:[^"\\]|\\.)*)"')
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class StepPosition:
    """A group's position in one step: its rank among the present groups."""

    rank: int
    present: int
    quorum_id: int
    """Id of the quorum that agreed on it; one id belongs to one list of members."""
    part: tuple[int, int] | None = None
    """(i, n): the i-th of the n computing groups. None: healed in this step, so that no group waits longer than that takes."""


class Membership:
    """Membership of a group. Create it when the group is ready to train: a Manager that requests no steps delays all other groups."""

    def __init__(
        self,
        settings: TrainSettings,
        ranks: RankGroup,
        save: Callable[[], dict[str, Any]],
        load: Callable[[dict[str, Any]], None],
        interrupted: Callable[[], None] | None = None,
        waiting: Callable[[], None] | None = None,
    ) -> None:
        """``interrupted``: called during a wait for the quorum; raises to end the wait. ``waiting``: called when the wait for other
        groups, or for a place, takes some seconds; may raise to leave. Raises Refused and TrainError."""
        self._settings, self._interrupted = settings, interrupted or (lambda: None)
        self._waits = waiting or (lambda: None)
        incarnation = ranks.told(settings.incarnation)
        self._name = replica_name(settings.token, str(settings.group), incarnation)
        if refusal := self._refusal(self._name + ":before"):
            raise refusal
        collective = timedelta(seconds=settings.collective_timeout_s)
        # A separate store: the other groups meet in it, so it must not end with a launcher.
        self._store = _listening_store(settings.address) if ranks.rank == 0 else None
        where = ranks.told(f"{settings.address} {self._store.port}" if self._store is not None else "")
        store_address, store_port = where.rsplit(" ", 1)
        self.transport = PeerTransport(settings.token, settings.address)
        cuda = dist.is_nccl_available() and torch.cuda.is_available()
        self._peers = (ProcessGroupNCCL if cuda else BreakableGloo)(timeout=collective)
        self._lines = Lines()
        try:
            with self._lines.noted():
                self.manager = Manager(
                    pg=self._peers,
                    load_state_dict=load,
                    state_dict=save,
                    min_replica_size=settings.sizes.least,
                    use_async_quorum=False,  # a healed group takes part in the same step, with an equal share
                    timeout=collective,
                    quorum_timeout=timedelta(seconds=settings.quorum_timeout_s),
                    quorum_retries=settings.quorum_retries,
                    rank=ranks.rank,
                    world_size=ranks.count,
                    store_addr=store_address,
                    store_port=int(store_port),
                    lighthouse_addr=settings.quorum,
                    replica_id=self._name if settings.ours else f"group_{settings.group}",
                    hostname=settings.address,
                    checkpoint_transport=self.transport,
                )
        except (RuntimeError, TimeoutError) as error:
            raise TrainError(f"the quorum at {settings.quorum} does not answer: {_first_line(error)}") from error
        self._answers = _Answers(self.manager._client)
        self.manager._client = self._answers
        # Read back: the Manager appends a number to its own name.
        self._wire_id = self.manager._store.get(REPLICA_ID_KEY).decode()
        self._waiter = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="quorum-wait")
        self._waiting: concurrent.futures.Future[Any] | None = None
        self._guard = CollectiveGuard(self._members_left, self._break_off) if settings.ours else None
        self._lookout = Lookout(lambda: self._refusal(self._wire_id))
        self._left = False

    def peers(self) -> list[str]:
        """URLs where training groups serve the state of this rank; empty where there are none, or without Holdfast's quorum service."""
        if not self._settings.ours:
            return []
        return find_peers(self._settings.quorum, f"{self._name}:look", self._settings.rank, self._settings.sizes.least)

    @property
    def quorum_id(self) -> int:
        """Id of the present quorum: torchft 0.2.0, which is pinned, has no public access to it."""
        return int(self.manager._quorum_id)

    @property
    def step(self) -> int:
        return int(self.manager.current_step())

    def gather(self) -> StepPosition | None:
        """Wait for the quorum of a step and take a peer's state if ours is old. None: it failed, start again.

        Raises Refused when the rendezvous refuses this group, QuorumAway."""
        try:
            self._patiently(self.manager.start_quorum)
        except (RuntimeError, TimeoutError) as error:
            self._interrupted()
            self._waits()
            raise self._refusal(self._wire_id) or QuorumAway(
                f"the quorum at {self._settings.quorum} has no place for us: {_first_line(error)}"
            ) from error
        rank = self.manager.participating_rank()
        if self.manager.errored() is not None or rank is None:
            return None
        present = int(self.manager.num_participants())
        return StepPosition(int(rank), present, self.quorum_id, self._part(int(rank), present))

    def _part(self, rank: int, present: int) -> tuple[int, int] | None:
        """Groups compute that had the state at their request; all do in the first step, and where the others are too few."""
        told = self._answers.last
        if told is None or told.max_step == 0 or not self._settings.sizes.usable(told.max_world_size):
            return rank, present
        return None if told.max_replica_rank is None else (int(told.max_replica_rank), int(told.max_world_size))

    def give_up(self) -> None:
        """End a step without a result."""
        self.manager.report_error(TrainError("the step was given up"))
        self.commit()

    def summing(self) -> None:
        """The groups' sums start; they end with the commit. They do not wait for members that the quorum service reports as gone."""
        if self._guard is not None:
            self._guard.begin(int(self.manager.num_participants()))

    def commit(self) -> bool:
        """Whether the step went well in every rank of this group; only then may its model change."""
        if torch.accelerator.is_available():
            torch.accelerator.synchronize()  # this thread's stream: another thread votes
        try:
            return bool(self._patiently(self.manager.should_commit, to_the_end=True))
        finally:
            if self._guard is not None:
                self._guard.end()

    def resume(self, step: int) -> None:
        """Set the number of committed steps: our state is from an earlier start, or from a checkpoint."""
        self.manager.load_state_dict({"step": step, "batches_committed": 0})

    def _members_left(self) -> int | None:
        """Number of members of the present quorum not known to be gone. Called from the guard's thread."""
        timeout = timedelta(seconds=_LOOK_S)
        try:
            seen = LighthouseClient(self._settings.quorum, connect_timeout=timeout).quorum(
                f"{self._name}:guard!observe", timeout=timeout
            )
        except (RuntimeError, TimeoutError, ValueError):
            return None
        return len(seen.participants) if int(seen.quorum_id) == self.quorum_id else 0

    def _break_off(self) -> None:
        if isinstance(self._peers, BreakableGloo):
            self._peers.break_off()
        else:
            self._peers.abort()

    def abandon(self, *, alone: bool) -> None:
        """Leave in the middle of a step: the peers' collectives with us fail now, and not at their timeout. A group that trains
        alone does not report it: it has the job's only state, and others must not start from zero before it is back."""
        self.leave(told=not alone)
        self._peers.abort(errored=False)
        self._peers.shutdown()

    def leave(self, *, told: bool = True, done: bool = False) -> None:
        """Report the leave to Holdfast's quorum service, so that no one waits for our missing heartbeats. Never raises if it does
        not answer. ``done``: also report the training as done, so that no one waits for a place in it."""
        if self._left:
            return
        self._left = True
        self._lookout.stop()
        if self._guard is not None:
            self._guard.stop()
        self.manager.shutdown(wait=False)
        self._waiter.shutdown(wait=False)
        if self._waiting is not None and not self._waiting.done():
            self._lines.cut()  # torchft's Manager would retry for minutes, and keep the process from ending
        if not (told and self._settings.ours):
            return
        if done:
            self._say("done", _DONE_S)
        else:
            self._say("leave", 0.0)

    def _say(self, word: str, within_s: float) -> None:
        """Send a final message as a heartbeat; retried for this long."""
        until_s, timeout = time.monotonic() + within_s, timedelta(seconds=_LEAVE_S)
        while True:
            try:
                client = LighthouseClient(self._settings.quorum, connect_timeout=timeout)
                client.heartbeat(f"{self._wire_id}!{word}", timeout=timeout)
            except (RuntimeError, TimeoutError) as error:
                if time.monotonic() < until_s:
                    time.sleep(_AGAIN_S)
                    continue
                log.warning("event=%s_not_heard reason=%r", word, _first_line(error))
            return

    def _patiently(self, what: Callable[[], _T], *, to_the_end: bool = False) -> _T:
        """Call in a thread, so that a wait of minutes can be checked and ended. Raises what ``what`` raises, and Refused.
        ``to_the_end``: a step is running, and is finished even if another group has reported the training as done."""
        device = torch.accelerator.current_device_index() if torch.accelerator.is_available() else None

        def there() -> _T:
            if device is not None:
                torch.accelerator.set_device_index(device)  # a thread starts with the first device
            return what()

        self._lookout.asking()
        self._waiting = waiting = self._waiter.submit(there)
        look_s = time.monotonic() + _LOOK_S
        while True:
            done, _pending = concurrent.futures.wait([waiting], timeout=0.2)
            if done:
                self._lookout.busy()
                return waiting.result()
            self._interrupted()
            if time.monotonic() >= look_s:
                look_s = time.monotonic() + _LOOK_S
                refusal = self._refusal(self._wire_id)
                if refusal is not None and not (to_the_end and refusal.status == 0):
                    raise refusal
                if self._answers.asking:
                    self._waits()

    def _refusal(self, name: str) -> Refused | None:
        """Ask Holdfast's quorum service, as an observer, whether it refuses this name; None: no refusal, or no answer."""
        if not self._settings.ours:
            return None
        timeout = timedelta(seconds=_LOOK_S)
        try:
            client = LighthouseClient(self._settings.quorum, connect_timeout=timeout)
            client.quorum(f"{name}!observe", timeout=timeout)
        except (RuntimeError, TimeoutError, ValueError) as error:
            return refused_by(str(error))
        return None


class _Answers:
    """The Manager's client, and its last answer: torchft 0.2.0 does not expose which members of a quorum had the state."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.last: Any = None
        self.asking = False
        """Whether the quorum is still missing; afterwards a peer's state may still be transferred."""

    def _quorum(self, *asked: Any, **named: Any) -> Any:
        self.asking = True
        try:
            self.last = self._client._quorum(*asked, **named)
        finally:
            self.asking = False
        return self.last

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


def refused_by(answer: str) -> Refused | None:
    """The refusal in an answer of the quorum service; None for any other failure. Pure. An evicted group returns by Slurm's
    requeue; if the training is done, this group ends with status 0."""
    match = _REFUSED.search(answer)
    if match is None:
        return None
    if match[1].endswith(": the training is done"):
        return Refused(match[1][:300], 0)
    return Refused(match[1][:300], REQUEUE if "cannot come back: evicted" in match[1] else 1)


def _listening_store(address: str) -> TCPStore:
    """A store that listens only on this address; its default is all addresses."""
    try:
        family = socket.getaddrinfo(address, 0, type=socket.SOCK_STREAM)[0][0]
        listener = socket.create_server((address, 0), family=family)
    except OSError as error:
        raise TrainError(f"HOLDFAST_ADDRESS={address} is not an address of this machine: {error}") from error
    port = listener.getsockname()[1]
    return TCPStore(address, port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach())


def _first_line(error: BaseException) -> str:
    return str(error).splitlines()[0][:300] if str(error) else type(error).__name__
