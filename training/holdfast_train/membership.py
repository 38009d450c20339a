"""One group's place in the quorum: torchft's Manager, set up the way that came through every fault that was tried."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import TCPStore
from torchft._torchft import LighthouseClient
from torchft.manager import REPLICA_ID_KEY, Manager
from torchft.process_group import ProcessGroupGloo, ProcessGroupNCCL

from holdfast_train.errors import TrainError
from holdfast_train.proof import replica_name
from holdfast_train.settings import Settings
from holdfast_train.transport import PeerTransport

log = logging.getLogger(__name__)

_QUORUM_TIMEOUT_S = 15.0
_QUORUM_RETRIES = 30
"""Together: the quorum may be away for some 7 minutes, and training goes on 4 s after it is back."""
_LEAVE_S = 1.0


@dataclass(frozen=True, slots=True)
class Standing:
    """A group in one step: the rank-th of those that are present."""

    rank: int
    present: int


class Membership:
    """Made when the group is ready to train: a Manager that does not ask for steps holds up everybody else's."""

    def __init__(
        self, settings: Settings, save: Callable[[], dict[str, Any]], load: Callable[[dict[str, Any]], None]
    ) -> None:
        self._settings = settings
        collective = timedelta(seconds=settings.collective_timeout_s)
        # Its own store: the other groups meet in it, so it must not die with a launcher.
        self._store = TCPStore(settings.address, 0, is_master=True, wait_for_workers=False)
        self.transport = PeerTransport(settings.token, settings.address)
        name = replica_name(settings.token, str(settings.group), settings.incarnation)
        cuda = dist.is_nccl_available() and torch.cuda.is_available()
        self.manager = Manager(
            pg=(ProcessGroupNCCL if cuda else ProcessGroupGloo)(timeout=collective),
            load_state_dict=load,
            state_dict=save,
            min_replica_size=settings.sizes.least,
            use_async_quorum=False,  # who was healed takes part in the same step, with the same share as everybody
            timeout=collective,
            quorum_timeout=timedelta(seconds=_QUORUM_TIMEOUT_S),
            quorum_retries=_QUORUM_RETRIES,
            rank=0,
            world_size=1,
            store_addr=settings.address,
            store_port=self._store.port,
            lighthouse_addr=settings.quorum,
            replica_id=name if settings.ours else f"group_{settings.group}",
            hostname=settings.address,
            checkpoint_transport=self.transport,
        )
        self._wire_id = self._store.get(REPLICA_ID_KEY).decode()
        self._left = False

    @property
    def step(self) -> int:
        return int(self.manager.current_step())

    def gather(self) -> Standing | None:
        """Waits for the quorum of a step and takes a peer's state where ours is old. None: it failed, begin again.

        Raises TrainError when the quorum refuses this group or stays away."""
        try:
            self.manager.start_quorum()
        except (RuntimeError, TimeoutError) as error:
            raise TrainError(
                f"the quorum at {self._settings.quorum} has no place for us: {_first_line(error)}"
            ) from error
        rank = self.manager.participating_rank()
        if self.manager.errored() is not None or rank is None:
            self.give_up()
            return None
        return Standing(int(rank), int(self.manager.num_participants()))

    def give_up(self) -> None:
        """Ends a step without a result."""
        self.manager.report_error(TrainError("the step was given up"))
        self.commit()

    def commit(self) -> bool:
        """Whether this group's part of the step went well; only then may its model change."""
        return bool(self.manager.should_commit())

    def leave(self) -> None:
        """Tells a room of ours, so that nobody waits for our heartbeat to be missed. Never raises for a quorum that is away."""
        if self._left:
            return
        self._left = True
        self.manager.shutdown(wait=False)
        if not self._settings.ours:
            return
        try:
            client = LighthouseClient(self._settings.quorum, connect_timeout=timedelta(seconds=_LEAVE_S))
            client.heartbeat(f"{self._wire_id}!leave", timeout=timedelta(seconds=_LEAVE_S))
        except (RuntimeError, TimeoutError) as error:
            log.warning("event=leave_not_heard reason=%r", _first_line(error))


def _first_line(error: BaseException) -> str:
    return str(error).splitlines()[0][:300] if str(error) else type(error).__name__
