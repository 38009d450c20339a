"""An operator's own checks: the contract, and everything that breaks it."""

from __future__ import annotations

import json
import os
import re
import threading
import time
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from holdfast_checks import custom
from holdfast_checks.custom_answer import CustomCheckLimits, Misbehaved, results
from holdfast_checks.gpu_ref import GpuRef
from holdfast_checks.inventory import GpuInventory
from holdfast_checks.probes.child import Finished, Hung
from holdfast_checks.registry import Check, Context, Cost, NotApplicable
from holdfast_checks.result import Remedy, Result, Severity, Verdict
from holdfast_checks.runner import Samples, run
from holdfast_checks.settings import CheckSettings, CustomSettings

FULL = CustomCheckLimits("custom.x", Severity.FATAL, Remedy.REPLACE)
WARNS = CustomCheckLimits("custom.x", Severity.WARNING, Remedy.NONE)
GPUS = {"GPU-1": GpuRef(uuid="GPU-1", minor=3, pci="0000:3b:00.0")}


def said(
    out: str | bytes | dict[str, Any] = "", status: int = 0, err: str = "", *, truncated: bool = False
) -> Finished:
    if isinstance(out, dict):
        out = json.dumps(out)
    return Finished(status, out if isinstance(out, bytes) else out.encode(), err.encode(), truncated)


@pytest.mark.parametrize(
    ("answer", "limits", "wanted"),
    [
        (said("all good\nmore"), FULL, ("ok", "", None, "none", "all good")),
        (said(""), FULL, ("ok", "", None, "none", "")),
        (said("hm", 1), FULL, ("degraded", "degraded", "warning", "none", "hm")),
        (said("broken", 2), FULL, ("failed", "failed", "fatal", "replace", "broken")),
        (said("broken", 2), WARNS, ("failed", "failed", "warning", "none", "broken")),
        (said("", 2, "on stderr"), FULL, ("failed", "failed", "fatal", "replace", "on stderr (exit status 2)")),
        (said("who knows", 3), FULL, ("unknown", "", None, "none", "who knows")),
        (said({"verdict": "ok"}, 2), FULL, ("ok", "", None, "none", "")),
        (said({"verdict": "SKIPPED", "summary": "no disk"}), FULL, ("skipped", "", None, "none", "no disk")),
        (said({"verdict": "failed", "code": "E7"}), FULL, ("failed", "E7", "fatal", "replace", "")),
        (said({"verdict": "critical"}), FULL, ("failed", "failed", "fatal", "replace", "")),
        (said({"verdict": "warning"}), FULL, ("degraded", "degraded", "warning", "none", "")),
        (
            said({"verdict": "failed", "severity": "degraded", "remedy": "reboot"}),
            FULL,
            ("failed", "failed", "degraded", "reboot", ""),
        ),
        (
            said({"verdict": "failed", "severity": "fatal", "remedy": "replace"}),
            WARNS,
            ("failed", "failed", "warning", "none", ""),
        ),
        (
            said({"results": [{"verdict": "degraded", "severity": "fatal"}]}),
            FULL,
            ("degraded", "degraded", "fatal", "none", ""),
        ),
    ],
)
def test_the_contract(
    answer: Finished, limits: CustomCheckLimits, wanted: tuple[str, str, str | None, str, str]
) -> None:
    (result,) = results(answer, limits, GPUS)
    assert (result.verdict, result.code, result.severity, result.remedy, result.summary) == wanted
    assert (result.check, result.component) == ("custom.x", "node")


def test_the_site_may_want_a_person_and_no_script_overrules_it() -> None:
    person = CustomCheckLimits("custom.x", Severity.DEGRADED, Remedy.HUMAN)
    (result,) = results(said({"verdict": "failed", "severity": "fatal", "remedy": "replace"}), person, {})
    assert (result.severity, result.remedy) == (Severity.DEGRADED, Remedy.HUMAN)
    (result,) = results(said({"verdict": "failed", "remedy": "none"}), person, {})
    assert result.remedy is Remedy.NONE


def test_several_results_name_their_components_a_gpu_is_recognised_and_the_node_is_ok() -> None:
    answer = said(
        {"results": [{"verdict": "failed", "component": "GPU-1"}, {"verdict": "ok", "component": "/scratch"}]}
    )
    gpu, disk, node = results(answer, FULL, GPUS)
    assert (gpu.gpu_uuid, gpu.gpu_minor, gpu.pci) == ("GPU-1", 3, "0000:3b:00.0")
    assert (disk.component, disk.verdict, disk.gpu_uuid) == ("/scratch", Verdict.OK, None)
    assert (node.component, node.verdict) == ("node", Verdict.OK)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Hung(5.0, left_behind=False, pid=1), "no answer within 5 s"),
        (said("x", -11), "signal 11"),
        (said("x", 127), "exit status 127"),
        (said("x", truncated=True), "more than 64 KiB"),
        (said(b"\xff\xfe\x00"), "not text in UTF-8"),
        (said("bell \a"), "control characters"),
        (said('{"verdict": "ok"'), "cannot be read"),
        (said('{"verdict": "ok"} trailing'), "cannot be read"),
        (said('{"a":' * 5000), "cannot be read"),
        (said('[{"verdict": "failed", "summary": "disk gone"}]'), "is no object"),
        (said('DeprecationWarning: x\n{"verdict": "failed"}'), "not all that it printed"),
        (said('{"verdict": "failed", "verdict": "ok"}'), "says a key twice"),
        (said('{"verdict": "ok", "evidence": {"a": 1, "a": 2}}'), "says a key twice"),
        (said({}), "verdict None"),
        (said({"verdict": "fine"}), "verdict 'fine'"),
        (said({"verdict": ["ok"]}), "verdict"),
        (said({"verdict": "failed", "severity": "bad"}), "severity 'bad'"),
        (said({"verdict": "failed", "severity": {}}), "severity"),
        (said({"verdict": "failed", "remedy": "explode"}), "remedy 'explode'"),
        (said({"verdict": "ok", "componant": "x"}), "unknown key 'componant'"),
        (said({"verdict": "ok", "component": 3}), "component is not text"),
        (said({"verdict": "ok", "component": "\ud800"}), "control characters"),
        (said({"verdict": "ok", "summary": "a\u0000b"}), "control characters"),
        (said({"verdict": "ok", "evidence": {"a": [1]}}), "evidence 'a'"),
        (said({"verdict": "ok", "evidence": {"a": None}}), "evidence 'a'"),
        (said('{"verdict": "ok", "evidence": {"a": NaN}}'), "no finite number"),
        (said({"verdict": "ok", "evidence": {"a": 10**30}}), "no finite number"),
        (said({"verdict": "ok", "evidence": {str(n): n for n in range(33)}}), "at most 32"),
        (said({"verdict": "ok", "evidence": 3}), "evidence"),
        (said({"results": []}), "list of 1 to 256"),
        (said({"results": [{"verdict": "ok"}] * 2}), "same component"),
        (said({"results": [{"verdict": "ok"}] * 257}), "list of 1 to 256"),
        (said({"results": [3]}), "no object"),
        (said({"results": [], "verdict": "ok"}), "unknown key 'results'"),
    ],
)
def test_whatever_breaks_the_contract_is_a_misbehaviour_with_a_clear_line(answer: Finished | Hung, words: str) -> None:
    with pytest.raises(Misbehaved) as told:
        results(answer, FULL, {})
    assert words in str(told.value)
    assert len(str(told.value)) <= 240


@pytest.mark.parametrize(
    ("name", "table", "key"),
    [
        ("Bad Name", {}, "custom.Bad Name"),
        ("x", {"command": ()}, "custom.x.command"),
        ("x", {"command": ("relative",)}, "custom.x.command"),
        ("x", {"severity": "awful"}, "custom.x.severity"),
        ("x", {"remedy": "pray"}, "custom.x.remedy"),
        ("x", {"cost": "cheap"}, "custom.x.cost"),
        ("x", {"user": "nobody-of-that-name"}, "custom.x.user"),
    ],
)
def test_a_table_that_makes_no_sense_is_refused_by_its_key(name: str, table: dict[str, Any], key: str) -> None:
    settings = CustomSettings(**{"command": ("/bin/true",), **table})
    assert [place for place, _problem in custom.problems({name: settings})] == [key]
    with pytest.raises(ValueError, match="custom"):
        custom.custom_checks(CheckSettings(custom={name: settings}))


def script(folder: Path, text: str, name: str = "check") -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def check_of(path: Path, **table: Any) -> Check:
    settings = CustomSettings(command=(str(path),), **{"deadline_s": 1.0, "give_up_after": 2, **table})
    return custom.custom_checks(CheckSettings(custom={"x": settings}))["custom.x"]


def once(check: Check, context: Context | None = None) -> Result:
    return run(check, context or Context())[0]


@pytest.mark.slow
def test_a_check_runs_with_its_environment_and_what_it_names_of_this_node(tmp_path: Path) -> None:
    check = check_of(
        script(
            tmp_path,
            'echo "{\\"verdict\\": \\"failed\\", \\"component\\": \\"$GPU\\", \\"summary\\": \\"$HOLDFAST_CHECK $#\\"}"',
        ),
        severity="degraded",
        remedy="reset_gpu",
        env={"GPU": "GPU-1"},
    )
    result = once(check, Context(inventory=GpuInventory(tuple(GPUS.values()))))
    assert (result.component, result.gpu_minor, result.summary) == ("GPU-1", 3, "custom.x 0")
    assert (result.severity, result.remedy) == (Severity.DEGRADED, Remedy.RESET_GPU)
    assert not check.observe
    assert check_of(tmp_path / "check").observe


@pytest.mark.slow
def test_after_some_misbehaviours_in_a_row_it_is_disabled_until_its_file_changes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = script(tmp_path, f"echo run >>{tmp_path}/runs; exit 42")
    check = check_of(path)
    assert once(check).verdict is Verdict.UNKNOWN
    for _ in range(3):
        result = once(check)
        assert (result.verdict, result.code, result.severity, result.remedy) == (
            Verdict.DEGRADED,
            "disabled",
            Severity.WARNING,
            Remedy.NONE,
        )
        assert "exit status 42" in result.summary
    assert (tmp_path / "runs").read_text() == "run\n" * 2
    assert [record.message for record in caplog.records if "custom_check_disabled" in record.message]
    script(tmp_path, "echo repaired")
    assert once(check).verdict is Verdict.OK


@pytest.mark.slow
def test_a_good_answer_in_between_starts_the_count_anew(tmp_path: Path) -> None:
    check = check_of(script(tmp_path, f"[ -e {tmp_path}/good ] || exit 42; echo fine"))
    for _ in range(3):
        (tmp_path / "good").unlink(missing_ok=True)
        assert once(check).verdict is Verdict.UNKNOWN
        (tmp_path / "good").touch()
        assert once(check).verdict is Verdict.OK


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("sleep 60", "no answer within"),
        ("trap '' TERM INT HUP; while :; do sleep 1; done", "no answer within"),
        ("exec head -c 100000000 /dev/zero", "more than 64 KiB"),
        ("kill -SEGV $$", "signal 11"),
        (r"printf '\377\376\200 not text'", "UTF-8"),
        (r"printf '{\377\376\200}'", "UTF-8"),
        (r"printf 'first\n[{\377\376\200}]'", "UTF-8"),
        ("f() { [ $1 -gt 4 ] && exec sleep 30; f $(($1+1)) & f $(($1+1)) & wait; }; f 0", "no answer within"),
    ],
)
def test_a_hang_a_flood_a_crash_and_a_tree_of_processes_are_unknown_and_leave_nothing_behind(
    tmp_path: Path, text: str, words: str
) -> None:
    marker = f"holdfast-test-{os.getpid()}-{time.monotonic_ns()}"
    began_s = time.monotonic()
    result = once(check_of(script(tmp_path, text), env={"MARKER": marker}))
    assert result.verdict is Verdict.UNKNOWN
    assert words in result.summary
    assert time.monotonic() - began_s < 5
    until_s = time.monotonic() + 2  # the killed ones take a moment to be gone
    while list(with_marker(marker)) and time.monotonic() < until_s:
        time.sleep(0.01)
    assert list(with_marker(marker)) == []


def with_marker(marker: str) -> Iterator[str]:
    for environ in Path("/proc").glob("[0-9]*/environ"):
        try:
            if marker.encode() in environ.read_bytes():
                yield environ.parent.name
        except OSError:
            continue


@pytest.mark.slow
def test_what_cannot_or_must_not_be_started_is_unknown(tmp_path: Path) -> None:
    assert "cannot be started" in once(check_of(tmp_path / "nothing")).summary
    plain = tmp_path / "plain"
    plain.write_text("echo hello")
    assert "cannot be started" in once(check_of(plain)).summary
    path = script(tmp_path, "echo hello")
    path.chmod(0o777)
    assert "may be written by everybody" in once(check_of(path)).summary


@pytest.mark.slow
def test_a_folder_in_which_anybody_could_put_another_program(tmp_path: Path) -> None:
    folder = tmp_path / "checks"
    folder.mkdir()
    path = script(folder, "echo '{}'")
    path.chmod(0o755)
    folder.chmod(0o777)
    assert f"{folder} may be written by everybody" in once(check_of(path)).summary


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_program_that_is_anothers_is_not_run(tmp_path: Path, what: str) -> None:
    folder = tmp_path / "checks"
    folder.mkdir()
    path = script(folder, "echo '{}'")
    path.chmod(0o755)
    os.chown(path if what == "file" else folder, 65534, 65534)
    assert "belongs to uid 65534, who could change it" in once(check_of(path)).summary


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
def test_it_runs_as_the_user_of_choice(tmp_path: Path) -> None:
    for folder in (tmp_path, *tmp_path.parents):
        if not folder.stat().st_mode & 0o001:
            folder.chmod(folder.stat().st_mode | 0o011)
    check = check_of(script(tmp_path, "echo $(id -un) $(id -G)"), user="nobody")
    assert once(check).summary.split()[0] == "nobody"


@pytest.mark.slow
def test_more_runs_than_it_may_have_get_the_last_answer(tmp_path: Path) -> None:
    check = check_of(script(tmp_path, f"echo run >>{tmp_path}/runs; wc -l <{tmp_path}/runs"), max_per_hour=2)
    assert [once(check).summary for _ in range(4)] == ["1", "2", "2", "2"]


DOCS = Path(__file__).parents[2] / "docs" / "custom-checks.md"


def example(language: str, number: int = 0) -> str:
    return str(re.findall(rf"```{language}\n(.*?)```", DOCS.read_text(), re.DOTALL)[number])


@pytest.mark.slow
def test_the_example_of_the_docs_does_what_they_say(tmp_path: Path) -> None:
    table = tomllib.loads(example("toml"))["custom"]["scratch"]
    path = tmp_path / "scratch"
    path.write_text(example("sh"))
    path.chmod(0o755)
    settings = CustomSettings(**{**table, "command": (str(path), str(tmp_path / "there")), "user": ""})
    check = custom.custom_checks(CheckSettings(custom={"scratch": settings}))["custom.scratch"]
    result = once(check)
    assert (result.verdict, result.severity, result.remedy) == (Verdict.FAILED, Severity.DEGRADED, Remedy.REBOOT)
    assert result.summary.endswith("takes no writes")
    (tmp_path / "there").mkdir()
    assert once(check).verdict is Verdict.OK
    broken, home, node = results(said(example("json")), FULL, {})
    assert (broken.component, broken.code, broken.evidence) == ("/scratch", "read_only", {"errno": 30})
    assert (home.verdict, node.verdict) == (Verdict.OK, Verdict.OK)


GOOD = Check(
    id="custom.pack",
    title="From a package",
    needs=frozenset(),
    interval_s=60,
    cost=Cost.PASSIVE,
    severity=Severity.WARNING,
    remedy=Remedy.NONE,
    gather=lambda _context: 41,
    judge=lambda facts: (Result.ok("custom.pack", summary=str(facts)),),
)


def bug(_facts: Any) -> Any:
    raise KeyError("a bug")


def nonsense(_facts: Any) -> Any:
    return [3]


def skips(_context: Context) -> Any:
    raise NotApplicable("no such disk")


class _Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even its text can be had")


def raises(fault: BaseException) -> Callable[[Any], Any]:
    def work(_facts: Any) -> Any:
        raise fault

    return work


def says(*args: Any, **about: Any) -> Callable[[Any], Any]:
    return lambda _facts: (Result.finding("custom.pack", *args, **about),)


BAD_WORDS: dict[str, Callable[[Any], Any]] = {
    "unknown severity": says("catastrophic"),
    "a severity as plain text": says("fatal"),
    "no severity": says(None),
    "unknown remedy": says(Severity.FATAL, "explode"),
    "no remedy": says(Severity.FATAL, None),
    "no evidence": says(Severity.FATAL, evidence=None),
    "a list for evidence": says(Severity.FATAL, evidence=[1]),
    "nested evidence": says(Severity.FATAL, evidence={"a": {}}),
    "evidence without end": says(Severity.FATAL, evidence={"a": float("inf")}),
    "a number for a component": says(Severity.FATAL, component=5),
    "no component": says(Severity.FATAL, component=None),
    "no summary": says(Severity.FATAL, summary=None),
    "half a surrogate pair": says(Severity.FATAL, summary="\ud800"),
    "a text for a minor": says(Severity.FATAL, gpu_minor="3"),
    "no number for its time": says(Severity.FATAL, fault_monotonic_s=float("nan")),
    "an exit": raises(SystemExit(3)),
    "an interrupt": raises(KeyboardInterrupt()),
    "an end of a generator": raises(GeneratorExit()),
    "a fault without words": raises(_Unspeakable()),
}

PACKAGES: dict[str, Any] = {
    **{name: replace(GOOD, judge=judge) for name, judge in BAD_WORDS.items()},
    "exits while it gathers": replace(GOOD, gather=raises(SystemExit(3))),
    "many lines": replace(GOOD, judge=says(Severity.FATAL, summary="one\ntwo", component="x" * 500)),
    "good": GOOD,
    "gathers-badly": replace(GOOD, gather=bug),
    "judges-badly": replace(GOOD, judge=bug),
    "says-nonsense": replace(GOOD, judge=nonsense),
    "of-another": replace(GOOD, judge=lambda _facts: (Result.finding("gpu.xid", Severity.FATAL),)),
    "skips": replace(GOOD, gather=skips),
    "wrong-name": replace(GOOD, id="gpu.mine"),
    "no-check": 3,
}


@pytest.fixture
def package(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> dict[str, Check]:
    monkeypatch.setattr(EntryPoint, "load", lambda self: PACKAGES[self.name])
    monkeypatch.setattr(custom, "entry_points", lambda group: [EntryPoint(request.param, "pack:CHECK", group)])
    return custom.custom_checks(CheckSettings())


@pytest.mark.parametrize("package", ["good"], indirect=True)
def test_a_check_from_a_package(package: dict[str, Check]) -> None:
    assert once(package["custom.pack"]).summary == "41"


@pytest.mark.parametrize("package", ["skips"], indirect=True)
def test_a_check_from_a_package_that_does_not_apply(package: dict[str, Check]) -> None:
    for _ in range(5):
        assert once(package["custom.pack"]).verdict is Verdict.SKIPPED


@pytest.mark.parametrize("package", ["gathers-badly", "judges-badly", "says-nonsense", "of-another"], indirect=True)
@pytest.mark.parametrize("compares", [False, True])
def test_a_package_with_a_bug_is_disabled_and_hurts_nobody(package: dict[str, Check], compares: bool) -> None:
    check = replace(package["custom.pack"], compares=compares)
    samples = Samples()
    found = [run(check, Context(), samples)[0] for _ in range(4)]
    assert [result.verdict for result in found[:2]] == [Verdict.UNKNOWN] * 2
    assert [result.code for result in found[2:]] == ["disabled"] * 2
    assert {result.check for result in found} == {"custom.pack"}


@pytest.mark.parametrize("package", [*BAD_WORDS, "exits while it gathers"], indirect=True)
def test_whatever_a_package_returns_or_raises_hurts_itself_only(package: dict[str, Check]) -> None:
    """In a thread, as the agent runs it: a package ended the agent by sys.exit, by a wrong value and by a wrong type."""
    found: list[Result] = []
    context = Context()

    def agents_thread() -> None:
        for _ in range(3):
            found.extend(run(package["custom.pack"], context))

    thread = threading.Thread(target=agents_thread)
    thread.start()
    thread.join(10)
    assert [result.verdict for result in found] == [Verdict.UNKNOWN, Verdict.UNKNOWN, Verdict.DEGRADED]
    assert found[-1].code == "disabled"
    json.dumps([result.plain() for result in found], allow_nan=False).encode()


@pytest.mark.parametrize("package", ["many lines"], indirect=True)
def test_what_a_package_says_is_one_line_of_bounded_length(package: dict[str, Check]) -> None:
    said = once(package["custom.pack"])
    assert (said.summary, len(said.component), said.severity) == ("one two", 128, Severity.FATAL)


def test_a_check_of_ours_that_exits_is_unknown() -> None:
    assert once(replace(GOOD, gather=raises(SystemExit(1)))).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize("package", ["wrong-name", "no-check", "missing"], indirect=True)
def test_a_package_that_cannot_be_loaded_is_a_check_that_says_so(package: dict[str, Check]) -> None:
    ((name, check),) = package.items()
    assert name.startswith("custom.")
    result = once(check)
    assert (result.code, result.severity) == ("disabled", Severity.WARNING)
    assert "cannot be loaded" in result.summary


@pytest.mark.parametrize("package", ["good"], indirect=True)
def test_a_package_does_not_take_the_name_of_a_table(package: dict[str, Check]) -> None:
    both = custom.custom_checks(CheckSettings(custom={"pack": CustomSettings(command=("/bin/true",), title="mine")}))
    assert both["custom.pack"].title == "mine"
    assert package.keys() == both.keys()
