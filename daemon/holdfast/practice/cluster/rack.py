"""Bare-metal rack of a practice site, whose machines keep their asset tags, and the site's script for them.

Run as a file it is that script, by the contract of the provider ``command`` (docs/providers.md): ``rack.py FOLDER VERB NODE INSTANCE_ID
TOKEN INCIDENT``. It records orders and exits; the practice's data center (``hosting``) carries them out. Standard library only."""

from __future__ import annotations

import fcntl
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FILE = "etc/rack.json"
CAPABILITIES = {"contract": 1, "verbs": ["status", "reboot", "replace"], "power_off_confirmed": True}
REJECTED, NOT_FOUND = 110, 111


class Rack:
    """The machines of one site, in a file that script and data centre share."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / FILE

    def fill(self, nodes: Sequence[str]) -> dict[str, str]:
        """One machine per node; node → asset tag."""
        tags = {node: f"rack1-u{number}" for number, node in enumerate(nodes, 1)}
        with self._opened() as book:
            book["machines"] = {
                tag: {"instance_id": tag, "node": node, "state": "running", "token": "", "incident": ""}
                for node, tag in tags.items()
            }
        return tags

    def machines(self) -> dict[str, dict[str, Any]]:
        """By asset tag."""
        with self._opened() as book:
            found: dict[str, dict[str, Any]] = book["machines"]
            return found

    def orders(self) -> list[dict[str, Any]]:
        """Every accepted order, oldest first: ``verb``, ``instance_id``, ``node``, ``token``, ``at``, and ``done_at`` once it is."""
        with self._opened() as book:
            found: list[dict[str, Any]] = book["orders"]
            return found

    def done(self, number: int) -> None:
        """Mark the order at this index as carried out."""
        with self._opened() as book:
            order = book["orders"][number]
            order["done_at"] = time.time()
            machine = book["machines"][order["instance_id"]]
            if machine["token"] == order["token"]:
                machine["state"] = "running"

    def answer(self, asked: Mapping[str, str]) -> dict[str, Any]:
        """The script's answer to a request. Raises KeyError for an unknown machine."""
        with self._opened() as book:
            machines: dict[str, dict[str, Any]] = book["machines"]
            if asked["verb"] == "status":
                key = next(name for name in ("instance_id", "token", "node") if asked[name])
                return {"machine": next((m for m in machines.values() if m[key] == asked[key]), None)}
            machine = machines[asked["instance_id"]]
            known = any(o["token"] == asked["token"] and o["verb"] == asked["verb"] for o in book["orders"])
            if not known or not asked["token"]:
                order = {k: asked[k] for k in ("verb", "instance_id", "token", "incident")}
                book["orders"].append({**order, "node": machine["node"], "at": time.time()})
                if asked["verb"] == "replace":
                    machine.update(state="pending", token=asked["token"], incident=asked["incident"])
            return {} if asked["verb"] == "reboot" else {"machine": machine}

    @contextmanager
    def _opened(self) -> Iterator[dict[str, Any]]:
        with self._file.open("a+", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            text = file.read()
            book: dict[str, Any] = json.loads(text) if text else {"machines": {}, "orders": []}
            yield book
            fresh = json.dumps(book, indent=1)
            if fresh != text:
                file.truncate(0)
                file.write(fresh)


def main(argv: Sequence[str]) -> int:
    """Answer one request."""
    folder, verb = Path(argv[0]), argv[1]
    if verb == "capabilities":
        sys.stdout.write(json.dumps(CAPABILITIES))
        return 0
    if verb not in CAPABILITIES["verbs"]:  # type: ignore[operator]
        sys.stderr.write(f"no verb {verb} here\n")
        return REJECTED
    asked = dict(zip(("verb", "node", "instance_id", "token", "incident"), argv[1:6], strict=True))
    try:
        said = Rack(folder).answer(asked)
    except KeyError as error:
        sys.stderr.write(f"the rack has no machine {error}\n")
        return NOT_FOUND
    sys.stdout.write(json.dumps(said))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
