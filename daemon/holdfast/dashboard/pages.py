"""The pages below the first one: which answers of the API each is made of, and what is drawn from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote

from jinja2 import Environment

from holdfast.api.callers.auth import Principal, Role
from holdfast.api.guards.guarded import READERS
from holdfast.dashboard import charts
from holdfast.dashboard.inside import ApiQuery
from holdfast.metrics.night import MANUAL_MINUTES
from holdfast.model.event import EventKind

PageAsks = Mapping[str, tuple[str, ApiQuery]]
"""Name → path and query."""


ORDERED = [k.value for k in (EventKind.OPERATOR, EventKind.PAUSED, EventKind.RESUMED, EventKind.BRAKE_RELEASED)]
"""What operators did."""
MOST_ORDERS = 200
"""On one page of the audit log."""
MOST_FAILURES = 1000
"""The newest incidents, by which failures are counted."""
MONTH = timedelta(days=30)


def _same(shown: dict[str, Any]) -> dict[str, Any]:
    return shown


@dataclass(frozen=True, slots=True)
class DashboardPage:
    """One page."""

    path: str
    template: str
    asks: Callable[[dict[str, Any], datetime], PageAsks]
    """What to ask, by the parameters of its address and the time."""
    prepare: Callable[[dict[str, Any]], dict[str, Any]] = _same
    """What the template is given, of the answers and parameters."""
    params: tuple[str, ...] = ()
    """Parameters of its address that it takes."""
    roles: tuple[Role, ...] = READERS
    partial: bool = False
    """Shown also where one of its answers is that there is no such thing: the template says so."""

    def role_of(self, caller: Principal) -> Role | None:
        """The caller's role; None: the page is not for it."""
        return caller.role if caller.role in self.roles else None

    def query(self, given: Mapping[str, str]) -> dict[str, str]:
        return {name: given.get(name, "")[:200] for name in self.params}


def _incident(shown: dict[str, Any]) -> dict[str, Any]:
    story = shown["story"]
    fault_at = datetime.fromisoformat(story["incident"]["fault_at"])
    records = [(e["kind"], datetime.fromisoformat(e["at"])) for e in story["timeline"]]
    lanes, total_s = charts.waterfall(fault_at, records)
    for (_, at), event in zip(records, story["timeline"], strict=True):
        event["after_s"] = (at - fault_at).total_seconds()
    return {**shown, "lanes": lanes, "total_s": total_s, "manual_minutes": MANUAL_MINUTES}


def _job(shown: dict[str, Any]) -> dict[str, Any]:
    """One that is on record alone, and one whose runs ended alone, are shown with what there is."""
    found, why = shown["found"] or {}, shown["why"] or {}
    records = found.get("jobs", [])
    ends = why.get("ends", [])
    return {
        **shown,
        "why": why if "ends" in why else None,
        "record": records[0] if records else None,
        "runs": charts.runs(ends),
    }


def _fleet(shown: dict[str, Any]) -> dict[str, Any]:
    found = shown["found"]
    causes = charts.causes((i["check"] or i["kind"], i["node"]) for i in found["incidents"])
    return {**shown, "causes": causes, "counted": len(found["incidents"]), "all_counted": not found["next_cursor"]}


def _path(prefix: str, name: str, suffix: str = "") -> str:
    return f"{prefix}/{quote(name, safe='')}{suffix}"


PEOPLE = (*READERS, Role.USER)


def all_pages() -> tuple[DashboardPage, ...]:
    return (
        DashboardPage(
            "/ui/incident/{incident}",
            "incident.html",
            lambda p, _: {"story": (_path("/v1/incidents", p["incident"]), {})},
            _incident,
        ),
        DashboardPage(
            "/ui/incidents",
            "incidents.html",
            lambda p, _: {"found": ("/v1/incidents", _kept(p))},
            params=("cursor", "node", "since"),
        ),
        DashboardPage(
            "/ui/node/{node}",
            "node.html",
            lambda p, _: {
                "story": (_path("/v1/nodes", p["node"]), {}),
                "health": (_path("/v1/nodes", p["node"], "/health"), {}),
                "history": (_path("/v1/nodes", p["node"], "/history"), {"limit": "100"}),
            },
        ),
        DashboardPage("/ui/jobs", "jobs.html", lambda _p, _: {"found": ("/v1/jobs", {})}, roles=PEOPLE),
        DashboardPage(
            "/ui/job/{job}",
            "job.html",
            lambda p, _: {
                "why": (_path("/v1/jobs", p["job"], "/why"), {}),
                "found": ("/v1/jobs", {"job_id": p["job"]}),
            },
            _job,
            roles=PEOPLE,
            partial=True,
        ),
        DashboardPage(
            "/ui/fleet",
            "fleet.html",
            lambda _, now: {
                "found": ("/v1/incidents", {"since": (now - MONTH).isoformat(), "limit": str(MOST_FAILURES)}),
                "spares": ("/v1/spares", {}),
                "lemons": ("/v1/lemons", {}),
                "metrics": ("/v1/metrics", {}),
                "saved": ("/v1/saved", {}),
            },
            _fleet,
        ),
        DashboardPage(
            "/ui/settings",
            "settings.html",
            lambda _p, _: {"status": ("/v1/status", {}), "checks": ("/v1/checks", {}), "policy": ("/v1/policy", {})},
        ),
        DashboardPage(
            "/ui/audit",
            "audit.html",
            lambda p, _: {
                "found": (
                    "/v1/events",
                    {"kind": ORDERED, "limit": str(MOST_ORDERS), "newest_first": "true", **_kept(p)},
                )
            },
            params=("since", "cursor"),
        ),
    )


def _kept(given: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in given.items() if value}


@dataclass(frozen=True)
class Pages:
    """The pages and their templates."""

    templates: Environment
    now: Callable[[], datetime]
    all: tuple[DashboardPage, ...] = field(default_factory=all_pages)

    def text(self, template: str, **given: Any) -> str:
        return self.templates.get_template(template).render(
            now=lambda: self.now().isoformat(timespec="milliseconds"), **given
        )
