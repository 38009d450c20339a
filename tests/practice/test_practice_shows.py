"""What the demo's options mean, and how the next machines of a site are arranged."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.practice.cluster.backing import KINDS, POD_GROUP, backing_class
from holdfast.practice.cluster.deliveries import Delivery, arrange, install_next
from holdfast.practice.cluster.host import PracticeHost
from holdfast.practice.demo.scenario import read_options
from holdfast.practice.demo.show import Show
from holdfast.practice.demo.timeline import line_of
from holdfast.practice.nvml import state as nvml


@pytest.mark.parametrize(
    ("show", "nodes", "machines", "heals"),
    [
        (Show(), 5, 1, True),
        (Show(spares=0), 3, 1, True),
        (Show(failures=2), 5, 3, True),
        (Show(failures=3), 5, 3, False),
        (Show("command", same_hardware=True), 5, 2, True),
        (Show("hyperpod", watched=True), 5, 0, True),
    ],
)
def test_a_show_knows_what_must_come_of_it(show: Show, nodes: int, machines: int, heals: bool) -> None:
    assert (show.nodes, show.machines, show.heals) == (nodes, machines, heals)


def test_every_provider_of_the_practice_can_be_shown() -> None:
    assert [read_options(["--provider", kind]).provider for kind in KINDS] == list(KINDS)
    assert read_options([]).provider == "ec2"
    assert backing_class("hyperpod").prefix == f"{POD_GROUP}-"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--provider", "toaster"], "invalid choice: 'toaster'"),
        (["--fail-replacements", "4"], "invalid choice: 4"),
        (["--same-hardware"], "needs a provider that exchanges a machine in place"),
        (["--provider", "ec2", "--hyperpod-repairs"], "goes with --provider hyperpod alone"),
        (["--provider", "command", "--same-hardware", "--fail-replacements", "1"], "one at a time"),
    ],
)
def test_options_that_make_no_show_are_refused(words: list[str], why: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        read_options(words)
    assert ended.value.code == 2
    assert why in capsys.readouterr().err


def test_the_next_machines_are_as_arranged_and_then_good(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    host = PracticeHost(tmp_path / "machine", "n1", 8)
    host.create()

    def gpus() -> list[str]:
        return [gpu.uuid for gpu in nvml.read(host.nvml_state).gpus]

    first = gpus()
    arrange(tmp_path, [Delivery.SAME, Delivery.FAULTY])
    assert install_next(tmp_path, host, "i-1") is Delivery.SAME
    assert (host.instance_id, gpus()) == ("i-1", first)
    assert install_next(tmp_path, host, "i-2") is Delivery.FAULTY
    assert (len(gpus()), set(gpus()) & set(first)) == (7, set())
    for _ in range(2):
        before = set(gpus())
        assert install_next(tmp_path, host, "i-3") is Delivery.GOOD
        assert (len(gpus()), set(gpus()) & before) == (8, set())


def test_a_failed_attempt_is_told() -> None:
    event = {
        "kind": "incident.state",
        "detail": {"attempt_failed": 1, "failure": "same_hardware"},
        "text": "attempt 1 failed: the same hardware came back: GPU-1",
    }
    line = line_of(event)
    assert line is not None
    assert line.label == "climbs"
    assert line_of({**event, "detail": {}, "text": "validating → repairing (x)"}) is None
