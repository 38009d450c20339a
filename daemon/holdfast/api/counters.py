"""The API's own counters, in a separate Prometheus registry."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter

from holdfast.api.requests.convert import Notes
from holdfast.model.agents.report import Report
from holdfast.ports import Accepted


class ApiCounters:
    """Counters since the controller started."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.heartbeats = Counter("holdfast_heartbeats", "Heartbeats received.", registry=self.registry)
        self.reports = Counter("holdfast_reports", "Reports received, by result.", ["result"], registry=self.registry)
        self.limited = Counter(
            "holdfast_requests_limited",
            "Requests that were answered 429: one token sends or asks for more than it may.",
            registry=self.registry,
        )
        self.findings = Counter(
            "holdfast_findings",
            "Findings stored, by check and severity.",
            ["check", "severity"],
            registry=self.registry,
        )
        self.set_aside = Counter(
            "holdfast_items_set_aside", "Items noted and not acted upon, by reason.", ["reason"], registry=self.registry
        )

    def report(self, report: Report, accepted: Accepted) -> None:
        if accepted.duplicate:
            self.reports.labels("duplicate").inc()
            return
        self.reports.labels("out_of_order" if accepted.out_of_order else "accepted").inc()
        for finding in report.findings:
            self.findings.labels(finding.check, finding.severity.value).inc()

    def notes(self, notes: Notes, unknown: int, refused: int) -> None:
        for reason, count in (
            ("history", len(notes.history)),
            ("not_bad", len(notes.not_bad)),
            ("age_clamped", notes.clamped),
            ("unknown_kind", unknown),
            ("refused", refused),
        ):
            if count:
                self.set_aside.labels(reason).inc(count)
