"""``holdfast-checks run`` with a site's file, a deadline and samples: what counts, what does not yet, and what no longer does."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from holdfast.config.agent import example
from holdfast.practice.cluster.host import PracticeHost
from holdfast.practice.hardware import host, network
from holdfast.practice.nvml import state
from holdfast.practice.nvml.build import environment
from holdfast_checks.cli import choice, config, keep, main
from holdfast_checks.cli.weighing import Scales, weigh
from holdfast_checks.gpu_ref import GpuRef
from holdfast_checks.known import all_checks
from holdfast_checks.registry import Check, Context, Cost, Need, Sample
from holdfast_checks.result import Remedy, Result, Severity
from holdfast_checks.settings import CheckSettings
from support.emulated_nvml import library

pytestmark = pytest.mark.slow

BOOT = "boot-1"


def bad(check: str = "host.x", severity: Severity = Severity.FATAL, **more: Any) -> Result:
    return Result.finding(check, severity, Remedy.REBOOT, failed=True, code="c", summary="s", **more)


def a_check(**changed: Any) -> Check:
    usual = replace(all_checks()["host.disk"], id="host.x", observe=False, hysteresis=(1, 1))
    return replace(usual, **changed)


def test_the_agents_own_example_is_read(tmp_path: Path) -> None:
    path = tmp_path / "agent.toml"
    path.write_text(example())
    site = config.read(path)
    assert replace(site.settings, expected_gpus=None) == replace(
        CheckSettings(), state_dir=Path("/var/lib/holdfast"), slurmd_pid_file=Path("/run/slurmd.pid"),
        disk_paths=site.settings.disk_paths,
    )  # fmt: skip
    assert (site.nvml_deadline_s, site.act_on) == (20.0, None)


def test_a_site_is_read(tmp_path: Path) -> None:
    path = tmp_path / "agent.toml"
    path.write_text(
        'node = "n7"\ngpu_count = 8\ninstance_type = "p5.48xlarge"\nsysfs_path = "sys"\nact_on = ["*"]\nunknown = 1\n'
        'proc = 5\nexpected_gpus = "x"\n'
        '[gpu]\nmig_mode = true\n[network]\nexpected_efa = 32\n[custom.own]\ncommand = ["/bin/true"]\n'
    )
    site = config.read(path)
    assert (site.settings.slurmd_node, site.settings.expected_gpus, site.settings.instance_type) == (
        "n7",
        8,
        "p5.48xlarge",
    )
    assert (site.settings.sysfs, site.settings.gpu.mig_mode, site.settings.network.expected_efa) == (
        tmp_path / "sys",
        True,
        32,
    )
    assert site.settings.custom["own"].command == ("/bin/true",)
    assert site.act_on == ("*",)
    assert "custom.own" in choice.known(site.settings)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("gpu_count = ", "not TOML"),
        ('gpu_count = "8"', "expected_gpus: expected a whole number"),
        ("[gpu]\nmig_mode = 1", "gpu: mig_mode: expected true or false, found 1"),
        ("[network]\nexpected_efa = 65", "expected_efa: 65 is not between 0 and 64"),
        ("[host]\nservices = [1]", "services[0]: expected a string"),
        ("host = 3", "host: expected a table"),
        ("[gpu]\nmig_mod = true", "gpu: unknown key 'mig_mod'; did you mean 'mig_mode'?"),
        ("[custom.own]\ncommand = ['/bin/true']\nevery = 5", "custom.own: unknown key 'every'"),
        ("[host]\ntime_offset_s = nan", "time_offset_s: nan is not"),
    ],
)
def test_a_wrong_value_is_one_clear_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, words: str
) -> None:
    path = tmp_path / "agent.toml"
    path.write_text(text)
    assert main(["run", "host.disk", "--config", str(path)]) == 3
    said = capsys.readouterr().err
    assert words in said
    assert str(path) in said
    assert said.count("\n") == 1


def test_an_observing_check_warns_until_the_site_trusts_it() -> None:
    new, proven = a_check(observe=True), a_check()
    results = [bad()]
    assert [(w.code, w.note) for w in weigh(new, results, Scales(), keep.KeptRuns())] == [(1, "observes")]
    for scales in (Scales(["*"]), Scales(["host.x"])):
        (acting,) = weigh(new, results, scales, keep.KeptRuns())
        assert (acting.code, acting.calls_for_service) == (2, True)
    (kept_back,) = weigh(proven, results, Scales(["*"], ["host.x"]), keep.KeptRuns())
    assert (kept_back.code, kept_back.calls_for_service) == (1, False)


def test_only_findings_of_some_weight_call_for_service() -> None:
    kept = keep.KeptRuns()
    for result, calls in (
        (bad(), True),
        (bad(severity=Severity.DEGRADED), True),
        (bad(severity=Severity.WARNING), False),
        (Result.unknown("host.x"), False),
        (Result.ok("host.x"), False),
    ):
        (weighed,) = weigh(a_check(), [result], Scales(), kept)
        assert weighed.calls_for_service is calls


def test_a_finding_that_wants_several_looks_counts_when_it_had_them(tmp_path: Path) -> None:
    check, kept, path = a_check(hysteresis=(2, 3)), keep.KeptRuns(), tmp_path / "samples"
    codes = []
    for result in (bad(), Result.ok("host.x"), bad(), bad(), Result.ok("host.x")):
        (weighed,) = weigh(check, [result], Scales(), kept)
        codes.append(weighed.code)
        keep.save(path, BOOT, kept, [])
        kept = keep.load(path, BOOT)
    assert codes == [1, 0, 2, 2, 0]
    for _ in range(3):
        weigh(check, [Result.ok("host.x")], Scales(), kept)
    assert kept.looks == {}


def test_a_kernel_line_is_told_once_and_a_new_one_again() -> None:
    check, kept = a_check(needs=frozenset({Need.KMSG})), keep.KeptRuns()

    def look(*times_s: float, unknown: bool = False) -> list[int]:
        results = [bad(fault_monotonic_s=at_s) for at_s in times_s]
        results += [Result.unknown("host.x")] if unknown else []
        return [weighed.code for weighed in weigh(check, results, Scales(), kept)]

    assert look(1.0) == [2]
    assert look(1.0) == [0]
    assert look(unknown=True) == [3]
    assert look(1.0, 2.0) == [0, 2]
    assert look() == []
    assert kept.told == set()


@dataclass(frozen=True)
class _Foreign:
    value: int = 1


def test_samples_of_every_check_that_compares_are_kept(tmp_path: Path) -> None:
    """Facts of real checks on a tree with devices go to the file and come back equal."""
    network.install(tmp_path)
    settings = replace(CheckSettings(), sysfs=tmp_path / "sys")
    kept = keep.KeptRuns()
    facts = {
        name: check.gather(Context(settings))
        for name, check in all_checks().items()
        if check.compares and name in ("efa.counters", "efa.admin", "efa.silence")
    }
    for name, each in facts.items():
        kept.samples.change(name, Sample(each, 7.0))
    path = tmp_path / "samples"
    keep.save(path, BOOT, kept, facts)
    again = keep.load(path, BOOT)
    for name, each in facts.items():
        sample = again.samples.before(name)
        assert sample is not None
        assert (sample.facts, sample.monotonic_s) == (each, 7.0)
    assert path.stat().st_mode & 0o777 == 0o600
    assert keep.load(path, "boot-2").samples.before("efa.counters") is None


def test_what_cannot_be_kept_is_a_first_look(tmp_path: Path) -> None:
    path, kept = tmp_path / "samples", keep.KeptRuns()
    kept.samples.change("a", Sample(_Foreign(), 1.0))
    kept.samples.change("b", Sample((GpuRef("GPU-1", 0), {"x": frozenset({1})}, Severity.FATAL, Path("/x"), [1]), 2.0))
    keep.save(path, BOOT, kept, ["a", "b", "c"])
    again = keep.load(path, BOOT)
    assert again.samples.before("a") is None
    sample = again.samples.before("b")
    assert sample is not None
    assert sample.facts == (GpuRef("GPU-1", 0), {"x": frozenset({1})}, Severity.FATAL, Path("/x"), [1])
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "facts",
    [
        {"!": "os:system", "v": {"command": "true"}},
        {"!": "holdfast_checks.cli:main", "v": {}},
        {"!": "holdfast_checks.inventory:GpuRef", "v": {"nope": 1}},
        {"!": "holdfast_checks.cli.keep:json", "v": {}},
        {"!": "holdfast_checks.runner:Samples", "v": {}},
        {"!": "holdfast_checks.nope:X", "v": {}},
        {"v": 1},
        {"!": "set", "v": 1},
    ],
)
def test_a_file_builds_nouns_of_this_package_and_nothing_else(tmp_path: Path, facts: object) -> None:
    path = tmp_path / "samples"
    samples = {"a": {"facts": facts, "monotonic_s": 1}, "b": {"facts": 5, "monotonic_s": 1}}
    path.write_text(json.dumps({"version": 1, "boot_id": BOOT, "samples": samples, "looks": {}, "told": []}))
    kept = keep.load(path, BOOT)
    assert kept.samples.before("a") is None
    assert kept.samples.before("b") == Sample(5, 1.0)


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"version": 2}', "[" * 100_000, '{"version": 1, "boot_id": "boot-1"}', "\x00"]
)
def test_a_file_that_is_none_is_a_first_run(tmp_path: Path, text: str) -> None:
    path = tmp_path / "samples"
    path.write_text(text)
    kept = keep.load(path, BOOT)
    assert (kept.looks, kept.told, kept.samples.before("a")) == ({}, set(), None)


def test_counters_work_from_run_to_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    network.install(tmp_path)
    (tmp_path / "agent.toml").write_text('sysfs_path = "sys"\nact_on = ["*"]\n')
    arguments = ["run", "efa.admin", "--config", str(tmp_path / "agent.toml"), "--samples", str(tmp_path / "samples")]
    assert main(arguments) == 0
    counter = next((tmp_path / "sys/class/infiniband").glob("*/hw_counters/no_completion_cmds"))
    counter.write_text("3\n")
    capsys.readouterr()
    assert main([*arguments, "--reason"]) == 2
    assert capsys.readouterr().out.startswith("efa.admin no_completion_cmds")


def _slow(_context: Context) -> int:
    time.sleep(0.3)
    return 0


def test_what_does_not_fit_into_the_run_is_unknown_and_drains_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    slow = a_check(gather=_slow, judge=lambda _facts: (bad(),), needs=frozenset(), cost=Cost.PASSIVE)
    checks = {name: replace(slow, id=name) for name in ("host.x", "host.y")}
    monkeypatch.setattr("holdfast_checks.cli.choice.known", lambda _settings: checks)
    assert main(["run", "--deadline", "0.1", "--json"]) == 3
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["verdict"] for each in told] == ["unknown", "unknown"]
    assert sorted(each["summary"] for each in told) in (
        ["no answer within 0.1 s", "the time for this run was over"],
        ["no answer within 0.1 s", "no answer within 0.1 s"],
    )
    assert main(["run", "--deadline", "0.1", "--reason"]) == 3
    assert capsys.readouterr().out == ""


def test_learn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    host.install(tmp_path)
    table = {"state_dir": "state", "sysfs_path": "sys", "host": {"proc": str(tmp_path / "host" / "proc")}}
    (tmp_path / "agent.toml").write_text(tomli_w.dumps(table))
    arguments = ["learn", "--config", str(tmp_path / "agent.toml")]
    assert main(arguments) == 0
    said = capsys.readouterr().out
    for words in ("CPUs      192", "version   module nvidia 580.95.05", "mount     /fsx (lustre)"):
        assert words in said
    manifest = tmp_path / "state" / "manifest.json"
    assert str(manifest) in said
    before = manifest.read_text()
    manifest.write_text("{}")
    assert main(arguments) == 3
    assert "--force replaces it" in capsys.readouterr().err
    assert manifest.read_text() == "{}"
    assert main([*arguments, "--force"]) == 0
    assert manifest.read_text() == before
    assert main(["learn", "--config", str(tmp_path / "agent.toml"), "--state-dir", str(tmp_path / "other")]) == 0
    assert (tmp_path / "other" / "manifest.json").read_text() == before


@pytest.fixture
def whole(tmp_path: Path) -> PracticeHost:
    """An emulated node with GPUs, EFA, services and DCGM, and the agent's file for it."""
    node = PracticeHost(tmp_path / "node", "n1", 4)
    node.create()
    table = {
        "node": "n1",
        "state_dir": "agent",
        "act_on": ["*"],
        "gpu_count": 4,
        "disabled_checks": ["host.slurmd", "net.memlock"],
        "kmsg_path": str(node.kmsg),
        "sysfs_path": str(node.sysfs),
        "pstore_path": "pstore",
        "disk_paths": ["."],
        "nvml_library": str(library()),
        "nvml_env": environment(library(), node.nvml_state),
        "dcgm": {"dcgmi": str(node.folder / "dcgmi")},
        "host": host.agent_settings(node.folder),
        "network": {"fi_info": str(node.folder / "fi_info"), "default_route_device": network.DEFAULT_ROUTE},
        "kernel": {"pstore_archive": str(node.folder / "pstore-archive")},
    }
    (node.folder / "agent.toml").write_text(tomli_w.dumps(table))
    return node


def test_a_whole_node_from_run_to_run(whole: PracticeHost, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["run", "--config", str(whole.folder / "agent.toml"), "--samples", str(whole.folder / "samples")]

    def reason() -> tuple[int, str]:
        code = main([*arguments, "--reason"])
        return code, capsys.readouterr().out

    assert main([*arguments, "--json"]) == 0
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {each["check"] for each in told} == {
        check.id for check in all_checks().values() if check.cost is not Cost.ACTIVE
    } - {"host.slurmd", "net.memlock"}
    assert [each for each in told if each["verdict"] not in ("ok", "skipped")] == []
    assert reason() == (0, "")

    whole.log_kernel(4, f"NVRM: Xid (PCI:{state.read(whole.nvml_state).gpus[1].pci[:-2]}): 48, pid=1, name=a, DBE")
    code, said = reason()
    assert (code, said.split()[:2]) == (2, ["gpu.xid", "48"])
    assert said.count("\n") == 1
    assert reason() == (0, "")  # a line is reported once
    state.set_remap(whole.nvml_state, 2, failed=True)
    for _ in range(2):  # a state as long as it lasts
        assert reason()[1].startswith("gpu.row_remap failed")
    whole.log_kernel(4, f"NVRM: Xid (PCI:{state.read(whole.nvml_state).gpus[1].pci[:-2]}): 79, pid=1, name=a, off")
    code, said = reason()
    assert code == 2
    assert said.endswith("(and 1 more)\n")


@pytest.mark.slow
def test_learn_adds_a_run_to_the_baseline(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    host.install(tmp_path)
    table = {
        "state_dir": "state",
        "sysfs_path": "sys",
        "instance_type": "p5.48xlarge",
        "host": {"proc": str(tmp_path / "host" / "proc")},
        "active": {"device": "plain", "seconds": 0.1},
    }
    (tmp_path / "agent.toml").write_text(tomli_w.dumps(table))
    for runs in (1, 2):
        assert main(["learn", "--active", "--config", str(tmp_path / "agent.toml")]) == 0
        said = capsys.readouterr().out
        assert f"({runs} runs; 3 are needed)" in said
        assert "stays as it is" in said or runs == 1
    figures = json.loads((tmp_path / "state" / "baseline.json").read_text())["types"]["p5.48xlarge"]
    assert {len(row["values"]) for row in figures.values()} == {2}
