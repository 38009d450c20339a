"""What a job's comment declares about its sizes."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.elastic_jobs.elastic import ElasticSpec, member, parse_comment, start_name
from holdfast.model.elastic_jobs.sizes import BadSizes, Sizes, parse_sizes


@pytest.mark.parametrize(
    ("comment", "legal", "spares", "of"),
    [
        ("holdfast elastic=2:4", (2, 3, 4), 0, None),
        ("elastic=2:8:2", (2, 4, 6, 8), 0, None),
        ("mine,holdfast,elastic=2:8:4+8,spares=1", (2, 4, 8), 1, None),
        ("of=71 elastic=1:2 holdfast", (1, 2), 0, 71),
    ],
)
def test_a_declaration(comment: str, legal: tuple[int, ...], spares: int, of: int | None) -> None:
    assert parse_comment(comment) == ElasticSpec(Sizes(legal), spares, of)


@pytest.mark.parametrize("comment", ["", "holdfast", "of=3 spares=1", "inelastic=2:4", "an elastic band"])
def test_no_declaration(comment: str) -> None:
    assert parse_comment(comment) is None


@pytest.mark.parametrize(
    ("comment", "why"),
    [
        ("elastic=4:2", "ascend"),
        ("elastic=", "no range of sizes"),
        ("elastic=2:4 elastic=2:8", "several sizes"),
        ("elastic=2:4 of=x", "of=x"),
        ("elastic=2:4 of=1 of=2", "given twice"),
        ("elastic=2:4 spares=-1", "spares=-1"),
        ("elastic=2:4 spares=99999", "spares=99999"),
    ],
)
def test_a_declaration_that_makes_no_sense_is_one_line(comment: str, why: str) -> None:
    with pytest.raises(BadSizes, match=why) as caught:
        parse_comment(comment)
    assert "\n" not in str(caught.value)


@given(
    legal=st.sets(st.integers(1, 500), min_size=1, max_size=6),
    spares=st.integers(0, 9),
    of=st.none() | st.integers(1, 2**31),
)
def test_a_comment_reads_as_it_was_written(legal: set[int], spares: int, of: int | None) -> None:
    spec = ElasticSpec(Sizes(tuple(sorted(legal))), spares, of)
    assert parse_comment(spec.comment) == spec
    assert parse_sizes(spec.sizes.text) == spec.sizes


@pytest.mark.parametrize("declared", ["1:100000", "1:99999:2", "3:100000"])
def test_a_declaration_takes_no_more_room_for_more_sizes(declared: str) -> None:
    tracemalloc.start()
    sizes = parse_sizes(declared)
    taken = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (taken < 20_000, len(sizes.text) < 30, parse_sizes(sizes.text) == sizes) == (True, True, True)
    assert sizes.usable(50_000) in (50_000, 49_999)


def test_sizes_are_the_same_however_they_are_written() -> None:
    assert len({parse_sizes(text) for text in ("2:8:2", "2:8:2,4,6,8", "2:8:4+6")} | {Sizes((2, 4, 6, 8))}) == 1
    assert (Sizes((2, 4, 8)).up_to(5), parse_sizes("2:100000").up_to(4)) == ([2, 4], [2, 3, 4])


def test_names() -> None:
    spec = ElasticSpec(Sizes((2, 3, 4)), spares=1)
    assert (*spec.base_indices, *spec.flexible_indices) == (0, 1, 2, 3, 4)
    assert start_name(123, 0) == "123.0"
    assert member(2, start_name(123, 1, 2)) == "2~123.1.2"
