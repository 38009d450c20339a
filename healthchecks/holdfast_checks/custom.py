"""The operator's own checks: executables from ``[custom.NAME]``, and Python packages through the entry point ``holdfast.checks``.

Nothing that one of them does reaches the agent: it runs in its own process group with a deadline, its output is bounded, and after
``give_up_after`` misbehaviours in a row it is disabled, with a warning, until its file changes or the agent restarts."""

from __future__ import annotations

import logging
import os
import pwd
import re
import shutil
import threading
import time
from collections import deque
from collections.abc import Mapping
from importlib.metadata import entry_points

from holdfast_checks.changeable import changeable_command
from holdfast_checks.custom_answer import MOST_BYTES, CustomCheckLimits, Misbehaved, results
from holdfast_checks.custom_guard import GROUP, PREFIX, CustomCheckTrust, CustomResults, of_package
from holdfast_checks.probes.child import CHILDREN
from holdfast_checks.registry import Check, Context, Cost, Need
from holdfast_checks.result import Remedy, Result, Severity
from holdfast_checks.settings import CheckSettings, CustomSettings

log = logging.getLogger(__name__)

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
_HOUR_S = 3600.0
_SLACK_S = 2.0
"""The child's deadline comes first."""
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def problems(custom: Mapping[str, CustomSettings]) -> list[tuple[str, str]]:
    """(key, what is wrong with it) for each mistake in the tables ``[custom.NAME]``."""
    found: list[tuple[str, str]] = []
    for name, settings in custom.items():
        key = f"custom.{name}"
        if not _NAME.fullmatch(name):
            found.append((key, "a name has 1 to 40 small letters, digits, - and _"))
        if not settings.command or not settings.command[0].startswith("/"):
            found.append((f"{key}.command", "an executable's absolute path is needed"))
        for field, kind in (("severity", Severity), ("remedy", Remedy), ("cost", Cost)):
            value = getattr(settings, field)
            if value not in tuple(kind):
                found.append((f"{key}.{field}", f"{value!r} is none of {', '.join(kind)}"))
        if settings.user and not _is_user(settings.user):
            found.append((f"{key}.user", f"there is no user {settings.user!r}"))
    return found


def custom_checks(settings: CheckSettings) -> dict[str, Check]:
    """Every custom check by its id. Raises ValueError for a table that :func:`problems` complains of; a package that cannot be loaded
    is a check that says so."""
    for key, problem in problems(settings.custom):
        raise ValueError(f"{key}: {problem}")
    found = {f"{PREFIX}{name}": _of_command(f"{PREFIX}{name}", table) for name, table in settings.custom.items()}
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        check = of_package(point)
        if check.id in found:
            log.error("event=custom_check_twice check=%s entry_point=%s effect=not_loaded", check.id, point.value)
        else:
            found[check.id] = check
    return dict(sorted(found.items()))


def _of_command(check_id: str, settings: CustomSettings) -> Check:
    return Check(
        id=check_id,
        title=settings.title or f"Your own check {settings.command[0]}",
        needs=frozenset({Need.COMMAND}),
        interval_s=settings.interval_s,
        cost=Cost(settings.cost),
        severity=Severity(settings.severity),
        remedy=Remedy(settings.remedy),
        gather=_Command(check_id, settings).gather,
        judge=lambda told: told.results,
        deadline_s=settings.deadline_s + _SLACK_S,
        # Its severity and remedy are configured by the operator; one that can only warn keeps no node from serving.
        observe=settings.severity == Severity.WARNING,
    )


class _Command:
    """One executable, its rate and its record."""

    def __init__(self, check_id: str, settings: CustomSettings) -> None:
        self._settings = settings
        self._trust = CustomCheckTrust(check_id, settings.give_up_after)
        self._limits = CustomCheckLimits(check_id, Severity(settings.severity), Remedy(settings.remedy))
        self._runs: deque[float] = deque()
        self._last: CustomResults | None = None
        self._file: tuple[int, ...] = ()
        self._lock = threading.Lock()

    def gather(self, context: Context) -> CustomResults:
        """Run it, unless it is disabled or has run often enough. Raises NotGathered, OSError."""
        with self._lock:
            version = _version(self._settings.command[0])
            if version != self._file:
                self._trust.kept()
                self._file, self._last = version, None
            if self._trust.lost:
                return CustomResults(self._trust.sentence())
            if self._too_often() and self._last is not None:
                return self._last
            self._last = CustomResults(self._run(context))
            return self._last

    def _run(self, context: Context) -> tuple[Result, ...]:
        gpus = {ref.uuid: ref for ref in context.inventory.gpus if ref.uuid}
        try:
            argv = _argv(self._settings)
            answer = CHILDREN.run(
                self._trust.check,
                argv,
                self._settings.deadline_s,
                max_bytes=MOST_BYTES,
                env=self._env(),
                gentle=self._settings.cost == Cost.PASSIVE,
            )
            found = results(answer, self._limits, gpus)
        except Misbehaved as reason:
            return self._trust.hurt(str(reason))
        except OSError as error:
            return self._trust.hurt(f"it cannot be started: {error.strerror or error}")
        self._trust.kept()
        return found

    def _env(self) -> dict[str, str]:
        ours = {"PATH": os.environ.get("PATH", _PATH), "LC_ALL": "C", "HOLDFAST_CHECK": self._trust.check}
        return {**ours, "HOLDFAST_DEADLINE_S": f"{self._settings.deadline_s:g}", **self._settings.env}

    def _too_often(self) -> bool:
        now_s = time.monotonic()
        while self._runs and now_s - self._runs[0] > _HOUR_S:
            self._runs.popleft()
        if len(self._runs) >= self._settings.max_per_hour:
            return True
        self._runs.append(now_s)
        return False


def _argv(settings: CustomSettings) -> list[str]:
    """Raises Misbehaved for a file that others may change, and where it cannot become its user."""
    command = list(settings.command)
    theirs = [pwd.getpwnam(settings.user).pw_uid] if settings.user else []
    if why := changeable_command(command, theirs):
        raise Misbehaved(f"{why}: it is not run")
    if not settings.user:
        return command
    user = pwd.getpwnam(settings.user)
    if user.pw_uid == os.geteuid():
        return command
    setpriv = shutil.which("setpriv")
    if os.geteuid() != 0 or setpriv is None:
        raise Misbehaved(f"it cannot run as {settings.user}: that needs root and setpriv (util-linux)")
    return [setpriv, f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--init-groups", "--inh-caps=-all", *command]


def _version(path: str) -> tuple[int, ...]:
    """Changes when the file does; empty: it is not there."""
    try:
        status = os.stat(path)
    except OSError:
        return ()
    return (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size, status.st_mode)


def _is_user(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True
