"""Of a product of parameters ./dev test runs cases with every value; the others are the soak's."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from support import marks, sampling

pytest_plugins = ["pytester"]

THREE = {"-".join(ids): ids for ids in product("abcd", "klm", "yz")}


def test_each_value_is_in_the_sample() -> None:
    cases = {name: sampling.values(ids) for name, ids in THREE.items()}
    sample = sampling.sample_of(cases)
    assert [{THREE[name][n] for name in sample} for n in range(3)] == [set("abcd"), set("klm"), set("yz")]
    assert len(sample) == 4
    assert sampling.sample_of(dict(reversed(cases.items()))) == sample


def test_each_pair_of_values_is() -> None:
    sample = sampling.sample_of({name: sampling.values(ids, pairs=True) for name, ids in THREE.items()})
    for one, other in ((0, 1), (0, 2), (1, 2)):
        pairs = {(ids[one], ids[other]) for ids in THREE.values()}
        assert {(THREE[name][one], THREE[name][other]) for name in sample} == pairs
    assert 12 <= len(sample) < 20


def test_of_one_parameter_every_value_is() -> None:
    cases = {name: sampling.values([name], pairs=True) for name in "abcde"}
    assert sampling.sample_of(cases) == set(cases)


SUITE = """
import pytest

@pytest.mark.sampled
@pytest.mark.parametrize("x", range(3))
@pytest.mark.parametrize("y", range(3))
def test_values(x, y): ...

@pytest.mark.sampled(of=lambda x, y: [x + y > 3])
@pytest.mark.parametrize("x", range(3))
@pytest.mark.parametrize("y", range(3))
def test_what_it_names(x, y): ...

@pytest.mark.parametrize("x", range(3))
def test_other(x): ...
"""
CONFTEST = """
from support import sampling

def pytest_collection_modifyitems(items):
    sampling.leave_to_the_soak(items, soaks={soaks})
"""


@pytest.mark.parametrize(("soaks", "usual", "soaked"), [(False, 3 + 2 + 3, 6 + 7), (True, 3, 9 + 9)])
def test_what_is_not_in_the_sample_is_for_the_soak(
    pytester: pytest.Pytester, soaks: bool, usual: int, soaked: int
) -> None:
    pytester.makepyfile(SUITE)
    pytester.makeconftest(CONFTEST.format(soaks=soaks))
    pytester.makeini("[pytest]\nmarkers =\n sampled\n soak\n")
    for expression, count in (("not soak", usual), ("soak", soaked)):
        pytester.inline_run("-m", expression, "-p", "no:cacheprovider").assertoutcome(passed=count)


def test_a_sampled_file_may_have_tests_for_both(tmp_path: Path) -> None:
    file = tmp_path / "test_x.py"
    file.write_text("@pytest.mark.sampled\ndef test_one() -> None: ...\n", encoding="utf-8")
    assert "soak" not in marks.of_file(file)


def test_a_mark_without_parameters_is_a_mistake(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("import pytest\n\n@pytest.mark.sampled\ndef test_one(): ...\n")
    pytester.makeconftest(CONFTEST.format(soaks=False))
    pytester.makeini("[pytest]\nmarkers =\n sampled\n soak\n")
    pytester.runpytest_inprocess().stderr.fnmatch_lines(["*marked sampled, and has no parameters*"])
