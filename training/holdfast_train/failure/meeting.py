"""Rendezvous of one group's ranks after a failure in one of them: a store that none of them hosts."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from datetime import timedelta

from torch._C._distributed_c10d import PrefixStore, Store, TCPStore

from holdfast_train import store_host
from holdfast_train.errors import RankLost
from holdfast_train.settings import TrainSettings

_LOOK_S = 0.1
_CONNECT = timedelta(seconds=60)
_AGENT = "TORCHELASTIC_USE_AGENT_STORE"
"""Set to True by torchrun, and by any other launcher that hosts the store at MASTER_ADDR:MASTER_PORT itself."""


class RankMeeting:
    """One rank's connection to the store. With a single rank there is no store, and no waiting."""

    def __init__(self, settings: TrainSettings, env: Mapping[str, str]) -> None:
        """Rank 0 starts the store, unless the launcher did. Raises Unusable, RankLost."""
        self.rank, self.ranks = settings.rank, settings.ranks
        self._patience_s = settings.collective_timeout_s + 30
        self._prefix = f"holdfast/{env.get('HOLDFAST_INCARNATION', '')}/{env.get('TORCHELASTIC_RESTART_COUNT', '0')}"
        self._host: store_host.StoreHost | None = None
        self._stores: list[TCPStore] = []
        if self.ranks == 1:
            return
        address, port = env["MASTER_ADDR"], int(env["MASTER_PORT"])
        if self.rank == 0 and env.get(_AGENT) != "True":
            self._host = store_host.start(address, port)
        try:
            # Two connections: a wait blocks the connection.
            self._stores = [TCPStore(address, port, is_master=False, timeout=_CONNECT) for _ in range(2)]
        except (RuntimeError, ValueError) as error:
            raise RankLost(f"the store of this group at {address}:{port} does not answer: {error}") from error

    def store(self, number: int) -> Store:
        """Store for the process groups of start ``number``, without keys of an earlier one."""
        return PrefixStore(f"{self._prefix}/restart/{number}", self._stores[0])

    def exchange(self, number: int, word: str) -> list[str]:
        """Exchange a value between all ranks. Returns them in rank order. Raises RankLost when one does not arrive."""
        if self.ranks == 1:
            return [word]
        store, until_s = self.store(number), time.monotonic() + self._patience_s
        try:
            store.set(f"word/{self.rank}", word)
            words = []
            for rank in range(self.ranks):
                store.wait([f"word/{rank}"], timedelta(seconds=max(0.1, until_s - time.monotonic())))
                words.append(store.get(f"word/{rank}").decode())
        except RuntimeError as error:
            raise RankLost(f"another rank of this group did not come back within {self._patience_s:g} s") from error
        return words

    def call_off(self, number: int) -> None:
        """Notify every rank that start ``number`` is over."""
        if self.ranks > 1:
            self.store(number).set("off", "1")

    def watch(self, number: int, off: Callable[[], None], over: threading.Event) -> None:
        """Call ``off`` in a thread as soon as another rank calls off start ``number``, or the store is gone."""
        if self.ranks == 1:
            return
        seen = PrefixStore(f"{self._prefix}/restart/{number}", self._stores[1])

        def look() -> None:
            while not over.wait(_LOOK_S):
                try:
                    if not seen.check(["off"]):
                        continue
                except RuntimeError:
                    pass  # the store ended with rank 0's process: so has this start
                if not over.is_set():
                    off()
                return

        threading.Thread(target=look, name="restart-watch", daemon=True).start()

    def close(self) -> None:
        self._stores.clear()
        if self._host is not None:
            self._host.stop()
