"""``holdfast run``, from the search for a rendezvous to the exit status."""

from __future__ import annotations

import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from holdfast.launcher import outcome, slurm
from holdfast.launcher.attending import Attendant
from holdfast.launcher.environment import LAUNCH_ID, Start, rank_env, shared_port
from holdfast.launcher.finding import RendezvousRefused, Search, TooLong, Withdrawn
from holdfast.launcher.guard import GuardProcess
from holdfast.launcher.inbox import LauncherInbox
from holdfast.launcher.link import AgentLink
from holdfast.launcher.place import LauncherPlace, WrongUse
from holdfast.launcher.processes import become_subreaper
from holdfast.launcher.ranks import CannotStart, RankProcesses
from holdfast.launcher.room import GroupRendezvous, question, room_from_env
from holdfast.model.elastic_jobs.elastic import NO_REQUEUE_EXIT, REQUEUE_EXIT
from holdfast.model.errors import HoldfastError

DEFAULT_SOCKET = "/run/holdfast/agent.sock"
_LATEST_NONE = 4
_LATEST_S = 60.0


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the command line."""

    command: Sequence[str]
    nproc: int = 1
    restarts: int = 0
    """In-place restarts of the group's processes before the exit status of a failed rank is returned."""
    deadline_s: float = 300.0
    """Time for a group to leave where the request has no deadline."""
    wait_s: float = 600.0
    """Time to wait for the rendezvous."""
    checkpoints: str | None = None


@dataclass(slots=True)
class Launcher:
    """One launcher. Its process has no threads, and no other children when it starts."""

    options: Options
    place: LauncherPlace
    env: Mapping[str, str]
    say: Callable[[str], None]
    _launch_id: str = field(default_factory=lambda: secrets.token_hex(8))

    def run(self) -> int:
        """Run the group to its end; the exit status."""
        link = self._link()
        inbox = LauncherInbox(link)
        try:
            room = self._find_room(inbox, link)
            return self._run_in(room, inbox, link)
        except Withdrawn as gone:
            self.say(str(gone))
            broken_off = gone.number in (signal.SIGINT, signal.SIGHUP)
            return outcome.status_of(gone.number) if gone.number and broken_off else REQUEUE_EXIT
        except (RendezvousRefused, TooLong) as error:
            self.say(str(error))
            return NO_REQUEUE_EXIT if isinstance(error, RendezvousRefused) else REQUEUE_EXIT
        finally:
            inbox.close()
            if link is not None:
                link.close()

    @property
    def _socket_path(self) -> str:
        return self.env.get("HOLDFAST_AGENT_SOCKET") or DEFAULT_SOCKET

    def _link(self) -> AgentLink | None:
        """Connection to the agent; None: the job is no element of a job array, so it cannot be a group."""
        if not self.place.in_array or self.place.job_id is None:
            return None
        return AgentLink(self._socket_path, question(self.place.job_id, self.place.restarts))

    def _find_room(self, inbox: LauncherInbox, link: AgentLink | None) -> GroupRendezvous | None:
        from_env = room_from_env(self.env, self.place.group, _token(self.env))
        job_id = self.place.job_id
        if link is None or job_id is None:
            return from_env
        found = Search(
            link, inbox, lambda: slurm.declares_elastic(job_id), from_env, self.options.wait_s, self.say
        ).run()
        if found is None or found is from_env:
            link.close()
            link.settled()
        return found

    def _run_in(self, room: GroupRendezvous | None, inbox: LauncherInbox, link: AgentLink | None) -> int:
        become_subreaper()
        folder = self._folder()
        guard = GuardProcess(f"{LAUNCH_ID}={self._launch_id}", folder)
        events = Path(folder) / "events.jsonl" if folder is not None else None
        attendant = Attendant(inbox, link, guard, events, self.options.deadline_s, self.say)
        code = self._starts(room, attendant)
        guard.dismiss()  # not when the launcher ends by an error: then the guard has work to do
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
        return code

    def _starts(self, room: GroupRendezvous | None, attendant: Attendant) -> int:
        attempt = 0
        while True:
            try:
                code = self._one_start(room, self._start(room, attempt, attendant.event_file), attendant)
            except CannotStart as error:
                self.say(str(error))
                return error.code
            except _Unknown as error:
                self.say(str(error))
                return REQUEUE_EXIT
            told = attendant.told
            if told.broken_off is not None:
                return outcome.status_of(told.broken_off)
            if attempt >= self.options.restarts or not outcome.may_restart(code, told.leaving):
                return code
            attempt, told.ending = attempt + 1, None
            self.say(f"restart {attempt} of {self.options.restarts}")

    def _one_start(self, room: GroupRendezvous | None, start: Start, attendant: Attendant) -> int:
        """Run one start; the group's exit status when all processes have ended. Raises CannotStart."""
        attendant.hear(None)
        if attendant.told.ending is not None:
            return REQUEUE_EXIT
        base = dict(self.env)
        if self.options.checkpoints is not None:
            base.pop("HOLDFAST_RESUME_FROM", None)
        environments = [rank_env(base, self.place, room, start, rank) for rank in range(self.options.nproc)]
        ranks = RankProcesses(f"{LAUNCH_ID}={self._launch_id}", attendant.guard.pid)
        try:
            ranks.start(self.options.command, environments)
        except CannotStart:
            attendant.end_now()
            attendant.attend(ranks)
            raise
        attendant.attend(ranks)
        return outcome.group_code(ranks.codes, attendant.told.leaving, whole=self.place.nodes == 1)

    def _start(self, room: GroupRendezvous | None, attempt: int, events: Path | None) -> Start:
        place = self.place
        return Start(
            launch_id=self._launch_id,
            name=place.start(attempt, f"local-{self._launch_id}"),
            attempt=attempt,
            nproc=self.options.nproc,
            agent_socket=self._socket_path,
            master_port=_free_port() if place.nodes == 1 else shared_port(place.job_id or 0, place.step),
            event_file=str(events) if events is not None else None,
            resume_from=_newest(self.options.checkpoints) if self.options.checkpoints is not None else None,
            address=_address_towards(room.url) if room is not None else None,
        )

    def _folder(self) -> str | None:
        try:
            return tempfile.mkdtemp(prefix="holdfast-run-")
        except OSError as error:
            self.say(f"no place for the event file: {error}; the ranks get signals without reasons")
            return None


class _Unknown(HoldfastError):
    """The newest checkpoint cannot be determined now: a start from scratch would lose work."""


def _newest(directory: str) -> str | None:
    """The newest complete checkpoint there; None: there is none. Read in a child, since a file system may hang. Raises _Unknown."""
    argv = [sys.executable, "-P", "-m", "holdfast_checkpoint", "latest", "--", directory]
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=_LATEST_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _Unknown(f"cannot find out which checkpoint in {directory} is the newest: {error}") from error
    if done.returncode == _LATEST_NONE:
        return None
    path = done.stdout.decode(errors="replace").rstrip("\n")
    if done.returncode or not path:
        raise _Unknown(f"cannot find out which checkpoint in {directory} is the newest (exit status {done.returncode})")
    return path


def _token(env: Mapping[str, str]) -> str:
    """The quorum token. Raises WrongUse for a file that cannot be read."""
    path = env.get("HOLDFAST_QUORUM_TOKEN_FILE", "")
    if env.get("HOLDFAST_QUORUM_TOKEN") or not path:
        return env.get("HOLDFAST_QUORUM_TOKEN", "")
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise WrongUse(f"HOLDFAST_QUORUM_TOKEN_FILE: {error}") from error


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def _address_towards(url: str) -> str | None:
    """This node's address on the route to the quorum service; nothing is sent. None: not known, and the training determines it."""
    with suppress(OSError, ValueError):
        parts = urlsplit(url)
        family, kind, _proto, _name, there = socket.getaddrinfo(parts.hostname, parts.port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(there)
            return str(probe.getsockname()[0])
    return None
