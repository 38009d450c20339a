"""The agent's settings (``/etc/holdfast/agent.toml``). Standard library only."""

from __future__ import annotations

import socket
import urllib.parse
from dataclasses import dataclass, replace
from pathlib import Path

from holdfast.config.in_clear import in_clear
from holdfast.config.strict import build, load
from holdfast.model.errors import ConfigError
from holdfast_checks.custom import problems as custom_problems
from holdfast_checks.settings import CheckTables, schema
from holdfast_checks.settings.option import option

_LONGEST_NODE_NAME = 64


@dataclass(frozen=True, slots=True)
class AgentConfig(CheckTables):
    """Every setting of one node's agent. A relative path counts from the folder of the file."""

    node: str = option("", "Slurm's name of this node; empty: the short host name.")
    controllers: tuple[str, ...] = option(
        ("http://127.0.0.1:8460",), "Base URLs of the controllers; the first that answers as leader is used."
    )
    token_file: Path | None = option(None, "File with the bearer token that is bound to this node.")
    ca_file: Path | None = option(None, "PEM file with the authority that signed the controllers' certificates.")
    state_dir: Path = option(Path("/var/lib/holdfast"), "Outbox, remembered orders, cached inventory, evidence.")
    run_dir: Path = option(Path("/run/holdfast"), "Folder of agent.sock, where jobs make their statements.")
    kmsg_path: Path = option(Path("/dev/kmsg"), "Kernel log.")
    boot_id_path: Path = option(Path("/proc/sys/kernel/random/boot_id"), "Names this boot.")
    instance_id: str = option(
        "", "The cloud machine's id, such as i-0abc; \"imds\": asked of EC2's instance metadata at the start."
    )
    instance_id_path: Path | None = option(None, "File with the cloud machine's id, such as i-0abc.")
    sysfs_path: Path = option(Path("/sys"), "sysfs.")
    pstore_path: Path = option(Path("/sys/fs/pstore"), "Where the kernel leaves crash records; listed as evidence.")
    nvml_library: str = option("", "Path of libnvidia-ml.so.1; empty: found by the dynamic linker.")
    nvml_deadline_s: float = option(20.0, "An NVML snapshot that takes longer counts as a miss.", low=0.1, high=600)
    instance_type: str = option(
        "",
        "Such as p5.48xlarge: how many GPUs and EFA devices there must be; empty: asked of the machine where it says.",
    )
    gpu_count: int = option(0, "GPUs that this node must have; 0: those seen first in this boot.", low=0, high=64)
    heartbeat_s: float | None = option(
        None, "Interval of the heartbeat; not set: the controller gives it by the size of the fleet.", low=0.2, high=60
    )
    not_reporting_after_s: float = option(
        60.0, "No controller took a report or heartbeat for this long: systemd's status and a log line say so.", low=1
    )
    reminder_s: float = option(600.0, "A finding that persists is reported again after this long.", low=10)
    disabled_checks: tuple[str, ...] = option((), 'Ids of checks that are not run, such as "host.disk".')
    act_on: tuple[str, ...] | None = option(
        None,
        'New checks (see "holdfast-checks list") whose findings count in full on this node; "*": all. The others report warnings. '
        "Not set: the controller gives them ([checks] act_on).",
    )
    observe_only: tuple[str, ...] = option(
        (), "Proven checks whose findings are only reported as warnings, in addition to the controller's list."
    )
    disk_paths: tuple[str, ...] = option(("/", "/var", "/tmp"), "Folders whose file systems must have room.")  # noqa: S108
    slurmd_pid_file: Path = option(
        Path("/run/slurmd.pid"),
        "First place for slurmd's process id; its unit and the process table are read after that.",
    )
    scontrol: str = option("scontrol", "Slurm's command; used to learn which processes belong to which job.")
    slurm_conf: Path | None = option(None, "Exported as SLURM_CONF for Slurm's commands.")
    nice: int = option(5, "The agent's nice value; its disk I/O runs in the idle class.", low=0, high=19)
    cpus: tuple[int, ...] = option((), "CPUs that the agent keeps to, such as those that no job is given; empty: all.")
    outbox_items: int = option(10_000, "Most items that wait for the controller.", low=100)
    outbox_bytes: int = option(16 * 1024 * 1024, "Most bytes that wait for the controller.", low=65_536)
    log_format: str = option("text", 'Shape of a log line: "text" (key=value) or "json".')
    intervals: dict[str, float] = option(
        {}, "Seconds between two runs, by check id; the check's own default otherwise.", low=0.5
    )
    nvml_env: dict[str, str] = option({}, "Environment variables for the process that talks to NVML.")


def load_agent_config(path: Path) -> AgentConfig:
    """Read and check the file. Raises ConfigError in one line that names file and key."""
    config = build(load(path), AgentConfig, str(path))
    for key, problem in _problems(config):
        raise ConfigError(f"{path}: {key}: {problem}")
    return _resolve(config, path.resolve().parent)


def example() -> str:
    """``agent.toml`` with every key at its default and its meaning."""
    return schema.example(AgentConfig, "The Holdfast agent: one file per node, or one for all of them.")


def _problems(config: AgentConfig) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    if len(config.node) > _LONGEST_NODE_NAME or any(not (c.isalnum() or c in "-_.") for c in config.node):
        found.append(("node", f"not a node name: {config.node!r}"))
    if not config.controllers:
        found.append(("controllers", "at least one URL is needed"))
    problems = map(_url_problem, config.controllers)
    found.extend(("controllers", problem) for problem in problems if problem is not None)
    if config.log_format not in ("text", "json"):
        found.append(("log_format", f'expected "text" or "json", found {config.log_format!r}'))
    return [*found, *custom_problems(config.custom)]


def _url_problem(url: str) -> str | None:
    try:
        parts = urllib.parse.urlsplit(url)
        parts.port  # noqa: B018 - raises ValueError when it is no number
    except ValueError as error:
        return f"not a URL: {url!r} ({error})"
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.username:
        return f"expected http[s]://HOST[:PORT], found {url!r}"
    if in_clear(url):
        return (
            f"{url!r} would send this node's token unencrypted: https, or http on loopback alone (docs/how-to-tls.md)"
        )
    return None


def _resolve(config: AgentConfig, base: Path) -> AgentConfig:
    def absolute(path: Path | None) -> Path | None:
        return base / path if path is not None else None

    return replace(
        config,
        node=config.node or socket.gethostname().split(".")[0],
        token_file=absolute(config.token_file),
        ca_file=absolute(config.ca_file),
        state_dir=base / config.state_dir,
        run_dir=base / config.run_dir,
        kmsg_path=base / config.kmsg_path,
        boot_id_path=base / config.boot_id_path,
        instance_id_path=absolute(config.instance_id_path),
        sysfs_path=base / config.sysfs_path,
        pstore_path=base / config.pstore_path,
        slurmd_pid_file=base / config.slurmd_pid_file,
        slurm_conf=absolute(config.slurm_conf),
    )
