"""Start the emulator's process and call its control endpoint. Standard library only."""

from __future__ import annotations

import contextlib
import http.client
import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlencode, urlsplit

from holdfast.model.errors import NotFound, Rejected, Unavailable
from holdfast.practice.aws.faults import ApiFault, Weather

log = logging.getLogger(__name__)
START_TIMEOUT_S = 60.0
"""Start timeout: importing moto takes 1.5 s on an idle core and far longer on a busy machine."""
STOP_TIMEOUT_S = 10.0


class EmulatorControl:
    """The control endpoint of one running emulator. Raises Unavailable when it does not answer."""

    def __init__(self, endpoint: str, timeout_s: float = 10.0) -> None:
        self.endpoint = endpoint
        self._timeout_s = timeout_s
        self._where = urlsplit(endpoint).netloc

    def ready(self) -> bool:
        try:
            return bool(self._ask("GET", "ready")["ready"])
        except Unavailable:
            return False

    def calls(self, action: str = "", since: int = 0) -> list[dict[str, Any]]:
        """API calls with a number above ``since`` (see ``calls.Call`` for the fields)."""
        query = urlencode({"action": action, "since": since})
        return cast("list[dict[str, Any]]", self._ask("GET", f"calls?{query}"))

    def effects(self, action: str, since: int = 0) -> list[str]:
        """Ids of the instances that calls of this action really launched, ended, rebooted, stopped or started, in order."""
        return [i for call in self.calls(action, since) for i in call["effects"]]

    def last_call(self) -> int:
        """Number of the newest call: a ``since`` for later questions."""
        return int(self._ask("GET", "ready")["calls"])

    def inject(self, fault: ApiFault) -> None:
        self._ask("POST", "faults", asdict(fault))

    def weather(
        self,
        seed: int,
        *,
        throttled: float = 0.0,
        errors: float = 0.0,
        lost_answers: float = 0.0,
        no_capacity: float = 0.0,
        stale_s: float = 0.0,
    ) -> None:
        """Faults by chance from now on, until ``clear``: shares of all API calls, see ``faults.Weather``."""
        weather = Weather(seed, throttled, errors, lost_answers, no_capacity, stale_s)
        self._ask("POST", "weather", asdict(weather))

    def clear(self) -> None:
        """Faults, weather, impairments and invisibility end; instances stay."""
        self._ask("POST", "clear", {})

    def hide_new(self, describes: int) -> None:
        """Instances launched from now on are InvalidInstanceID.NotFound for this many describe calls."""
        self._ask("POST", "hide", {"describes": describes})

    def impair(self, instance_id: str, which: str = "system", since: datetime | None = None) -> None:
        """Fail the instance's ``system``, ``instance`` or ``ebs`` status check from now on; ``since`` is the reported time."""
        when = since.isoformat() if since else ""
        self._ask("POST", "impair", {"instance_id": instance_id, "which": which, "since": when})

    def interrupt(self, instance_id: str, at: datetime) -> None:
        """Mark the spot machine for termination, as of ``at``."""
        self._ask("POST", "interrupt", {"instance_id": instance_id, "at": at.isoformat()})

    def plan_event(
        self, instance_id: str, code: str, not_before: datetime, description: str = "", event_id: str = ""
    ) -> str:
        """Plan a scheduled event, or change the description of an existing one (``[Completed] …``). Returns its id."""
        data = {"instance_id": instance_id, "code": code, "description": description, "event_id": event_id}
        return str(self._ask("POST", "event", {**data, "not_before": not_before.isoformat()})["event_id"])

    def hang_stopping(self, instance_id: str) -> None:
        """The instance stays ``stopping`` once it is stopped, until that is forced."""
        self._ask("POST", "stuck", {"instance_id": instance_id})

    def forget(self, instance_id: str) -> None:
        """EC2 does not know the instance any more, as an hour after its end."""
        self._ask("POST", "forget", {"instance_id": instance_id})

    def moves(self) -> dict[str, int]:
        """Instance id → how often a stop and start has moved it to another host."""
        return cast("dict[str, int]", self._ask("GET", "moves"))

    def reserve(
        self,
        reservation: str,
        instance_type: str,
        total: int,
        *,
        kind: str = "default",
        ends_at: datetime | None = None,
        state: str = "active",
    ) -> None:
        """Create or change a capacity reservation (``default``) or Capacity Block (``capacity-block``)."""
        end = ends_at.isoformat() if ends_at else ""
        data = {"id": reservation, "instance_type": instance_type, "total": total, "kind": kind, "state": state}
        self._ask("POST", "reservation", {**data, "ends_at": end})

    def group_capacity(self, group: str, *, available: bool) -> None:
        """Whether an Auto Scaling group gets the machines that it asks for."""
        self._ask("POST", "group_capacity", {"group": group, "available": available})

    def ended_launch(self, *, is_error: bool) -> None:
        """Whether a ClientToken whose instances are gone gets IdempotentInstanceTerminated, or the instances as they are."""
        self._ask("POST", "ended_launch", {"is_error": is_error})

    def instances(self) -> list[dict[str, Any]]:
        """The actual state of EC2: id, state and tags of every instance, whatever its API shows now."""
        return cast("list[dict[str, Any]]", self._ask("GET", "instances"))

    def clock(self, at: float | None) -> None:
        """Stop the emulator's clock at this Unix time until the next call; None: let it run again."""
        self._ask("POST", "clock", {"at": at})

    def delays(self, **seconds: float) -> None:
        """Set some of ``world.Delays``; instances already in a transition keep their times."""
        self._ask("POST", "delays", seconds)

    def _ask(self, method: str, path: str, data: Mapping[str, Any] | None = None) -> Any:
        connection = http.client.HTTPConnection(self._where, timeout=self._timeout_s)
        try:
            connection.request(method, f"/_practice/{path}", None if data is None else json.dumps(data))
            answer = connection.getresponse()
            payload = json.loads(answer.read())
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise Unavailable(f"the AWS emulator at {self.endpoint} does not answer: {error}") from error
        finally:
            connection.close()
        if answer.status == http.HTTPStatus.NOT_FOUND:
            raise NotFound(str(payload["error"]))
        if answer.status != http.HTTPStatus.OK:
            raise Rejected(str(payload["error"]))
        return payload


def start_emulator(
    folder: Path, *, port: int = 0, extra: tuple[str, ...] = ()
) -> tuple[subprocess.Popen[bytes], EmulatorControl]:
    """Start the emulator in ``folder`` (journal, log, endpoint file) and wait until it answers.

    Restarted in the same folder it has the same instances. Raises Unavailable when it exits or does not answer."""
    folder.mkdir(parents=True, exist_ok=True)
    endpoint_file = folder / "endpoint"
    endpoint_file.unlink(missing_ok=True)
    command = [sys.executable, "-m", "holdfast.practice.aws", "--port", str(port), "--endpoint-file"]
    command += [str(endpoint_file), "--state", str(folder / "journal.jsonl"), *extra]
    with (folder / "emulator.log").open("ab") as out:
        # A fixed hash seed: moto draws free addresses from a set.
        env = os.environ | {"PYTHONHASHSEED": "0"}
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=env)
    try:
        return process, _await_ready(process, endpoint_file, folder / "emulator.log")
    except Unavailable:
        stop_emulator(process)
        raise


def _await_ready(process: subprocess.Popen[bytes], endpoint_file: Path, log_file: Path) -> EmulatorControl:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise Unavailable(f"the AWS emulator ended with status {process.returncode}: see {log_file}")
        endpoint = endpoint_file.read_text(encoding="utf-8").strip() if endpoint_file.exists() else ""
        if endpoint and EmulatorControl(endpoint).ready():
            return EmulatorControl(endpoint)
        time.sleep(0.05)
    raise Unavailable(f"the AWS emulator was not ready within {START_TIMEOUT_S:.0f} s: see {log_file}")


def stop_emulator(process: subprocess.Popen[bytes]) -> None:
    """SIGTERM, then SIGKILL; succeeds if it has ended."""
    if process.poll() is None:
        process.terminate()
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        log.warning("event=aws_emulator_killed pid=%d", process.pid)
        process.kill()
        process.wait()


@contextlib.contextmanager
def running_emulator(folder: Path, *extra: str) -> Iterator[EmulatorControl]:
    """Context manager that runs the emulator."""
    process, control = start_emulator(folder, extra=extra)
    try:
        yield control
    finally:
        stop_emulator(process)
