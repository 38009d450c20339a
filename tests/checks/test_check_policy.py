"""Which thresholds a controller may set, how they are read, and that of several words on a node's checks the most cautious counts."""

from __future__ import annotations

import dataclasses
import typing
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast_checks.acting import THRESHOLDS, CheckPolicy, Lists, mildest
from holdfast_checks.acting_file import FILE, GivenPolicy, given_policy, keep, kept
from holdfast_checks.cli import config
from holdfast_checks.settings import CheckSettings, CheckTables
from holdfast_checks.settings.gpu import GpuSettings
from holdfast_checks.settings.option import declaration_of, default_of
from holdfast_checks.settings.schema import WrongSetting
from holdfast_checks.settings.thresholds import read, with_thresholds

MARGIN, LOAD = "gpu.temperature_margin_c", "host.load_per_cpu"


def declared(name: str) -> tuple[Any, dataclasses.Field[Any]]:
    """The type of the option, and its field."""
    table, _, key = name.partition(".")
    (outer,) = (field for field in dataclasses.fields(CheckTables) if field.name == table)
    kind = type(default_of(outer))
    (inner,) = (field for field in dataclasses.fields(kind) if field.name == key)
    return typing.get_type_hints(kind)[key], inner


@pytest.mark.parametrize("name", THRESHOLDS)
def test_a_controller_sets_numbers_with_a_range_alone(name: str) -> None:
    kind, field = declared(name)
    assert kind in (int, float), "never a command, a path, a user or a switch"
    assert declaration_of(field).low is not None


def test_the_page_lists_what_the_head_can_set() -> None:
    page = (Path(__file__).parents[2] / "docs/how-to-check-policy.md").read_text()
    listed = page.partition("| threshold | less active |")[2].partition("\n\n")[0]
    rows = [line.split("|")[1:3] for line in listed.splitlines() if line.startswith("| `")]
    said = {name.strip(" `"): word.strip() for names, word in rows for name in names.split(",")}
    assert said == {name: "higher" if milder is max else "lower" for name, milder in THRESHOLDS.items()}


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (
            {"gpu.temperature_margin": 3},
            "'gpu.temperature_margin' cannot be set here; did you mean 'gpu.temperature_margin_c'?",
        ),
        ({"gpu.reset_command": ["rm"]}, "'gpu.reset_command' cannot be set here; a controller may set gpu."),
        ({"custom.x.command": ["rm"]}, "'custom.x.command' cannot be set here"),
        ({MARGIN: 51}, "gpu: temperature_margin_c: 51 is not between 0 and 50"),
        ({MARGIN: 2.5}, "temperature_margin_c: expected a whole number, found 2.5"),
        ({MARGIN: True}, "temperature_margin_c: expected a whole number, found True"),
        ({LOAD: "4"}, "load_per_cpu: expected a number, found '4'"),
        ({LOAD: float("nan")}, "load_per_cpu: nan is not"),
    ],
)
def test_what_is_wrong_is_one_line_that_names_the_key(given: dict[str, Any], why: str) -> None:
    with pytest.raises(WrongSetting) as caught:
        read(given, "here")
    assert str(caught.value).startswith("here: ")
    assert why in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("own", "given", "counts"),
    [
        ({}, {}, 3),
        ({}, {MARGIN: 5}, 5),
        ({}, {MARGIN: 1}, 1),
        ({"temperature_margin_c": 3}, {MARGIN: 5}, 5),
        ({"temperature_margin_c": 2}, {MARGIN: 5}, 2),
        ({"temperature_margin_c": 9}, {MARGIN: 5}, 5),
        ({"temperature_margin_c": 9}, {}, 9),
    ],
    ids=["none", "head", "head, milder", "file as the default", "file milder", "head milder", "file alone"],
)
def test_a_nodes_file_can_only_make_a_check_less_active(
    own: dict[str, Any], given: dict[str, float], counts: int
) -> None:
    found = with_thresholds(CheckSettings(gpu=GpuSettings(**own)), given)
    assert found.gpu.temperature_margin_c == counts
    assert dataclasses.replace(found, gpu=GpuSettings()) == CheckSettings()


IDS = st.lists(st.sampled_from(["gpu.ecc", "gpu.xid", "host.disk"]), max_size=3)
NUMBERS = st.dictionaries(st.sampled_from(sorted(THRESHOLDS)), st.integers(1, 50), max_size=4)
SAID = st.tuples(IDS, NUMBERS)


@given(SAID, st.lists(SAID, max_size=3))
def test_the_most_cautious_word_counts_in_any_order(site: Any, others: list[Any]) -> None:
    start = CheckPolicy(Lists(("gpu.nvlink",), tuple(site[0])), site[1])
    results = []
    for order in permutations(others):
        found = start
        for observing, numbers in order:
            found = found.restricted(observing, numbers)
        results.append(found)
    assert len({each.version for each in results}) == 1
    total = results[0]
    assert set(total.lists.observe_only) == {check for observing, _ in (site, *others) for check in observing}
    assert total.lists.act_on == ("gpu.nvlink",), "no table lets another check act"
    for name, value in total.thresholds.items():
        said = [numbers[name] for _, numbers in (site, *others) if name in numbers]
        assert value == mildest(name, said)
        assert all(THRESHOLDS[name](value, each) == value for each in said)


def test_a_version_is_of_the_content() -> None:
    one = CheckPolicy(Lists(("a", "b"), ("c",)), {MARGIN: 5, LOAD: 4})
    same = CheckPolicy(Lists(("b", "a", "a"), ("c",)), {LOAD: 4.0, MARGIN: 5.0})
    assert one.version == same.version == one.document()["version"]
    others = [
        dataclasses.replace(one, lists=Lists(("a",), ("c",))),
        dataclasses.replace(one, lists=Lists(("a", "b", "c"))),
        dataclasses.replace(one, thresholds={MARGIN: 5}),
        dataclasses.replace(one, thresholds={MARGIN: 4, LOAD: 4}),
    ]
    assert len({each.version for each in (one, *others)}) == 5


def test_what_an_agent_is_given_is_read_as_it_was_sent(tmp_path: Path) -> None:
    policy = CheckPolicy(Lists(("*",), ("gpu.ecc",)), {MARGIN: 5, LOAD: 8.0})
    found = given_policy(policy.document())
    assert found == GivenPolicy(policy, policy.version)
    keep(tmp_path, found)
    assert kept(tmp_path) == found


def test_a_threshold_of_a_newer_release_is_passed_over() -> None:
    given = {**CheckPolicy().document(), "thresholds": {"gpu.newer_limit": 3, MARGIN: 4}, "severities": {"x": "fatal"}}
    assert given_policy(given).policy.thresholds == {MARGIN: 4}


def test_a_run_by_hand_judges_by_the_sites_thresholds(tmp_path: Path) -> None:
    keep(tmp_path, GivenPolicy(CheckPolicy(Lists(), {MARGIN: 1, LOAD: 8.0})))
    agent = tmp_path / "agent.toml"
    agent.write_text('state_dir = "."\n[host]\nload_per_cpu = 16.0\n')
    settings = config.read(agent).settings
    assert (settings.gpu.temperature_margin_c, settings.host.load_per_cpu) == (1, 16.0)


def test_a_kept_threshold_that_this_release_refuses_costs_no_list(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(
        '{"act_on": [], "observe_only": ["gpu.ecc"], "thresholds": {"gpu.temperature_margin_c": 99}}'
    )
    assert kept(tmp_path) == GivenPolicy(CheckPolicy(Lists(observe_only=("gpu.ecc",))))
