"""The quorum service of this release: its tables, and its answers to the controller."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from support.quorum_site import Site, named, with_site

ROOM = "job-71-1772366400"


def record(folder: Path) -> dict[str, Any]:
    """Play a rendezvous's life with the real service; returns answers by question. The database is ``holdfast.db`` in the folder."""
    answers: dict[str, Any] = {}

    async def scene(site: Site) -> None:
        opened = await site.do(do="open", room=ROOM, rules={"min_groups": 3, "max_groups": 4})
        names = [named(opened, group, start) for group, start in (("0", "72.0"), ("1", "71.0"), ("2", "82.0"))]
        await asyncio.gather(*(site.ask(opened["url"], name) for name in names))
        answers["open"] = {**opened, "token": "", "url": ""}
        await site.do(do="open", room=ROOM, rules={"min_groups": 2, "max_groups": 4})
        answers["evict"] = await site.do(
            do="evict", room=ROOM, member="2~82.0", reason="holdfast[1kjmmb3pg001]: gpu.xid 79"
        )
        await asyncio.gather(*(site.ask(opened["url"], name, 5) for name in names[:2]))
        await site.do(do="spare", room=ROOM, group="3")
        await site.do(do="leave", room=ROOM, member="1~71.0")
        await site.do(do="open", room="job-9", rules={})
        await site.do(do="close", room="job-9")
        status = await site.do(do="status")
        answers["status"] = {**status, "rooms": [{**room, "url": ""} for room in status["rooms"]]}
        answers["events"] = await site.do(do="events")
        answers["refused"] = await site.do(do="evict", room="job-404", member="0", reason="x")

    with_site(folder, scene)
    return answers
