"""Holdfast itself on a practice cluster: controller, actor, agents, emulated machines behind a provider, and a spare pool.

Everything is installed as an operator would: configuration files, tokens, daemons. Only addresses and time windows are special."""

from __future__ import annotations

import hashlib
import os
import secrets
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import tomli_w

from holdfast.config.controller import load
from holdfast.model.errors import OutsideError, Unavailable
from holdfast.practice import aws
from holdfast.practice.aws import imds_state
from holdfast.practice.aws.client import EmulatorControl
from holdfast.practice.cluster.backing import Backing, backing_class, open_backing
from holdfast.practice.cluster.client import get
from holdfast.practice.cluster.cluster import Practice
from holdfast.practice.cluster.hosting import Hosting, write_agent
from holdfast.slurm.commands import SlurmCommands
from holdfast.store import SqlStore, open_store

_READY_S = 90.0
SPARES = "holdfast-spares"


class PracticeSite:
    """A practice cluster with Holdfast on it. All state is in the cluster's folder."""

    def __init__(self, practice: Practice) -> None:
        self.practice = practice
        self.folder = practice.folder

    @classmethod
    def create(
        cls,
        folder: Path | str,
        *,
        nodes: int = 5,
        spares: int = 1,
        provider: str = "ec2",
        settings: Mapping[str, Mapping[str, Any]] | None = None,
        store_url: str | None = None,
        heartbeat_s: float | None = None,
        quorum: bool = True,
        nursery: bool = True,
        **practice: Any,
    ) -> PracticeSite:
        """Create a cluster and Holdfast's files; starts nothing. ``settings`` precede the practice's own (``controller.toml``).

        ``provider``: its machine backend, one of ``backing.KINDS``; ``heartbeat_s``: of every agent; None: set by the
        controller; ``quorum``: with the quorum service for elastic jobs; ``nursery``: daemons are forks of one process that has imported
        them, which saves seconds (``nursery.py``); not where a daemon's memory is measured."""
        folder = Path(folder).absolute()
        backing = backing_class(provider)
        made = Practice.create(
            folder,
            nodes=nodes,
            extra_slurm_conf=f"TaskProlog={folder}/bin/task_prolog\n",
            prefix=backing.prefix,
            **practice,
        )
        (folder / "etc" / "provider").write_text(f"{provider}\n")
        if nursery:
            (folder / "etc" / "nursery").touch()
        site = cls(made)
        (folder / "aws").mkdir(exist_ok=True)
        (folder / "actor").mkdir(mode=0o700, exist_ok=True)
        prolog = folder / "bin" / "task_prolog"
        prolog.write_text(
            f'#!/bin/sh\necho "export HOLDFAST_AGENT_SOCKET={folder}/nodes/$SLURMD_NODENAME/run/agent.sock"\n'
        )
        prolog.chmod(0o755)
        given = dict(settings or {})
        given["quorum"] = {"enabled": quorum, **given.get("quorum", {})}
        site._write_settings(given, store_url, spares, heartbeat_s)
        return site

    @property
    def controller_toml(self) -> Path:
        return self.folder / "etc" / "controller.toml"

    @property
    def quorum_socket(self) -> Path:
        """The quorum service's control socket."""
        return self.folder / "run" / "quorum.sock"

    @property
    def spare_names(self) -> tuple[str, ...]:
        return self.practice.nodes[len(self.practice.nodes) - self._number("spares") :]

    @property
    def backing(self) -> Backing:
        """The provider's machine backend."""
        return open_backing(self.practice)

    @property
    def endpoint(self) -> str:
        """Endpoint of the AWS emulator."""
        return self.backing.endpoint

    @property
    def emulator(self) -> EmulatorControl:
        return EmulatorControl(self.endpoint)

    @property
    def scheduler(self) -> SlurmCommands:
        return SlurmCommands(env={**os.environ, **self.practice.command_env()})

    def client_env(self) -> dict[str, str]:
        """Environment in which every ``holdfast`` command works on this site, as an operator."""
        return {
            **self.practice.command_env(),
            **aws.practice_env(self.endpoint),
            "HOLDFAST_URL": self.practice.controller_url,
            "HOLDFAST_TOKEN_FILE": str(self.folder / "etc" / "token.operator"),
            "HOLDFAST_CONFIG": str(self.controller_toml),
        }

    def up(self) -> None:
        """Start everything and wait until every agent is reporting. Idempotent. Raises Unavailable."""
        if (self.folder / "etc" / "nursery").exists():
            self.practice.processes.start_nursery()  # it imports while Slurm starts
        self._start_machines()
        self.practice.up()
        self._make_spare_pool()
        self._make_tokens()
        self.start_quorum()
        self.start_controller()
        self.start_actor()
        self._start_imds()
        for node in self.practice.nodes:
            write_agent(self.practice, node)
        argv = [sys.executable, "-m", "holdfast.practice.cluster.data_centre", str(self.folder)]
        self.practice.start_daemon("cloud", argv, aws.practice_env(self.endpoint))
        self.wait_for_agents()

    def down(self) -> None:
        self.practice.down()

    def start_quorum(self) -> None:
        """Start the quorum service, if this site has one, without waiting for it."""
        if not load(self.controller_toml).quorum.enabled:
            return
        argv = [sys.executable, "-m", "holdfast.head", "quorum", "--config", str(self.controller_toml)]
        self.practice.start_daemon("quorum", argv)

    def start_controller(self) -> None:
        """Start ``holdfast controller`` and wait until it answers."""
        argv = [sys.executable, "-m", "holdfast.head", "controller", "--config", str(self.controller_toml)]
        self.practice.start_daemon("controller", argv)

    def start_actor(self, env: Mapping[str, str] | None = None) -> None:
        argv = [sys.executable, "-m", "holdfast.head", "actor", "--config", str(self.controller_toml)]
        self.practice.start_daemon("actor", argv, {**aws.practice_env(self.endpoint), **(env or {})})

    def wait_for_agents(self, nodes: Sequence[str] = ()) -> None:
        """Wait until the kernel-log reader of every node's agent has reported to the controller."""
        wanted = set(nodes or self.practice.nodes)
        self._wait("agents", lambda: wanted <= self._heard())

    def _heard(self) -> set[str]:
        try:
            answer = get(self, "/v1/nodes")
        except OutsideError:
            return set()
        return {node["name"] for node in answer["nodes"] if any(a["status"] == "heard" for a in node["agents"])}

    def _write_settings(
        self, settings: Mapping[str, Mapping[str, Any]], store_url: str | None, spares: int, heartbeat_s: float | None
    ) -> None:
        spec = self.practice.spec
        table: dict[str, Any] = {
            "profile": "practice",
            "cluster": {"name": spec.name, "slurm_client": "commands", "slurm_conf": str(self.practice.slurm_conf)},
            "server": {"port": spec.controller_port},
            "store": {"url": store_url or f"sqlite:///{self.folder}/holdfast.db"},
            "mode": {"mode": "act"},
            "provider": self.backing.settings(),
            "spares": {"reservation": SPARES},
            "run": {"dir": str(self.folder / "run"), "cold_start_s": 3.0},
            "actor": {"dir": str(self.folder / "actor")},
            "quorum": {
                "socket": str(self.quorum_socket),
                "key": str(self.folder / "etc" / "quorum.key"),
                "store": f"sqlite:///{self.folder}/quorum.db",
            },
        }
        for section, keys in settings.items():
            table[section] = {**table.get(section, {}), **keys} if isinstance(keys, Mapping) else keys
        self.controller_toml.write_bytes(tomli_w.dumps(table).encode())
        self._note("spares", spares)
        if heartbeat_s is not None:
            self._note("heartbeat_s", heartbeat_s)

    def _note(self, name: str, value: float) -> None:
        (self.folder / "etc" / name).write_text(f"{value}\n")

    def _number(self, name: str) -> Any:
        text = (self.folder / "etc" / name).read_text().strip()
        return float(text) if "." in text else int(text)

    def _start_machines(self) -> None:
        """Start the emulator where it is needed; once, create the first machine of every node."""
        folder = self.folder / "aws"
        if self.backing.needs_aws:
            self._start_aws()
        if not (folder / "seeded").exists():
            Hosting(self.practice).name_machines(self.backing.begin())
            (folder / "seeded").touch()

    def _start_aws(self) -> None:
        folder = self.folder / "aws"
        argv = [sys.executable, "-m", "holdfast.practice.aws", "--port", str(self.practice.spec.aws_port)]
        argv += ["--state", str(folder / "state.json"), "--endpoint-file", str(folder / "endpoint")]
        self.practice.start_daemon("aws", argv, {"PYTHONHASHSEED": "0"})
        self._wait("AWS emulator", self.emulator.ready)

    def _start_imds(self) -> None:
        """Start the metadata service before the agents, whose configuration has its address."""
        self.practice.start_daemon(
            "imds", [sys.executable, "-m", "holdfast.practice.cluster.metadata", str(self.folder)]
        )
        self._wait("instance metadata", (self.folder / "run" / imds_state.ENDPOINT).exists)

    def _make_spare_pool(self) -> None:
        """Fill the spare pool, only once: later its content is managed by Holdfast."""
        if self.spare_names and SPARES not in self.scheduler.view().reservations:
            self.scheduler.create_reservation(SPARES, self.spare_names, users=("root",), duration_s=None)

    def _make_tokens(self) -> None:
        """One token per agent, one for the operator; only their hashes are in the store."""
        if (self.folder / "etc" / "token.operator").exists():
            return
        store = open_store(load(self.controller_toml).store.url)
        try:
            for node in self.practice.nodes:
                self._make_token(store, f"token.{node}", "agent", node)
            self._make_token(store, "token.operator", "operator", "practice")
        finally:
            store.close()

    def _make_token(self, store: SqlStore, name: str, role: str, subject: str) -> None:
        token = secrets.token_urlsafe(32)
        digest = hashlib.sha256(token.encode()).hexdigest()
        store.add_token(role, subject, digest, datetime.now(UTC), None)
        path = self.folder / "etc" / name
        path.touch(mode=0o600)
        path.write_text(token + "\n")

    def _wait(self, what: str, ready: Any) -> None:
        deadline = time.monotonic() + _READY_S
        while not ready():
            if time.monotonic() > deadline:
                raise Unavailable(f"{what} not ready after {_READY_S:.0f} s, see {self.folder}/log")
            time.sleep(0.05)
