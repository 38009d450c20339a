"""What a job's comment declares to Holdfast."""

from __future__ import annotations

import pytest

from holdfast.model.jobs.opt_in import OptInMeaning, read_comment, why_not


@pytest.mark.parametrize(
    "comment",
    [
        "holdfast",
        "x,holdfast",
        "holdfast please",
        "holdfast elastic=2:4 of=71",
        "holdfast sizes=2+4",
        "baseline, no augmentation, holdfast",
        "no dropout holdfast",
        "holdfast wandb=off",
        "not yet done; holdfast",
        "holdfast, do not use dropout",
        "holdfast early stop",
    ],
)
def test_consent(comment: str) -> None:
    assert read_comment(comment).said is OptInMeaning.CONSENT
    assert why_not(comment) == ""


@pytest.mark.parametrize(
    ("comment", "words"),
    [
        ("no holdfast", "no holdfast"),
        ("not holdfast", "not holdfast"),
        ("NO holdfast", "NO holdfast"),
        ("no,holdfast", "no holdfast"),
        ("run 7: do not use holdfast", "not use holdfast"),
        ("without holdfast", "without holdfast"),
        ("holdfast=no", "holdfast=no"),
        ("holdfast=off", "holdfast=off"),
        ("holdfast = off", "holdfast=off"),
        ("holdfast: false", "holdfast:false"),
        ("Holdfast=0", "Holdfast=0"),
        ("holdfast off", "holdfast off"),
        ("holdfast is off.", "holdfast is off."),
        ("no-holdfast", "no-holdfast"),
        ("noholdfast", "noholdfast"),
        ("holdfast holdfast=no", "holdfast=no"),
        ("don't use holdfast", "don't use holdfast"),
        ("holdfast opt-out", "holdfast opt-out"),
        ("ignore holdfast", "ignore holdfast"),
        ("please opt out of holdfast", "out of holdfast"),
        ("don't restart me with holdfast", "restart me with holdfast"),
        ("please do not requeue holdfast", "requeue holdfast"),
        ("holdfast should not touch this", "holdfast should not touch"),
        ("holdfast no-restart", "holdfast no-restart"),
        ("stop holdfast", "stop holdfast"),
        ("hands off holdfast", "off holdfast"),
    ],
)
def test_a_refusal_is_no_consent_and_is_named(comment: str, words: str) -> None:
    found = read_comment(comment)
    assert (found.said, found.words) == (OptInMeaning.REFUSAL, words)
    assert f'its comment says "{words}"' in why_not(comment)


@pytest.mark.parametrize(
    ("comment", "words"),
    [
        ("Holdfast", "Holdfast"),
        ("x HOLDFAST", "HOLDFAST"),
        ("holdfast=yes", "holdfast=yes"),
        ("holdfast:on", "holdfast:on"),
        ("--holdfast", "--holdfast"),
        ("hold-fast", "hold-fast"),
        ("hold fast", "hold fast"),
        ("holdfast;", "holdfast"),
        ("'holdfast'", "'holdfast'"),
    ],
)
def test_a_near_miss_is_no_consent_and_is_named(comment: str, words: str) -> None:
    found = read_comment(comment)
    assert (found.said, found.words) == (OptInMeaning.NEAR_MISS, words)
    assert f'"{words}", which is not the word' in why_not(comment)


@pytest.mark.parametrize("comment", ["", "no", "baseline", "/opt/holdfast/run", "stronghold faster", "elastic=2:4"])
def test_nothing(comment: str) -> None:
    assert read_comment(comment).said is OptInMeaning.NOTHING
    assert why_not(comment) == ""
