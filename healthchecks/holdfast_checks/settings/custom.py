"""An operator's own check."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast_checks.settings.option import option


@dataclass(frozen=True, slots=True)
class CustomSettings:
    """Table ``[custom.NAME]`` of ``agent.toml``; the check is called ``custom.NAME``."""

    command: tuple[str, ...] = option((), "Executable (absolute path) and arguments, run without a shell.")
    title: str = option("", "What it checks, in one line.")
    interval_s: float = option(
        300.0, "Seconds between two runs; a check of cost light or active runs on demand only.", low=0.5
    )
    deadline_s: float = option(
        30.0, "It is killed, with all that it started, when it takes longer.", low=0.1, high=3600
    )
    severity: str = option("warning", "How soon its worst finding calls for action: warning, degraded, fatal.")
    remedy: str = option(
        "none", "What its worst finding calls for: none, human, restart_job, reset_gpu, reboot, stop_start, replace."
    )
    cost: str = option("passive", "passive: runs while jobs run; light: also in a prolog; active: needs an idle node.")
    max_per_hour: int = option(120, "Runs within an hour; beyond them its last answer still counts.", low=1, high=3600)
    give_up_after: int = option(
        3, "It is disabled after this many misbehaviours in a row (hang, crash, garbage).", low=1
    )
    user: str = option("", "User that it runs as; empty: the agent's own.")
    env: dict[str, str] = option({}, "Environment variables, in addition to PATH, LC_ALL and HOLDFAST_CHECK.")
