"""Tests that need an idle node, run in a separate process (:mod:`holdfast_checks.active.run`).

All modules in here but ``check`` and ``learn`` import nothing of the other packages and keep to Python 3.10, as they may run in the
Python that has PyTorch, which need not be the agent's. The agent itself never imports PyTorch."""
