"""The cloud's id of this machine: from the settings, from a file, or from EC2's instance metadata."""

from __future__ import annotations

import http.client
import logging
import time

from holdfast.agent.node.system import read_id
from holdfast.agent.sources.checks import settings_of
from holdfast.config.agent import AgentConfig
from holdfast.model.errors import ConfigError
from holdfast_checks.probes.imds import URL, document

log = logging.getLogger(__name__)

FROM_IMDS = "imds"
PATIENCE_S = 30.0
"""How long to wait, since the network may come up after the agent; then systemd restarts the agent."""


def machine_id(config: AgentConfig, patience_s: float = PATIENCE_S) -> str:
    """Determine the id; empty where no cloud is configured. Raises ConfigError when it is not available."""
    if config.instance_id != FROM_IMDS:
        return config.instance_id or read_id(config.instance_id_path, "instance id")
    imds = settings_of(config).cloud.imds
    base = URL if imds in ("auto", "") else imds.rstrip("/")
    until_s = time.monotonic() + patience_s
    while True:
        try:
            found = document(base, "instance-id")
            if found and len(found) <= 100 and found.isascii() and found.isprintable() and " " not in found:
                return found
            raise ConfigError(f"instance id: {base} answered with none")
        except (OSError, http.client.HTTPException) as error:
            if time.monotonic() >= until_s:
                raise ConfigError(f"instance id: {base} does not answer: {error}") from error
            log.info("event=imds_awaited url=%s error=%r", base, str(error))
            time.sleep(1.0)
