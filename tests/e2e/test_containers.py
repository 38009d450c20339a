"""A job that trains in a rootless container, on a real Slurm: it finds socket and verbs in the mounted folder, and resumes after a fault.

bubblewrap makes the container: its own user, mount, PID, IPC and UTS namespaces, another user id inside, a root file system without
anything of this project, and the environment of the task, as pyxis, enroot and Apptainer have it."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
from functools import partial
from pathlib import Path

import pytest

from holdfast.agent.orders.checkpoint_verbs import VERBS
from holdfast.model.incidents.incident import RecoveryPhase
from support.practice import eventually
from support.site import PATIENCE_S, Drill, MakeDrill

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(400)]

JOB = Path(__file__).parent / "container_job.py"
USER = pwd.getpwnam("games").pw_uid if os.geteuid() == 0 else None
"""An ordinary user without any rights, where the practice can submit as one."""
NAMESPACES = ["--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--uid", "4242", "--gid", "4242"]
PLACES = ["bin", "lib", "lib64", "sbin"]
"""Links into /usr, or folders, as the distribution has it."""


@pytest.fixture(autouse=True, scope="module")
def _allowed() -> None:
    assert shutil.which("bwrap"), "bubblewrap is missing: ./dev setup installs it"
    done = subprocess.run(
        ["bwrap", *NAMESPACES, "--ro-bind", "/", "/", "--proc", "/proc", "true"],
        user=USER,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    if done.returncode != 0:
        pytest.skip(f"no user namespaces are allowed here: {done.stderr.strip()}")


def container(folder: Path, *, mounts: str) -> str:
    """The command that starts a container: the distribution's own Python, a separate /run and /tmp, and the job's folder."""
    image = ["--ro-bind /usr /usr"]
    for place in PLACES:
        path = Path("/") / place
        if path.is_symlink():
            image.append(f"--symlink {path.readlink()} {path}")
        elif path.is_dir():
            image.append(f"--ro-bind {path} {path}")
    own = "--proc /proc --dev /dev --tmpfs /run --tmpfs /tmp --unsetenv HOLDFAST_AGENT_SOCKET --unsetenv PYTHONPATH"
    return f"bwrap {' '.join(NAMESPACES)} {' '.join(image)} {own} --ro-bind {JOB} /job.py --bind {folder} {folder} {mounts}"


INSIDE = """
set -eu
verbs="python3 /run/holdfast/{verbs}"
$verbs register {folder}
LATEST=$($verbs latest {folder}) || [ $? -eq 4 ] || exit 75
echo "the verbs say ${{LATEST:-none}}, user $(id -u)"
PYTHONPATH=/run/holdfast/{verbs} exec python3 /job.py {folder}
"""


def _saved(drill: Drill, job_id: int, run: int) -> bool:
    runs = drill.output(job_id).split("resumed from step ")[1:]
    return len(runs) == run + 1 and runs[run].count("checkpoint step") >= 2


def _resumed(drill: Drill, job_id: int) -> bool:
    phases = [recovery.phase for recovery in drill.recoveries(job_id)]
    return drill.run(job_id) == ("RUNNING", 1) and phases == [RecoveryPhase.RESUMED]


def test_a_job_in_a_container_resumes_after_a_fault(make_drill: MakeDrill) -> None:
    drill = make_drill(nodes=3, spares=1, heartbeat_s=1.0)
    folder = drill.practice.folder / "jobs" / "ckpt"
    folder.mkdir()
    if USER is not None:
        os.chown(folder, USER, -1)
    inside = folder.parent / "inside.sh"
    inside.write_text(INSIDE.format(verbs=VERBS, folder=folder))
    mounts = f'--ro-bind "${{HOLDFAST_AGENT_SOCKET%/*}}" /run/holdfast --ro-bind {inside} /inside.sh'
    each = f"exec {container(folder, mounts=mounts)} sh /inside.sh"
    script = f"cd /; exec srun sh -c '{each}'\n"
    job_id = drill.practice.sbatch(
        script, "--gres=gpu:8", "--comment=holdfast", "--open-mode=append", "--chdir=/", uid=USER
    )
    eventually(partial(_saved, drill, job_id, 0), within_s=PATIENCE_S, why=lambda: drill.output(job_id))
    (bad,) = drill.job(job_id).nodes
    drill.inject.xid(bad, 79, 3)
    eventually(partial(_resumed, drill, job_id), within_s=PATIENCE_S, why=lambda: drill.output(job_id))

    output = drill.output(job_id)
    assert drill.job(job_id).nodes != (bad,)
    assert f"library /run/holdfast/{VERBS}/" in output
    first, second = re.findall(r"the verbs say (\S+), user (\d+)", output)
    assert first == ("none", "4242")
    found = re.search(r"/step-(\d+)-", second[0])
    assert found is not None, second
    (resumed,) = drill.resumed_from(job_id)[1:]
    assert resumed == int(found[1]) >= 20
    (recovery,) = drill.recoveries(job_id)
    assert (recovery.resumed_step, recovery.checkpoint_known) == (resumed, True)
    assert "no agent" not in output, "what it said was taken, under the user that Slurm knows"
