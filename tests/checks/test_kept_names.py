"""The file of samples names classes as earlier releases named them, so that either release reads what the other has kept."""

from __future__ import annotations

import dataclasses
import importlib
import re
from pathlib import Path

import pytest

from holdfast_checks.checks.efa_admin import EfaAdminFacts
from holdfast_checks.checks.net_ethernet import NetEthernetFacts
from holdfast_checks.cli import keep
from holdfast_checks.link_history import LinkDown, LinkHistory
from holdfast_checks.probes.netdev import NetworkDevice
from holdfast_checks.reading import NvmlReading
from holdfast_checks.registry import Sample

BOOT = "boot-1"


def test_a_class_that_was_renamed_keeps_its_name_in_the_file(tmp_path: Path) -> None:
    """Releases before read it, and this one reads theirs."""
    history = LinkHistory(seen_up=True, downs=(LinkDown(1.0, 2.0),))
    facts = {
        "efa.admin": EfaAdminFacts({"rdmap0": {"no_completion_cmds": 1}}, {"rdmap0": None}),
        "net.ethernet": NetEthernetFacts({"eth0": NetworkDevice("eth0", True, True, 1)}, {"eth0": history}, 3.0, 4.0),
        "gpu": NvmlReading(7),
    }
    path, kept = tmp_path / "samples", keep.KeptRuns()
    for name, each in facts.items():
        kept.samples.change(name, Sample(each, 7.0))
    keep.save(path, BOOT, kept, facts)
    written = set(re.findall(r'"(holdfast_checks[\w.]*:\w+)"', path.read_text()))
    assert written == {
        "holdfast_checks.checks.efa_admin:Facts",
        "holdfast_checks.checks.net_ethernet:Facts",
        "holdfast_checks.link_history:Down",
        "holdfast_checks.link_history:LinkHistory",
        "holdfast_checks.probes.netdev:Link",
        "holdfast_checks.reading:Reading",
    }
    again = keep.load(path, BOOT)
    assert {name: again.samples.before(name) for name in facts} == {n: Sample(each, 7.0) for n, each in facts.items()}


@pytest.mark.parametrize("name", keep.RENAMED)
def test_each_renamed_class_is_there(name: str) -> None:
    module, _, path = name.partition(":")
    assert dataclasses.is_dataclass(getattr(importlib.import_module(module), path))
