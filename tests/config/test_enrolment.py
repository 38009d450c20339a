"""`[enrolment]`: only AWS' own STS is ever asked, and enabled settings are complete."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.config.enrolment import check_enrolment
from holdfast.config.sections import EnrolmentSection
from holdfast.model.errors import ConfigError

GOOD = EnrolmentSection(True, ("https://head:8460",), ("111122223333/gpu-node",), "https://sts.us-west-2.amazonaws.com")


def test_what_is_off_may_be_empty() -> None:
    check_enrolment(EnrolmentSection(), "c")


@pytest.mark.parametrize(
    "url",
    [
        "https://sts.us-west-2.amazonaws.com",
        "https://sts.cn-north-1.amazonaws.com.cn/",
        "https://sts-fips.us-east-1.amazonaws.com",
        "https://vpce-0123-abcd.sts.us-west-2.vpce.amazonaws.com",
        "http://127.0.0.1:4566",
    ],
)
def test_sts_and_an_emulator_on_loopback(url: str) -> None:
    check_enrolment(replace(GOOD, sts_url=url), "c")


@pytest.mark.parametrize(
    "url",
    [
        "",
        "http://sts.us-west-2.amazonaws.com",
        "https://sts.us-west-2.amazonaws.com:444",
        "https://sts.us-west-2.amazonaws.com/x",
        "https://sts.us-west-2.amazonaws.com?x",
        "https://me@sts.us-west-2.amazonaws.com",
        "https://sts.us-west-2.amazonaws.com.evil.example",
        "https://evil.example/sts.us-west-2.amazonaws.com",
        "https://169.254.169.254",
        "https://sts.us-west-2.amazonaws.com:x",
        "ftp://127.0.0.1",
    ],
)
def test_no_other_place(url: str) -> None:
    with pytest.raises(ConfigError, match=r"c\.sts_url"):
        check_enrolment(replace(GOOD, sts_url=url), "c")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("names", ()),
        ("names", ("http://head:8460",)),
        ("names", ("head:8460",)),
        ("names", ("https://head:8460/v1",)),
        ("roles", ()),
        ("roles", ("gpu-node",)),
        ("roles", ("arn:aws:iam::111122223333:role/gpu-node",)),
        ("roles", ("111122223333/*",)),
    ],
)
def test_what_is_on_is_whole(key: str, value: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=rf"c\.{key}"):
        check_enrolment(replace(GOOD, **{key: value}), "c")  # type: ignore[arg-type]
