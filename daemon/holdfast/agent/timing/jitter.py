"""Jitter of the agent's pauses, so that the agents of a cluster do not all call at once. A generator for itself: the process's common one
belongs to the code that seeds it."""

from __future__ import annotations

import random

JITTER = random.Random()  # noqa: S311 - no secret
