"""Tests of our own that need an idle node."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from holdfast_checks.settings.option import option


@dataclass(frozen=True, slots=True)
class ActiveSettings:
    """Table ``[active]`` of ``agent.toml``."""

    seconds: float = option(30.0, "How long one active test may take.", low=0.1, high=600)
    start_s: float = option(120.0, "Additional time for PyTorch and CUDA to start.", low=1, high=600)
    python: str = option("", "Python 3.10 or newer that has PyTorch; empty: the agent's own.")
    device: str = option(
        "cuda", 'What is tested: "cuda"; "cpu" (PyTorch) and "plain" (plain Python) are for rehearsals.'
    )
    memory_fraction: float = option(
        0.9, "Share of the free GPU memory that the memory test fills.", low=0.01, high=0.99
    )
    baseline: Path | None = option(
        None, "Baseline of good nodes, the same file for all; unset: the one that this node learned, in state_dir."
    )
