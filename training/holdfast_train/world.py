"""A job's world: the name of the training that its groups share, and the newest quorum id, which decide who may write. Pure.

A rendezvous of Holdfast never reuses a quorum id. A stock lighthouse counts from 0 after a restart: then the world continues
under a new name, which all of its members derive in the same way."""

from __future__ import annotations

import hashlib
import secrets
from typing import Any

from holdfast_checkpoint.lease import Term


def room_name(token: str) -> str:
    """Name in a rendezvous of Holdfast: the same for every start of the job. Reveals nothing about the token, which is 32 random bytes."""
    return f"q{hashlib.blake2b(token.encode(), digest_size=8, person=b'holdfast-room').hexdigest()}"


def new_name() -> str:
    """Name with a stock lighthouse: the groups take over that of the first one together with its state."""
    return f"w{secrets.token_hex(8)}"


class TrainingWorld:
    """With a stock lighthouse it is sent along with the state, so that healed groups know it; in a rendezvous all know the name."""

    def __init__(self, name: str, *, of_room: bool) -> None:
        self._name, self._formerly, self._of_room = name, "", of_room
        self._quorum_id = self._began_step = 0

    def observe(self, quorum_id: int, step: int) -> None:
        """Called at the start of each step, with values that are the same in all members of the quorum."""
        if quorum_id == self._quorum_id:
            return
        if quorum_id < self._quorum_id and not self._of_room:
            told = f"{self._name} {step} {quorum_id}".encode()
            self._formerly, self._name = self._name, f"w{hashlib.blake2b(told, digest_size=8).hexdigest()}"
        self._quorum_id, self._began_step = quorum_id, step

    def term(self, *, over: bool = False) -> Term:
        """The term (right to write) of the newest quorum."""
        return Term(self._name, self._quorum_id, self._began_step, self._formerly, over)

    def state_dict(self) -> dict[str, Any]:
        return {
            "name": self._name,
            "formerly": self._formerly,
            "quorum_id": self._quorum_id,
            "began_step": self._began_step,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._name, self._formerly = str(state["name"]), str(state["formerly"])
        self._quorum_id, self._began_step = int(state["quorum_id"]), int(state["began_step"])
