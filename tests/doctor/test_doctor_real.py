"""The doctor on a real Slurm."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from holdfast.doctor import AdviceLevel, DoctorSite, run
from holdfast.doctor.edge import may_change, may_reserve
from holdfast.model.errors import Rejected
from holdfast.ports import Scheduler
from holdfast.practice.cluster.cluster import Practice
from holdfast.slurm.commands import SlurmCommands
from holdfast.slurm.run import refusal


class _AsUser:
    """Slurm's commands as another user: that user's rights decide."""

    def __init__(self, command: Callable[..., str], uid: int | None) -> None:
        self._command, self._uid = command, uid

    def drain(self, node: str, reason: str) -> None:
        argv = ("scontrol", "update", f"NodeName={node}", "State=DRAIN", f"Reason={reason}")
        try:
            self._command(*argv, uid=self._uid)
        except Rejected as error:
            raise refusal(argv, str(error)) from error

    def delete_reservation(self, name: str) -> None:
        argv = ("scontrol", "delete", f"ReservationName={name}")
        try:
            self._command(*argv, uid=self._uid)
        except Rejected as error:
            raise refusal(argv, str(error)) from error


@pytest.mark.slurm
def test_doctor_on_a_real_cluster() -> None:
    """A practice cluster has Slurm's defaults, so the doctor finds them; nothing on it changes."""
    home = Path(tempfile.mkdtemp(prefix="hf-doctor-"))  # short and open: sockets and other users need both
    home.chmod(0o755)
    practice = Practice.create(home / "c", nodes=2)
    try:
        practice.up()
        slurm = SlurmCommands(env=practice.command_env())
        before = slurm.view().nodes
        told = {one.id: one for one in run(slurm, DoctorSite(), agents={})}
        assert "slurm.permission" not in told
        assert told["agents.missing"].level is AdviceLevel.ERROR
        assert {"slurm.job_file_append", "slurm.cred_expire", "slurm.resume_timeout", "pool.no_spare"} <= set(told)
        assert not {"slurm.job_requeue", "slurm.gres_types", "slurm.select_type", "slurm.version"} & set(told)
        if os.geteuid() == 0:
            nobody = cast(Scheduler, _AsUser(practice.command, 65534))
            assert may_change(nobody) is False
            assert may_reserve(nobody) is False
        assert (may_change(slurm), may_reserve(slurm)) == (True, True)
        assert slurm.view().nodes == before
    finally:
        practice.remove()
        shutil.rmtree(home, ignore_errors=True)
