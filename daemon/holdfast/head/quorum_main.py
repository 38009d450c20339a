"""``python -m holdfast.head quorum``: the quorum service, started with arguments from ``controller.toml``.

The service is a separate program (``holdfast.quorum``) that does not know the controller's configuration, and on an installed head node
may not read it, because it holds the database's password. Root writes the service's arguments (:func:`write`) when its unit starts."""

from __future__ import annotations

import os
import pwd
import shutil
import stat
import subprocess
import sys
from collections.abc import Sequence
from grp import getgrnam
from pathlib import Path

from holdfast.config.controller import ControllerSettings, load
from holdfast.model.errors import ConfigError, HoldfastError
from holdfast_checks.whole_file import write_whole

STORE_VARIABLE = "HOLDFAST_QUORUM_STORE"
FORMER_KEY = Path("/var/lib/holdfast/quorum.key")
"""Location of the key in earlier releases."""
_SERVICE, _CONTROLLER, _SHARED = "holdfast-quorum", "holdfast-controller", "holdfast"
_EXPORT_S = 30.0


def run(config: Path, users: Sequence[str] = ()) -> int:
    """Become the service. Returns only on an error. ``users``: who may use its socket in addition to root and its own user."""
    try:
        settings = _enabled(config)
    except HoldfastError as error:
        sys.stderr.write(f"holdfast quorum: {error}\n")
        return 2
    argv = [sys.executable, "-m", "holdfast.quorum", *service_arguments(settings, users)]
    return os.execve(sys.executable, argv, {**os.environ, STORE_VARIABLE: settings.quorum.store})  # noqa: S606 - no shell


def write(config: Path, users: Sequence[str], target: Path) -> int:
    """Write the service's arguments, as root: one a line, readable only by its group. A configuration error is passed as an argument, so
    that the service itself reports it and exits. ``target``: in a folder that only root writes, such as /run. Raises OSError, KeyError."""
    try:
        settings = _enabled(config)
    except HoldfastError as error:
        arguments = ["--refused", " ".join(str(error).split())]
    else:
        arguments = [*service_arguments(settings, users), "--store", settings.quorum.store]
        _move_key(settings.quorum.key, FORMER_KEY)
        rooms = target.with_suffix(".rooms")
        if _is_new(settings.quorum.store) and _export(config, rooms):
            arguments += ["--adopt", str(rooms)]
    _write(target, "".join(f"{argument}\n" for argument in arguments))
    return 0


def export(config: Path) -> int:
    """Export, as the controller's user: print the rendezvous that the controller's database still has, as JSON."""
    try:
        url = load(config).store.url
    except HoldfastError as error:
        sys.stderr.write(f"holdfast quorum: {error}\n")
        return 1
    argv = [sys.executable, "-m", "holdfast.quorum", "--export"]
    return os.execve(sys.executable, argv, {**os.environ, STORE_VARIABLE: url})  # noqa: S606 - no shell


def service_arguments(settings: ControllerSettings, users: Sequence[str] = ()) -> list[str]:
    """The service's command line, without the store's URL, which may hold a password."""
    section = settings.quorum
    arguments = ["--key", str(section.key), "--socket", str(section.socket), "--bind", section.bind]
    arguments += ["--advertise", section.advertise] if section.advertise else []
    arguments += [word for user in users for word in ("--user", user)]
    arguments += ["--keep-days", str(settings.store.keep_days), "--log-format", settings.log.format]
    return [*arguments, "--log-level", settings.log.level.upper()]


def _enabled(config: Path) -> ControllerSettings:
    settings = load(config)
    if not settings.quorum.enabled:
        raise ConfigError(f"{config}: quorum.enabled is false")
    return settings


def _is_new(store: str) -> bool:
    """Whether the store is an SQLite file that does not exist yet. For another database the service checks this itself."""
    return store.startswith("sqlite:///") and not Path(store.removeprefix("sqlite:///")).exists()


def _move_key(key: Path, former: Path) -> None:
    """Move the key of an earlier release, if it belongs to the service: members of running jobs are authenticated with it."""
    try:
        found = former.lstat()
        if key.exists() or not stat.S_ISREG(found.st_mode) or found.st_uid != pwd.getpwnam(_SERVICE).pw_uid:
            return
        shutil.move(former, key)
        os.chown(key, found.st_uid, getgrnam(_SERVICE).gr_gid, follow_symlinks=False)
    except FileNotFoundError:
        return
    except OSError as error:
        sys.stderr.write(f"holdfast quorum: {former} is not moved to {key}: {error}\n")


def _export(config: Path, target: Path) -> bool:
    """Run the export as the controller's user: files that root created next to the database would lock that user out."""
    argv = [sys.executable, "-m", "holdfast.head", "quorum", "--config", str(config), "--export"]
    try:
        done = subprocess.run(
            argv,
            capture_output=True,
            text=True,
            timeout=_EXPORT_S,
            check=False,
            user=_CONTROLLER,
            group=_SHARED,
            extra_groups=(),
            umask=0o007,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        sys.stderr.write(f"holdfast quorum: rendezvous of an earlier release are not read: {error}\n")
        return False
    if done.returncode != 0:
        sys.stderr.write(
            f"holdfast quorum: rendezvous of an earlier release are not read: {done.stderr.strip()[-300:]}\n"
        )
        return False
    _write(target, done.stdout)
    return True


def _write(target: Path, text: str) -> None:
    """Write the file atomically, readable for root and the service's group."""
    write_whole(target, text, 0o640, owner=(0, getgrnam(_SERVICE).gr_gid))
