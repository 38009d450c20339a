"""A job in a container reports the container's path of a directory; the agent reads it at the node's path."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.agent.jobs.job_socket import JobSocket
from holdfast.agent.node import container_paths
from holdfast.agent.node.container_paths import as_said, mounts_of, on_node, read_mounts, translate
from holdfast.agent.sending.outbox import OutboxItem
from support.job_socket import KnownJobs
from support.practice import eventually

NODE = """\
22 1 259:1 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p1 rw
30 22 0:25 / /run rw shared:5 - tmpfs tmpfs rw
41 22 0:44 / /fsx rw shared:9 - lustre 10.0.0.1@tcp:/fsx rw
42 22 0:44 /home /home rw shared:9 - lustre 10.0.0.1@tcp:/fsx rw
43 22 0:45 / /old rw - nfs4 server:/old rw
44 22 0:46 / /old/under rw - nfs4 server:/under rw
45 22 0:47 / /old rw - nfs4 server:/new rw
46 22 259:2 / /data\\040disk rw - xfs /dev/sdb rw
"""
INSIDE = """\
80 70 0:90 / / ro - fuse.squashfuse squashfuse rw
81 80 0:25 /holdfast /run/holdfast ro - tmpfs tmpfs rw
82 80 0:44 /me/run7 /ckpt rw - lustre 10.0.0.1@tcp:/fsx rw
83 80 0:44 /home/me /home/me rw - lustre 10.0.0.1@tcp:/fsx rw
84 80 259:1 /scratch/me /scratch rw - ext4 /dev/nvme0n1p1 rw
85 80 259:2 /a\\040b /d rw - xfs /dev/sdb rw
86 80 0:45 /x /hidden rw - nfs4 server:/old rw
87 80 0:44 /gone//deleted /gone rw - lustre 10.0.0.1@tcp:/fsx rw
88 80 0:99 / /tmp rw - tmpfs tmpfs rw
89 88 0:44 /me /tmp/deep rw - lustre 10.0.0.1@tcp:/fsx rw
nonsense
"""


@pytest.mark.parametrize("end", ["\x0c", "\x1d", "\u2028"])
def test_no_name_of_a_folder_adds_a_mount(end: str) -> None:
    line = f"80 70 0:90 / /home/m/a{end}41\xa022\xa00:44\xa0/\xa0/fsx\xa0rw rw - fuse.x x rw"
    (mount,) = read_mounts(line)
    assert (mount.device, str(mount.point)[:9]) == ("0:90", "/home/m/a")


@pytest.mark.parametrize(
    ("said", "node"),
    [
        ("/ckpt", "/fsx/me/run7"),
        ("/ckpt/step-5/", "/fsx/me/run7/step-5"),
        ("/ckpt/a/../step-5", "/fsx/me/run7/step-5"),
        ("/ckptx", None),  # the image's own
        ("/opt", None),
        ("/home/me/run", "/home/me/run"),  # of two names the one that was reported
        ("/scratch/c", "/scratch/me/c"),
        ("/d/c", "/data disk/a b/c"),
        ("/hidden/c", None),  # the node has it below another mount
        ("/gone/c", None),
        ("/tmp/c", None),
        ("/tmp/deep/c", "/fsx/me/c"),
        ("/run/holdfast/agent.sock", "/run/holdfast/agent.sock"),
    ],
)
def test_the_same_place_of_the_same_file_system(said: str, node: str | None) -> None:
    assert translate(said, read_mounts(INSIDE), read_mounts(NODE)) == node


def test_nothing_is_known_without_mounts() -> None:
    assert translate("/x", (), read_mounts(NODE)) is None
    assert translate("/x", read_mounts(NODE), ()) is None


def test_a_mount_table_that_is_longer_than_any_containers_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any user may mount 100,000 times in their own namespace; the agent reads no more than a container has."""
    as_root = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    with subprocess.Popen(["unshare", *as_root, "--mount", "sleep", "60"]) as process:
        try:
            eventually(lambda: mounts_of(process.pid) != "")
            monkeypatch.setattr(container_paths, "MOST_BYTES", len(mounts_of(process.pid)) - 1)
            assert mounts_of(process.pid) == ""
        finally:
            process.kill()
    assert on_node("/ckpt", "") == "/ckpt"


def test_the_answer_is_in_the_askers_terms() -> None:
    assert as_said("/fsx/me/run7/step-5", "/fsx/me/run7", "/ckpt/") == "/ckpt/step-5"
    assert as_said("/elsewhere/step-5", "/fsx/me/run7", "/ckpt") == "/elsewhere/step-5"


_SPEAKER = """
import json, socket, sys
connection = socket.socket(socket.AF_UNIX)
connection.settimeout(60)
connection.connect("/run/holdfast/agent.sock")
for line in json.loads(sys.argv[1]):
    connection.sendall(json.dumps(line).encode() + b"\\n")
print(connection.makefile().readline())
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="hf-", dir="/tmp") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.mark.slow
def test_a_job_that_calls_its_directory_otherwise(folder: Path) -> None:
    assert shutil.which("bwrap"), "bubblewrap is missing: ./dev setup installs it"
    (folder / "run").mkdir()
    saved = folder / "run7" / "checkpoint-20"
    saved.mkdir(parents=True)
    (saved / "trainer_state.json").write_text('{"global_step": 20}')
    (saved / "model.safetensors").write_bytes(bytes([2, 0, 0, 0, 0, 0, 0, 0]) + b"{}")
    same = {"v": 1, "job_id": 7, "restarts": 0}
    lines = [
        {**same, "kind": "checkpoint.register", "dir": "/ckpt"},
        {**same, "kind": "checkpoint.saved", "step": 20, "path": "/ckpt/checkpoint-20"},
        {**same, "kind": "checkpoint.resumed", "step": 0, "path": None},
        {"v": 1, "kind": "ask.latest", "dir": "/ckpt", "within_ms": 5000},
    ]
    container = [
        "bwrap",
        "--unshare-user",
        "--ro-bind",
        "/",
        "/",
        "--proc",
        "/proc",
        "--tmpfs",
        "/run",
        "--tmpfs",
        "/mnt",
    ]
    container += ["--ro-bind", f"{folder}/run", "/run/holdfast", "--bind", f"{folder}/run7", "/mnt/x"]
    items: list[OutboxItem] = []
    desk = JobSocket(folder / "run", KnownJobs({7: frozenset({os.getpid()})}), items.append)
    desk.start()
    try:
        done = subprocess.run(
            [*container, "--", sys.executable, "-c", _SPEAKER, json.dumps(lines).replace("/ckpt", "/mnt/x")],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        desk.stop()
    if done.returncode and "amespace" in done.stderr:
        pytest.skip(f"no user namespaces are allowed here: {done.stderr.strip()}")
    assert [item.body["path"] for item in items] == [str(folder / "run7"), str(saved), None], done.stderr
    assert json.loads(done.stdout) == {"v": 1, "kind": "latest", "path": "/mnt/x/checkpoint-20"}
