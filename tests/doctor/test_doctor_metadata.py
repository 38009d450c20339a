"""Whether users of the head node reach its role: as the firmware reports, tried as a user without rights."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from doctor.test_doctor import good
from holdfast.doctor import AdviceLevel, diagnose
from holdfast.doctor.facts import MetadataFacts
from holdfast.doctor.gather import metadata_edge
from holdfast.model.machine import MetadataOptions
from holdfast_checks.probes.imds_users import MetadataReached
from holdfast_checks.registry import NotGathered
from holdfast_checks.settings import CheckSettings


@pytest.fixture
def on_ec2(tmp_path: Path) -> CheckSettings:
    vendor = tmp_path / "class/dmi/id/sys_vendor"
    vendor.parent.mkdir(parents=True)
    vendor.write_text("Amazon EC2\n")
    return CheckSettings(sysfs=tmp_path)


def test_nothing_is_asked_away_from_ec2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_edge, "try_as_user", lambda bases: pytest.fail(f"asked {bases}"))
    assert metadata_edge.metadata(CheckSettings(sysfs=tmp_path)) is None


@pytest.mark.parametrize(
    ("uid", "answer", "found"),
    [
        (0, MetadataReached(tokens=("http://a",)), MetadataFacts(True, ("http://a",))),
        (0, MetadataReached(), MetadataFacts(True)),
        (0, NotGathered("no python"), None),
        (1000, MetadataReached(tokens=("http://a",)), MetadataFacts(False)),
    ],
)
def test_on_ec2_root_tries_it(
    on_ec2: CheckSettings,
    monkeypatch: pytest.MonkeyPatch,
    uid: int,
    answer: MetadataReached | NotGathered,
    found: MetadataFacts | None,
) -> None:
    asked = []

    def try_as_user(bases: Sequence[str]) -> MetadataReached:
        asked.append(tuple(bases))
        if isinstance(answer, NotGathered):
            raise answer
        return answer

    monkeypatch.setattr(os, "geteuid", lambda: uid)
    monkeypatch.setattr(metadata_edge, "try_as_user", try_as_user)
    assert metadata_edge.metadata(on_ec2) == found
    assert asked == ([("http://169.254.169.254", "http://[fd00:ec2::254]")] if uid == 0 else [])


@pytest.mark.parametrize(
    ("asset", "known"),
    [("i-0123456789abcdef0\n", "i-0123456789abcdef0"), ("Not Specified\n", ""), ("i-x; rm", ""), (None, "")],
)
def test_the_own_id_is_the_firmwares(on_ec2: CheckSettings, tmp_path: Path, asset: str | None, known: str) -> None:
    if asset is not None:
        (tmp_path / "class/dmi/id/board_asset_tag").write_text(asset)
    assert metadata_edge.own_id(on_ec2) == known


def test_away_from_ec2_there_is_none(tmp_path: Path) -> None:
    tag = tmp_path / "class/dmi/id/board_asset_tag"
    tag.parent.mkdir(parents=True)
    tag.write_text("i-0123456789abcdef0\n")
    assert metadata_edge.own_id(CheckSettings(sysfs=tmp_path)) == ""


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (None, []),
        (MetadataOptions(tokens_required=True, hop_limit=1), []),
        (MetadataOptions(tokens_required=False, hop_limit=1), ["site.metadata_without_token"]),
        (MetadataOptions(tokens_required=True, hop_limit=2), ["site.metadata_hops"]),
        (MetadataOptions(tokens_required=False, hop_limit=64), ["site.metadata_without_token", "site.metadata_hops"]),
    ],
)
def test_how_ec2_serves_it(options: MetadataOptions | None, said: list[str]) -> None:
    before = diagnose(good())
    found = diagnose(replace(good(), own_id="i-0123456789abcdef0", metadata_options=options))
    new = [one for one in found if one not in before]
    assert [one.id for one in new] == said
    assert all("--instance-id i-0123456789abcdef0 " in one.fix_line for one in new)


@pytest.mark.parametrize(
    ("environ", "conf", "opened", "meant"),
    [
        ("", "", False, False),
        ("open", "", False, True),
        ("", "# ours\nHOLDFAST_HEAD_METADATA=open\n", False, True),
        ("", 'HOLDFAST_HEAD_METADATA="open"\n', False, True),
        ("", "HOLDFAST_HEAD_METADATA=closed\n", True, False),
        ("", "HOLDFAST_METADATA=open\n", False, False),
        ("", "", True, True),
    ],
)
def test_where_somebody_chose_that_it_is_open_it_is_a_hint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environ: str, conf: str, opened: bool, meant: bool
) -> None:
    monkeypatch.setenv("HOLDFAST_HEAD_METADATA", environ)
    if conf:
        (tmp_path / "enrol.conf").write_text(conf)
    if opened:
        (tmp_path / "metadata.open").touch()
    assert metadata_edge.meant_open(tmp_path) is meant
    facts = replace(good(), metadata=MetadataFacts(True, ("http://a",), meant))
    (told,) = [one for one in diagnose(facts) if one.id == "site.metadata_open"]
    assert told.level is (AdviceLevel.HINT if meant else AdviceLevel.ERROR)
