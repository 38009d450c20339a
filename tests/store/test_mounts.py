from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest

from holdfast.model.errors import ConfigError
from holdfast.store import engines, open_store
from holdfast.store.mounts import network_type

MOUNTS = """\
/dev/vda1 / ext4 rw,relatime 0 0
tmpfs /run tmpfs rw 0 0
head:/home /home nfs4 rw,vers=4.2 0 0
10.0.0.1@tcp:/fsx /fsx lustre rw 0 0
sshfs#x /home/local/remote fuse.sshfs rw 0 0
/dev/vdb /home/local ext4 rw 0 0
//nas/share /mnt/with\\040blank cifs rw 0 0
/dev/vdc /srv ext4 rw 0 0
over:/srv /srv nfs rw 0 0
overlay /var/lib/containers overlay rw 0 0
nas:/x /mnt/line\u2028end nfs4 rw 0 0
"""


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/var/lib/holdfast/holdfast.db", None),
        ("/home/ada/holdfast.db", "nfs4"),
        ("/home/local/holdfast.db", None),
        ("/home/local/remote/x.db", "fuse.sshfs"),
        ("/homestead/x.db", None),
        ("/fsx/x.db", "lustre"),
        ("/mnt/with blank/x.db", "cifs"),
        ("/srv/x.db", "nfs"),
        ("/run/x.db", None),
        ("/mnt/line\u2028end/x.db", "nfs4"),
        ("/var/lib/containers/x.db", None),
    ],
)
def test_the_innermost_mount_decides(path: str, expected: str | None) -> None:
    assert network_type(PurePosixPath(path), MOUNTS) == expected


def test_without_a_mount_table_nothing_is_refused() -> None:
    assert network_type(PurePosixPath("/x"), "") is None


def test_a_store_on_a_network_file_system_is_refused(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"server:/x {tmp_path} nfs4 rw 0 0\n")
    with pytest.raises(ConfigError, match=r"network file system \(nfs4\).*local disk or PostgreSQL"):
        engines.parse_url(f"sqlite:///{tmp_path}/holdfast.db", mounts)


def test_a_link_to_a_network_file_system_is_seen_through(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "near").symlink_to(tmp_path / "far")
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/vda / ext4 rw 0 0\nserver:/x {tmp_path}/far nfs rw 0 0\n")
    with pytest.raises(ConfigError, match="network file system"):
        engines.parse_url(f"sqlite:///{tmp_path}/near/holdfast.db", mounts)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("nonsense", "not a database URL"),
        ("mysql://root@db/x", "sqlite or postgresql"),
        ("sqlite://", "names no file"),
        ("sqlite:///:memory:", "names no file"),
        ("sqlite:////nonexistent/folder/x.db", "/nonexistent/folder does not exist"),
    ],
)
def test_a_wrong_url_is_one_clear_line(url: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        open_store(url)
    assert "\n" not in str(caught.value)


def test_postgresql_always_means_the_driver_that_is_installed() -> None:
    assert engines.parse_url("postgresql://h@db/x").drivername == "postgresql+psycopg"
