"""``holdfast agent`` and ``python -m holdfast.agent``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from holdfast import logs
from holdfast.config.agent import example, load_agent_config
from holdfast.model.errors import ConfigError

DEFAULT_CONFIG = Path("/etc/holdfast/agent.toml")
EXIT_CONFIG = 78
"""EX_CONFIG of sysexits.h: systemd does not restart the agent (RestartPreventExitStatus=78)."""


def run(config_path: Path) -> int:
    """Run the agent until it is stopped; the exit status."""
    from holdfast.agent.agent import Agent  # noqa: PLC0415 - a wrong option should not cost the imports

    try:
        config = load_agent_config(config_path)
        logs.set_up(config.log_format, node=config.node)
        agent = Agent(config)
    except ConfigError as error:
        sys.stderr.write(f"holdfast agent: {error}\n")
        return EXIT_CONFIG
    except OSError as error:
        sys.stderr.write(f"holdfast agent: {error}\n")
        return 1
    return agent.run()


def check(config_path: Path, *, running_only: bool = False, verbose: bool = False) -> int:
    """Test each step from the settings to a controller that accepts reports; 0 if none fails, 78 for wrong settings, else 1."""
    from holdfast.agent import selfcheck  # noqa: PLC0415 - as above

    try:
        config = load_agent_config(config_path)
    except ConfigError as error:
        sys.stdout.write(f"{selfcheck.SelfcheckLine(selfcheck.SelfcheckLevel.FAILED, 'configuration', str(error))}\n")
        return EXIT_CONFIG
    lines = (
        [selfcheck.running(config.run_dir)]
        if running_only
        else [selfcheck.settings(config_path), *selfcheck.check(config)]
    )
    failed = sum(line.level is selfcheck.SelfcheckLevel.FAILED for line in lines)
    for line in lines:
        if verbose or line.level is not selfcheck.SelfcheckLevel.OK:
            sys.stdout.write(f"{line}\n")
    sys.stdout.write(f"{config.node}: {failed} of {len(lines)} steps failed\n" if failed else f"{config.node}: ok\n")
    return 1 if failed else 0


def main(arguments: list[str] | None = None) -> int:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(
        prog="holdfast-agent",
        description="Watch this node and report to the controller; or check that it can.",
        epilog="Exit status of check: 0 nothing failed, 1 a step failed (one line each), 78 wrong settings.",
    )
    parser.add_argument("verb", nargs="?", choices=("run", "check"), default="run", help="default: %(default)s")
    parser.add_argument("--config", type=Path, default=DEFAULT_CONFIG, help="settings (default: %(default)s)")
    parser.add_argument("--example", action="store_true", help="print a commented agent.toml and exit")
    parser.add_argument(
        "--running", action="store_true", help="check: show only the status that the running agent reports"
    )
    parser.add_argument("--verbose", "-v", action="store_true", help="check: also show the steps that passed")
    options = parser.parse_args(arguments)
    if options.example:
        sys.stdout.write(example())
        return 0
    if options.verb == "check":
        return check(options.config, running_only=options.running, verbose=options.verbose)
    return run(options.config)


def entry() -> None:
    """``holdfast-agent``."""
    sys.exit(main())
