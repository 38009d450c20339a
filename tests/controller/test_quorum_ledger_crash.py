"""A controller that is killed while it reads the record of a real quorum service into a real store: each record once."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from bench.kit.rooms import Rooms

from holdfast.controller.quorum.quorum_link import QuorumLink
from holdfast.decisions.elastic.ledger import Read, fold
from holdfast.model.elastic_jobs.rooms import RoomRules
from holdfast.store import open_store
from support.practice import eventually
from support.rooms import T0, socket_of

READER = """
import sys
from holdfast.clock import SystemClock
from holdfast.controller.quorum import quorum_watch
from holdfast.controller.quorum.quorum_link import QuorumLink
from holdfast.model.book import Book, World
from holdfast.model.policies.policy import Policy
from holdfast.store import open_store

folder, fence = sys.argv[1], int(sys.argv[2])
quorum_watch.PAGE = 3
watch = quorum_watch.QuorumWatch(QuorumLink(f"{folder}/quorum.sock"), open_store(f"sqlite:///{folder}/holdfast.db"), SystemClock())
world = World(SystemClock().now(), Policy(), Book(), None)
while True:
    watch.read_on(world, fence)
"""
KILLS = 2
RECORDS = 60


@pytest.mark.slow
def test_each_record_becomes_events_exactly_once(tmp_path: Path) -> None:
    dice = random.Random(7)
    service, store = Rooms(tmp_path), open_store(f"sqlite:///{tmp_path}/holdfast.db")
    reader: subprocess.Popen[bytes] | None = None
    try:
        lease = store.take_lease("test", T0, 1e9)
        assert lease is not None
        service.start()
        link = QuorumLink(socket_of(tmp_path))
        link.open("job-1", RoomRules(1, 4))
        for number in range(RECORDS):
            link.evict("job-1", f"0~{number}.0", f"holdfast[inc{number}]: drill")
            if number % (RECORDS // KILLS) == 0:
                seen = len(store.events())
                reader = subprocess.Popen([sys.executable, "-c", READER, str(tmp_path), str(lease.fence)])
                eventually(lambda seen=seen: len(store.events()) > seen, within_s=60.0)  # type: ignore[misc]
            elif reader is not None and number % (RECORDS // KILLS) == 20:
                time.sleep(dice.uniform(0, 0.02))
                reader.kill()
                reader.wait()
        reader = subprocess.Popen([sys.executable, "-c", READER, str(tmp_path), str(lease.fence)])
        eventually(lambda: len(store.events()) >= RECORDS, within_s=60.0)
        time.sleep(0.2)  # for one that would come twice
        _, expected = fold(Read(), link.records(0, 10_000), {})
        assert [(e.text, e.incident_id, e.at) for e in store.events()] == [
            (e.text, e.incident_id, e.at) for e in expected
        ]
        assert len(expected) == RECORDS
    finally:
        if reader is not None:
            reader.kill()
            reader.wait()
        service.stop()
        store.close()
