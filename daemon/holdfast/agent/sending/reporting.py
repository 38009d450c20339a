"""Publish whether this agent reports: in a log line, systemd's status, and a file that `holdfast-agent check` reads."""

from __future__ import annotations

import errno
import json
import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.agent.node.system import utc_ms
from holdfast.agent.sending.contact import Contact, ContactChange, ContactState, after_failure, after_success
from holdfast.agent.sending.failures import SendFailure
from holdfast.systemd import sd_notify
from holdfast_checks.whole_file import write_whole

log = logging.getLogger(__name__)

STATUS_FILE = "agent-status.json"
"""File in run_dir. Written when the state changes, so that a unit can watch it (lifecycle-scripts/holdfast-agent-reporting.path)."""


@dataclass(frozen=True, slots=True)
class ReportingStatus:
    """The file's content."""

    standing: str
    since: str
    """Start of the state, UTC."""
    url: str
    reasons: tuple[str, ...]
    """Reasons why it does not report, one per controller."""
    pid: int

    @property
    def running(self) -> bool:
        """Whether its process is alive; a file that a killed agent left behind is outdated."""
        return Path(f"/proc/{self.pid}").exists()


def read_status(run_dir: Path) -> ReportingStatus | None:
    """Read the file. None: there is none. Raises OSError or ValueError where it cannot be read."""
    try:
        told = json.loads((run_dir / STATUS_FILE).read_text(encoding="utf-8"))
        return ReportingStatus(told["standing"], told["since"], told["url"], tuple(told["reasons"]), int(told["pid"]))
    except FileNotFoundError:
        return None
    except (KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"{run_dir / STATUS_FILE}: unreadable: {error!r}") from error


class Reporting:
    """Publisher, called by the sending thread; the checks and the outbox never wait for it."""

    def __init__(
        self,
        limit_s: float,
        run_dir: Path,
        clock_s: Callable[[], float] = time.monotonic,
        tell: Callable[[str], None] = sd_notify,
    ) -> None:
        self._path = run_dir / STATUS_FILE
        self._clock_s = clock_s
        self._tell = tell
        self.contact = Contact(limit_s, clock_s())

    def begin(self) -> None:
        """Record the start of the agent."""
        self._announce(ContactChange(self.contact))

    def succeeded(self, url: str) -> None:
        """Record a request that a leading controller accepted."""
        self.contact, change = after_success(self.contact, url, self._clock_s())
        if change is not None:
            self._announce(change)

    def failed(self, failure: SendFailure) -> None:
        """Record a failed request."""
        self.contact, change = after_failure(self.contact, failure, self._clock_s())
        if change is not None:
            self._announce(change)

    def end(self) -> None:
        """Record a clean stop of the agent: there is nothing to watch any more."""
        self._path.unlink(missing_ok=True)

    def _announce(self, change: ContactChange) -> None:
        _log(change)
        self._tell(notice(change))
        now = change.contact
        self._write(
            {
                "standing": now.standing.value,
                "since": utc_ms(),
                "url": now.url,
                "reasons": [str(failure) for failure in now.failures],
                "pid": os.getpid(),
            }
        )

    def _write(self, content: dict[str, Any]) -> None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self._path, json.dumps(content) + "\n", 0o644)
        except OSError as error:
            log.warning("event=status_file_failed path=%s error=%r", self._path, str(error))


def notice(change: ContactChange) -> str:
    """Status text for systemd (sd_notify(3)): ``systemctl status`` prints it, with ERRNO as an error next to it."""
    now = change.contact
    if now.standing is ContactState.NOT_REPORTING:
        why = " | ".join(str(failure) for failure in now.failures)
        text = f"NOT REPORTING for {change.silent_s:.0f} s; checks continue, findings wait on disk. {why}"
        return f"STATUS={' '.join(text.split())}\nERRNO={errno.EHOSTUNREACH}"
    if now.standing is ContactState.REPORTING:
        return f"STATUS=Reporting to {now.url}\nERRNO=0"
    return "STATUS=Starting: no controller has answered yet\nERRNO=0"


def _log(change: ContactChange) -> None:
    now = change.contact
    if now.standing is ContactState.NOT_REPORTING:
        for failure in now.failures:
            log.error(
                "event=not_reporting controller=%s silent_s=%.0f step=%s reason=%r do=%r effect=checks_go_on_findings_wait",
                failure.url,
                change.silent_s,
                failure.kind.value,
                failure.reason,
                failure.remedy,
            )
    elif now.standing is ContactState.REPORTING:
        log.info("event=reporting controller=%s silent_s=%.0f", now.url, change.silent_s)
