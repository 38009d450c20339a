"""``[[drain_rules]]``: read, refused in one line, and nothing by default."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from holdfast.config.controller import load
from holdfast.config.drain_rules import EXAMPLE
from holdfast.config.example import example
from holdfast.model.errors import ConfigError
from holdfast.model.policies.drain_rules import MOST_CHARS, DrainRule, may_hang


def _load(folder: Path, text: str) -> tuple[DrainRule, ...]:
    path = folder / "controller.toml"
    path.write_text(text, encoding="utf-8")
    return load(path).policy.history.drain_rules


def test_nothing_is_set_by_default(tmp_path: Path) -> None:
    assert _load(tmp_path, "") == ()
    assert _load(tmp_path, example()) == ()


def test_the_examples_of_the_file_are_rules(tmp_path: Path) -> None:
    text = "\n".join(line.removeprefix("# ") for line in EXAMPLE.splitlines() if "[[" in line or " = " in line)
    rules = _load(tmp_path, text)
    assert [r.category for r in rules] == ["node health check", "tasks did not end", "health check"]
    assert [r.score for r in rules] == [True, False, False]
    for rule, reason in zip(rules, ("NHC: bad", "Kill task failed (JobId=7)", "x [HC] y"), strict=True):
        assert rule.matches(reason, "root")
    assert tomllib.loads(example())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("drain_rules = 7", "drain_rules: expected tables"),
        ("drain_rules = [7]", "drain_rules[0]: expected a table"),
        ("[[drain_rules]]\npattern = 'x'", "drain_rules[0]: missing key 'category'"),
        ("[[drain_rules]]\npattern = 'x'\ncategory = 'c'\nremedy = 'reboot'", "unknown key 'remedy'"),
        ("[[drain_rules]]\npattern = '('\ncategory = 'c'", "pattern: '(' is no regular expression"),
        ("[[drain_rules]]\npattern = '(a+)+b'\ncategory = 'c'", "could hold up all for hours"),
        ("[[drain_rules]]\npattern = ''\ncategory = 'c'", "neither pattern nor category may be empty"),
        ("[[drain_rules]]\npattern = 'x'\ncategory = ' '", "neither pattern nor category may be empty"),
        ("[[drain_rules]]\npattern = 'x'\ncategory = 'c'\nscore = 1", "score: expected"),
        ("[[drain_rules]]\npattern = 'x'\ncategory = 'c'\n" * 101, "101 rules; 100 at most"),
    ],
)
def test_bad_rules_get_one_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        _load(tmp_path, text)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "pattern",
    [
        r"^NHC: (\w+\s?)+ failed$",
        r"(a*)*b",
        r"(a|aa)+$",
        r"((ab?)x)*y",
        r"(?:\d+,?){2,}x",
        r"(?P<word>\w+ ?)*!",
        r"(\)+)+x",
        r".*.*.*.*x",
        r"(a+){30}b",
    ],
)
def test_a_pattern_that_a_users_text_could_hang_is_refused(pattern: str) -> None:
    """A reason of the site's own health check holds the name of a user's process."""
    assert may_hang(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        "^NHC:",
        r"\[HC\]",
        r"^NHC: .* failed( again)?$",
        r"(xid|ecc) \d+",
        r"[(+*|]+",
        r"[]+)]+(x)",
        r"\(a+\)+",
        r"(?:abc)+",
        r"(ab){3}",
        r"(?i)nhc.*",
        r"(?=.*x)y",
    ],
)
def test_usual_patterns_are_taken(pattern: str) -> None:
    assert not may_hang(pattern)


def test_of_a_reason_a_rule_sees_so_much() -> None:
    rule = DrainRule("end$", "c")
    assert rule.matches("x" * (MOST_CHARS - 3) + "end", "root")
    assert not rule.matches("x" * MOST_CHARS + "end", "root")
