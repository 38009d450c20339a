"""``kernel.mlx5``: Mellanox adapters' firmware and ports."""

from __future__ import annotations

from holdfast_checks.kernel.checks import kernel_check
from holdfast_checks.kernel.network import MLX5
from holdfast_checks.result import Remedy, Severity

CHECK = kernel_check(MLX5, "The mlx5 driver reports no dead adapter", Severity.FATAL, Remedy.REBOOT)
