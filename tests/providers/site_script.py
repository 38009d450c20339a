"""A site's script as the provider ``command`` runs it, over a site that is one JSON file: ``site_script.py STATE MODE VERB …``.

MODE ``launch``: machines come and go; ``in-place``: the asset tag stays, what is behind it changes. Standard library only."""

from __future__ import annotations

import fcntl
import json
import sys
from pathlib import Path
from typing import Any, NoReturn

VERBS = {
    "launch": ["status", "reboot", "launch", "assign", "terminate"],
    "in-place": ["status", "reboot", "stop_start", "replace"],
}
LAUNCHED_AT = "2026-02-03T05:05:06+01:00"


def new_site(file: Path, nodes: dict[str, str]) -> None:
    """One serving machine per node, node → instance id."""
    machines = {tag: _machine(tag, node, "running") for node, tag in nodes.items()}
    file.write_text(json.dumps({"machines": machines, "effects": []}), encoding="utf-8")


def effects(file: Path, verb: str) -> list[dict[str, str]]:
    """What was actually done."""
    return [done for done in json.loads(file.read_text(encoding="utf-8"))["effects"] if done["verb"] == verb]


def _machine(tag: str, node: str, state: str, **more: Any) -> dict[str, Any]:
    given = {"instance_id": tag, "node": node, "state": state, "healthy": True, "serves": True, "address": "10.0.0.1"}
    return {**given, "launched_at": LAUNCHED_AT, "token": "", "incident": "", "hardware": 1, **more}


def answer(machine: dict[str, Any] | None) -> dict[str, Any]:
    return {"machine": machine and {k: v for k, v in machine.items() if k not in ("serves", "hardware")}}


def fail(status: int, text: str) -> NoReturn:
    print(json.dumps({"error": text}))  # noqa: T201 - its answer
    sys.exit(status)


class Site:
    def __init__(self, data: dict[str, Any], asked: dict[str, str]) -> None:
        self.data, self.asked = data, asked
        self.machines: dict[str, dict[str, Any]] = data["machines"]

    def find(self) -> dict[str, Any] | None:
        asked = self.asked
        if asked["instance_id"]:
            return self.machines.get(asked["instance_id"])
        if asked["token"]:
            return next((m for m in self.machines.values() if m["token"] == asked["token"]), None)
        serving = (m for m in self.machines.values() if m["serves"] and m["state"] != "terminated")
        return next((m for m in serving if m["node"] == asked["node"]), None)

    def status(self) -> dict[str, Any]:
        found = self.find()
        shown = answer(found)
        if found and found["state"] == "pending":  # the next poll finds it ready
            found.update(state="running", healthy=True)
        return shown

    def one(self) -> dict[str, Any]:
        found = self.machines.get(self.asked["instance_id"])
        return found if found is not None else fail(111, f"no machine {self.asked['instance_id']}")

    def done(self) -> None:
        self.data["effects"].append(self.asked)

    def reboot(self) -> dict[str, Any]:
        self.one()
        token = self.asked["token"]
        if not token or all(e["token"] != token for e in self.data["effects"] if e["verb"] == "reboot"):
            self.done()
        return {}

    def stop_start(self) -> dict[str, Any]:
        """Takes two calls: off, then on."""
        machine, token = self.one(), self.asked["token"]
        if all(e["token"] != token for e in self.data["effects"] if e["verb"] == "stop_start"):
            machine.update(state="stopped")
            self.done()
        elif machine["state"] == "stopped":
            machine.update(state="pending", healthy=None)
            return {"machine": {**answer(machine)["machine"], "state": "stopping"}}
        return answer(machine)

    def launch(self) -> dict[str, Any]:
        made = next((m for m in self.machines.values() if m["token"] == self.asked["token"]), None)
        if made is None:
            asked = {k: self.asked[k] for k in ("token", "incident")}
            tag = f"m-{len(self.machines) + 1}"
            made = _machine(tag, self.asked["node"], "pending", healthy=None, serves=False, **asked)
            self.machines[tag] = made
            self.done()
        return answer(made)

    def replace(self) -> dict[str, Any]:
        machine, asked = self.one(), self.asked
        if machine["token"] != asked["token"]:
            machine.update(state="pending", healthy=None, token=asked["token"], incident=asked["incident"])
            machine["hardware"] += 1
            self.done()
        return answer(machine)

    def assign(self) -> dict[str, Any]:
        for machine in self.machines.values():
            if machine["node"] == self.asked["node"]:
                machine["serves"] = machine["instance_id"] == self.asked["instance_id"]
        self.one().update(node=self.asked["node"], serves=True)
        return {}

    def terminate(self) -> dict[str, Any]:
        self.one().update(state="terminated")
        self.done()
        return {}


def main(file: Path, mode: str, verb: str) -> None:
    asked = json.load(sys.stdin)
    spoken = [asked[k] for k in ("verb", "node", "instance_id", "token", "incident")]
    if spoken != sys.argv[3:]:
        fail(110, f"arguments {sys.argv[3:]} and standard input {spoken} differ")
    if verb == "capabilities":
        print(json.dumps({"contract": 1, "verbs": VERBS[mode], "power_off_confirmed": True}))  # noqa: T201
        return
    with file.open("r+", encoding="utf-8") as opened:
        fcntl.flock(opened, fcntl.LOCK_EX)
        site = Site(json.load(opened), asked)
        if verb not in VERBS[mode]:
            fail(110, f"no verb {verb}")
        said = getattr(site, verb)()
        opened.seek(0)
        opened.truncate()
        json.dump(site.data, opened)
    print(json.dumps(said))  # noqa: T201


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
