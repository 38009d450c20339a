"""Limits on a job's own reports: the agent refuses what the controller would refuse, so that nothing is sent in vain. Standard library
only."""

from __future__ import annotations

import re

CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
"""Characters that no path and no value may contain: they would break or forge a line."""
UNSHOWN = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]+")
"""The same, with those that reverse the order in which a text is read: no text that people are shown has them."""
PATH_MAX = 4096
"""Characters of a path (Linux: PATH_MAX)."""
RESTARTS_MAX = 2**31 - 1
"""Restarts of a job: Slurm counts them in 32 bits."""
WHOLE_MAX = 2**63 - 1
"""Any other whole number: a column of the store has 64 bits."""
