"""``holdfast plan``: what it prints, what it refuses, and the controller's record as its input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from holdfast.cli.offline.schema import schema_of

TRACE = "node,start,end,cause\na,1,2,GPU\nb,1,3,fan\na,9,10,GPU\n"


def _written(folder: Path, text: str = TRACE) -> str:
    path = folder / "trace.csv"
    path.write_text(text)
    return str(path)


@pytest.mark.slow
def test_the_tables_of_the_post(holdfast: Any, tmp_path: Path) -> None:
    drawn = tmp_path / "post.svg"
    got = holdfast("plan", "--as", "hyperpod-post", "--svg", str(drawn))
    assert got.status == 0, got.err
    for words in ("OPT-175B", "325.0", "220.8", "104.2", "25.60", "32.05"):
        assert words in got.out
    assert drawn.read_text().startswith("<svg ")


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ((), ["Training time and money", "Best time between two checkpoints", "MTBF H"]),
        (("--nodes", "64,128", "--rate", "0.02,0.05"), ["0.02 %/h", "0.05 %/h", "128"]),
        (("--failures", "4", "--node-days", "522.5"), ["0.03190", "0.008691", "Garwood"]),
        (("--nodes", "288", "--block", "18"), ["Spares by block", "blocks of 18 nodes"]),
        (("--dispersion", "3"), ["negative binomial: variance 3 times the mean"]),
        (("--save-seconds", "50,70", "--every", "30"), ["60 s (mean of 2 saves)", "each 30 min"]),
    ],
)
def test_a_sites_own_plan(holdfast: Any, argv: tuple[str, ...], words: list[str]) -> None:
    got = holdfast("plan", *argv)
    assert got.status == 0, got.err
    assert [w for w in words if w not in got.out] == []


@pytest.mark.slow
def test_a_trace_replayed_and_as_input(holdfast: Any, tmp_path: Path) -> None:
    path = _written(tmp_path)
    replayed = holdfast("plan", "--replay", path, "--nodes", "10", "--spares", "0,2")
    assert replayed.status == 0, replayed.err
    for words in ("What would have happened", "Brakes (2 spares): none", "Repeat offenders"):
        assert words in replayed.out
    assert "EMPIRICAL" in holdfast("plan", "--trace", path, "--nodes", "10").out


@pytest.mark.slow
@pytest.mark.parametrize(
    "argv",
    [("--as", "hyperpod-post"), ("--rate", "100", "--repair-hours", "0.1", "--nodes", "2000")],
    ids=["post", "never completed"],
)
def test_json_conforms_to_its_schema(holdfast: Any, argv: tuple[str, ...]) -> None:
    sent = json.loads(holdfast("plan", *argv, "--json").out, parse_constant=pytest.fail)
    assert [str(e) for e in jsonschema_rs.Draft202012Validator(schema_of("plan")).iter_errors(sent)] == []
    assert sent["tables"][0]["rows"]


@pytest.mark.slow
def test_from_the_controllers_record(holdfast: Any, site: dict[str, str]) -> None:
    got = holdfast("plan", "--from-history", **site)
    assert got.status == 0, got.err
    assert "Times measured on this cluster" in got.out
    assert "Failure rate, estimated" in got.out


@pytest.mark.parametrize(
    ("argv", "word"),
    [
        (("--as", "x"), "known is hyperpod-post"),
        (("--as", "hyperpod-post", "--replay", "TRACE"), "ask one"),
        (("--nodes", "x"), "--nodes 'x'"),
        (("--rate", "0"), "--rate '0'"),
        (("--rate", "nan"), "--rate 'nan'"),
        (("--rate", "5"), "more than half of the nodes would be out"),
        (("--with", "1,2"), "three numbers of minutes"),
        (("--failures", "3"), "belong together"),
        (("--failures", "3", "--node-days", "9", "--trace", "TRACE"), "give one"),
        (("--replay", "/nonexistent/x"), "there is no file /nonexistent/x"),
        (("--replay", "/dev/zero"), "/dev/zero is no file that can be read"),
        (("--replay", "TRACE", "--nodes", "1"), "names 2 nodes"),
        (("--replay", "TRACE", "--nodes", "2,3"), "only one number"),
        (("--replay", "TRACE", "--nodes", "4", "--spares", "4"), "leave none to the job"),
        (("--spares", "1,2"), "only one number"),
        (("--svg", "/nonexistent/x.svg"), "cannot be written"),
    ],
)
def test_what_is_refused(holdfast: Any, tmp_path: Path, argv: tuple[str, ...], word: str) -> None:
    path = _written(tmp_path)
    got = holdfast("plan", *(path if each == "TRACE" else each for each in argv))
    assert (got.status, got.out, got.err.count("\n")) == (2, "", 1)
    assert word in got.err
