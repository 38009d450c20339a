"""``holdfast agent`` and ``python -m holdfast.agent``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from holdfast.config.agent import example, load_agent_config
from holdfast.model.errors import ConfigError

DEFAULT_CONFIG = Path("/etc/holdfast/agent.toml")
EXIT_CONFIG = 78
"""EX_CONFIG of sysexits.h: systemd need not try again (RestartPreventExitStatus=78)."""


def run(config_path: Path) -> int:
    """Run the agent until it is told to stop; the exit status."""
    from holdfast.agent.agent import Agent  # noqa: PLC0415 - a wrong option should not cost the imports
    from holdfast.agent.system import set_up_logging  # noqa: PLC0415

    try:
        config = load_agent_config(config_path)
        set_up_logging(config.node, config.log_format)
        agent = Agent(config)
    except ConfigError as error:
        sys.stderr.write(f"holdfast agent: {error}\n")
        return EXIT_CONFIG
    except OSError as error:
        sys.stderr.write(f"holdfast agent: {error}\n")
        return 1
    return agent.run()


def main(arguments: list[str] | None = None) -> int:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(prog="holdfast agent", description="Watch this node and report to the controller.")
    parser.add_argument("--config", type=Path, default=DEFAULT_CONFIG, help="settings (default: %(default)s)")
    parser.add_argument("--example", action="store_true", help="print a commented agent.toml and exit")
    options = parser.parse_args(arguments)
    if options.example:
        sys.stdout.write(example())
        return 0
    return run(options.config)
