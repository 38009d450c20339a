"""The practice cluster: a real Slurm with emulated GPUs on one machine, for demo, drills and tests (see
``docs/practice.md``)."""

from __future__ import annotations

from holdfast.practice.cluster import Practice
from holdfast.practice.inject import Injector
from holdfast.practice.spec import Spec

__all__ = ["Injector", "Practice", "Spec"]
