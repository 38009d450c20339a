"""Whether users of the head node reach its role: by the firmware's word, tried as a user without rights."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from holdfast.doctor import metadata_edge
from holdfast.doctor.facts import MetadataFacts
from holdfast_checks.probes.imds_users import Reached
from holdfast_checks.registry import NotGathered
from holdfast_checks.settings import Settings


@pytest.fixture
def on_ec2(tmp_path: Path) -> Settings:
    vendor = tmp_path / "class/dmi/id/sys_vendor"
    vendor.parent.mkdir(parents=True)
    vendor.write_text("Amazon EC2\n")
    return Settings(sysfs=tmp_path)


def test_nothing_is_asked_away_from_ec2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_edge, "try_as_user", lambda bases: pytest.fail(f"asked {bases}"))
    assert metadata_edge.metadata(Settings(sysfs=tmp_path)) is None


@pytest.mark.parametrize(
    ("uid", "answer", "found"),
    [
        (0, Reached(tokens=("http://a",)), MetadataFacts(True, ("http://a",))),
        (0, Reached(), MetadataFacts(True)),
        (0, NotGathered("no python"), None),
        (1000, Reached(tokens=("http://a",)), MetadataFacts(False)),
    ],
)
def test_on_ec2_root_tries_it(
    on_ec2: Settings,
    monkeypatch: pytest.MonkeyPatch,
    uid: int,
    answer: Reached | NotGathered,
    found: MetadataFacts | None,
) -> None:
    asked = []

    def try_as_user(bases: Sequence[str]) -> Reached:
        asked.append(tuple(bases))
        if isinstance(answer, NotGathered):
            raise answer
        return answer

    monkeypatch.setattr(os, "geteuid", lambda: uid)
    monkeypatch.setattr(metadata_edge, "try_as_user", try_as_user)
    assert metadata_edge.metadata(on_ec2) == found
    assert asked == ([("http://169.254.169.254", "http://[fd00:ec2::254]")] if uid == 0 else [])
