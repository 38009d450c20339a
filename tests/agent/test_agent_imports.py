"""A node needs few packages: what the agent's process loads, as a list."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

ALLOWED = {"holdfast", "holdfast_checks", "urllib3", "psutil"}
"""``pynvml`` is loaded by the child that talks to NVML only."""

_CODE = """
import sys
before = set(sys.modules)
import holdfast.agent.__init__, holdfast.agent.main, holdfast.agent.agent
found = {name.split(".")[0] for name in set(sys.modules) - before}
print("\\n".join(sorted(name for name in found if name not in sys.stdlib_module_names and not name.startswith("_"))))
"""


def test_the_agent_loads_these_packages_and_no_others() -> None:
    done = subprocess.run([sys.executable, "-c", _CODE], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == ALLOWED


def test_the_process_that_talks_to_nvml_loads_even_less() -> None:
    code = _CODE.replace(
        "holdfast.agent.__init__, holdfast.agent.main, holdfast.agent.agent", "holdfast_checks.probes.nvml_child"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) <= {"holdfast_checks", "pynvml"}
