"""What the API of this release answers to its command line: every verb that shows something, of sites with incidents."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

from holdfast.store import open_store
from holdfast_checks.result import Remedy, Severity
from recording.scene_jobs import job_that_saves
from support.served_site import ServedSite
from support.simulated.arrays import ElasticSite
from support.simulated.site import Site

NODE = "n1"
PATHS = ("/v1/nodes", f"/v1/nodes/{NODE}", "/v1/spares", "/v1/incidents", "/v1/metrics", "/v1/suppressions")
KNOWN = {"check": "gpu.thermal", "node": "n7", "component": "*", "hours": 72, "reason": "fan on order"}


def record(scratch: Path) -> dict[str, Any]:
    """By method and path, without the query; ``INCIDENT`` stands for the id of the first incident."""
    scratch.mkdir()
    with closing(open_store(f"sqlite:///{scratch / 'holdfast.db'}")) as store:
        site = Site(5, spares=("n5",), store=store)
        job_that_saves(site)
        would = {"observe": True, "would_severity": "degraded", "would_remedy": "reboot"}
        mild = {"severity": Severity.WARNING, "remedy": Remedy.NONE}
        site.fault("n3", check="host.fds", code="high", minor=None, evidence=would, **mild)
        site.run(10)
        site.fault(NODE)
        site.run(400, step_s=5)
        site.fault("n4", check="host.disk", code="full", minor=None, severity=Severity.DEGRADED, remedy=Remedy.HUMAN)
        site.run(60, step_s=5)
        served = ServedSite(site, store)
        made = served.call("POST", "/v1/suppressions", json=KNOWN).json()
        answers = {f"GET {path}": served.call("GET", path).json() for path in PATHS}
        (first,) = [i["id"] for i in answers["GET /v1/incidents"]["incidents"] if i["node"] == NODE]
        answers |= {
            "POST /v1/suppressions": made,
            "GET /v1/incidents/INCIDENT": served.call("GET", f"/v1/incidents/{first}").json(),
        }
        for verb in ("acknowledge", "close"):
            path = f"/v1/incidents/{_open(answers)}/{verb}"
            answers[f"POST /v1/incidents/INCIDENT/{verb}"] = served.call("POST", path, json={"reason": "mine"}).json()
        return answers | {"GET /v1/jobs": _jobs(served, scratch)}


def _open(answers: dict[str, Any]) -> str:
    (found,) = [i["id"] for i in answers["GET /v1/incidents"]["incidents"] if i["node"] == "n4"]
    return str(found)


def _jobs(served: ServedSite, scratch: Path) -> Any:
    """A job that was recovered, and one made of replica groups of which one gives way."""
    with closing(open_store(f"sqlite:///{scratch / 'elastic.db'}")) as store:
        site = ElasticSite(4, store=store)
        site.slurm.submit_elastic("2:4")
        site.run(3)
        site.slurm.submit(1, exclusive=True)
        site.run(30, step_s=5)
        elastic = ServedSite(site, store).call("GET", "/v1/jobs").json()
    return served.call("GET", "/v1/jobs").json() | {"elastic": elastic["elastic"]}
