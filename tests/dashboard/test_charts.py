"""Geometry of the drawings."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from holdfast.dashboard import charts
from holdfast.dashboard.screen import GridCell, GridGroup, NodeTrouble
from holdfast.model.incidents.fleet import NodeGroup

AT = datetime(2026, 3, 2, 12, tzinfo=UTC)


def cell(number: int, group: NodeGroup = NodeGroup.IN_SERVICE, *, spare: bool = False) -> GridCell:
    return GridCell(f"n{number}", group, spare, "")


def test_nodes_in_service_are_one_shape_and_trouble_is_drawn_apart() -> None:
    cells = tuple(cell(n, NodeGroup.SILENT if n == 41 else NodeGroup.IN_SERVICE, spare=n == 7) for n in range(100))
    drawn = charts.draw(GridGroup("gpu", cells), charts.pitch_of(100))
    assert drawn.good.count("M") == 99
    assert [(p.cell.node, p.x, p.y) for p in drawn.placed] == [("n7", 7 * 26, 0), ("n41", 41 % 39 * 26, 26)]
    assert (drawn.columns, drawn.height) == (39, 78)


@pytest.mark.parametrize(("nodes", "height"), [(16, 26), (4096, 333), (10_000, 801)])
def test_every_fleet_fits_a_screen(nodes: int, height: int) -> None:
    drawn = charts.draw(GridGroup("gpu", tuple(cell(n) for n in range(nodes))), charts.pitch_of(nodes))
    assert drawn.height == height
    assert drawn.width <= charts.WIDTH
    assert len(drawn.good) < 30 * nodes


def trouble(node: str, since_h: float, until_h: float | None) -> NodeTrouble:
    until = AT - timedelta(hours=until_h) if until_h is not None else None
    return NodeTrouble(node, "i", "text", AT - timedelta(hours=since_h), until, waits=False)


def test_the_timeline_has_a_row_for_each_node() -> None:
    found = [trouble("n1", 24, 12), trouble("n1", 6, None), trouble("n2", 0.001, 0)]
    rows, more = charts.timeline(found, AT)
    assert [(r.node, [(b.x, b.width) for b in r.bars]) for r in rows] == [
        ("n1", [(0.0, 500.0), (750.0, 250.0)]),
        ("n2", [(996.0, 4.0)]),
    ]
    assert more == 0


def test_the_timeline_is_bounded() -> None:
    rows, more = charts.timeline([trouble(f"n{n}", 1, None) for n in range(charts.MOST_ROWS + 5)], AT)
    assert (len(rows), more) == (charts.MOST_ROWS, 5)


def test_phases_of_an_incident() -> None:
    def at(seconds: float) -> datetime:
        return AT + timedelta(seconds=seconds)

    records = [
        ("incident.opened", at(0.5)),
        ("node.out_of_service", at(1.5)),
        ("job.stopped", at(2.5)),
        ("job.running", at(4.5)),
        ("job.running", at(6.5)),
        ("node.validated", at(10.0)),
    ]
    lanes, total_s = charts.waterfall(AT, records)
    assert [(lane.name, lane.begin_s, lane.took_s) for lane in lanes] == [
        ("detect", 0.0, 0.5),
        ("drain", 0.5, 1.0),
        ("stop job", 0.5, 2.0),
        ("restart job", 2.5, 4.0),
        ("validate node", 1.5, 8.5),
    ]
    assert total_s == 10.0
    assert (lanes[1].x, lanes[1].width) == (50.0, 100.0)


def test_an_incident_that_has_just_begun_has_no_phase() -> None:
    assert charts.waterfall(AT, []) == ((), 0.0)


def test_runs_of_a_job_on_its_axis() -> None:
    def end(restarts: int, since_h: float, until_h: float) -> dict[str, object]:
        since, until = AT - timedelta(hours=since_h), AT - timedelta(hours=until_h)
        times = {"started_at": since.isoformat(), "ended_at": until.isoformat()}
        return {"restarts": restarts, "cause": "node_fault", "incident_id": "i", **times}

    never = {**end(2, 1, 0), "started_at": None}
    bars = charts.runs([end(0, 10, 5), end(1, 5, 0), never])
    assert [(b.restarts, b.x, b.width) for b in bars] == [(0, 0.0, 500.0), (1, 500.0, 500.0)]
    assert charts.runs([never]) == ()


def test_failures_are_counted_by_their_cause() -> None:
    found = [
        ("gpu.xid", "n1"),
        ("host.disk", "n3"),
        ("gpu.xid", "n1"),
        ("gpu.xid", "n2"),
        ("gpu.ecc", "n1"),
        ("job", ""),
    ]
    assert [(c.cause, c.count, c.nodes, c.width) for c in charts.causes(found)] == [
        ("gpu.xid", 3, 2, 1000.0),
        ("gpu.ecc", 1, 1, 333.3),
        ("host.disk", 1, 1, 333.3),
        ("job", 1, 0, 333.3),
    ]
    assert charts.causes([]) == ()
