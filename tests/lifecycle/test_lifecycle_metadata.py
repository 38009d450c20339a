"""The instance metadata is closed to users by the rules that the docs name, in a network of its own."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from lifecycle.lifecycle_support import SCRIPTS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0 or shutil.which("nft") is None, reason="needs root and nftables"),
]
SCRIPT = r"""
ip link set lo up && ip addr add 169.254.169.254/32 dev lo
cd /usr && /usr/bin/python3 -m http.server -b 169.254.169.254 80 >/dev/null 2>&1 &
server=$!
ask='import urllib.request; print(urllib.request.urlopen("http://169.254.169.254/", timeout=5).status)'
tries() {
	/usr/bin/python3 -c "$ask" 2>/dev/null || echo refused
	setpriv --reuid=65534 --clear-groups /usr/bin/python3 -c "$ask" 2>/dev/null || echo refused
}
for _ in 1 2 3 4 5 6 7 8 9 10; do /usr/bin/python3 -c "$ask" >/dev/null 2>&1 && break; sleep 0.2; done
tries
nft -f "$1" && nft -f "$1"
tries
kill "$server"
"""


def test_users_are_refused_and_root_is_not() -> None:
    """Loaded twice, as after a change."""
    rules = str(SCRIPTS / "holdfast-metadata.nft")
    done = subprocess.run(
        ["unshare", "-n", "sh", "-c", SCRIPT, "sh", rules], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.split() == ["200", "200", "200", "refused"], done.stderr
