"""The practice cluster: a real Slurm with emulated GPUs on one machine, for demo, drills and tests (see
``docs/practice.md``)."""

from __future__ import annotations

from holdfast.practice.cluster.cluster import Practice
from holdfast.practice.cluster.spec import Spec
from holdfast.practice.faults.inject import Injector

__all__ = ["Injector", "Practice", "Spec"]
