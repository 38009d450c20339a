"""``controller.toml``: what is read, and one bad file per rule, each answered by one line that says what to do."""

from __future__ import annotations

import dataclasses
import importlib
from pathlib import Path
from typing import Any

import pytest

from holdfast.config.controller import SECTIONS, ControllerSettings, load
from holdfast.config.example import example, rows
from holdfast.config.profiles import PROFILES
from holdfast.decisions.common.check_policy import checks_for
from holdfast.model.errors import ConfigError
from holdfast.model.policies.policy import Mode, Policy
from holdfast.providers import KINDS, PROVIDERS, CommandSettings, Ec2Settings, HyperpodSettings
from holdfast_checks.acting import CheckPolicy, Lists
from holdfast_checks.settings.option import Required, declaration_of, is_declared

EC2 = '[cluster]\nname = "c"\n[provider]\nkind = "ec2"\nregion = "us-west-2"\nlaunch_template = "gpu"\n'
HYPERPOD = '[provider]\nkind = "hyperpod"\ncluster = "pod"\nregion = "us-west-2"\n'
COMMAND = '[provider]\nkind = "command"\ncommand = ["/opt/site/machines", "--site", "a"]\n'


def write(folder: Path, text: str) -> Path:
    path = folder / "controller.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_an_empty_file_is_the_shipped_policy_in_observe_mode(tmp_path: Path) -> None:
    settings = load(write(tmp_path, ""))
    assert settings.policy == Policy()
    assert settings.policy.mode is Mode.OBSERVE
    assert (settings.provider, settings.provider_settings, settings.profile) == ("none", None, None)


def test_the_example_loads_and_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    read, plain = load(write(tmp_path, example())), load(write(tmp_path / "empty", ""))
    assert dataclasses.replace(read, path=plain.path) == plain


def test_every_key_of_the_policy_can_be_set_and_is_explained() -> None:
    """All but what the program sets: the kind of provider is a key of another table, rules are tables themselves."""
    keys = {(row.section, row.key) for row in rows()}
    by_hand = {
        (table.fills.__name__, field.name)
        for table in SECTIONS.values()
        for field in dataclasses.fields(table.fills)
        if table.fills is not ControllerSettings and not is_declared(field)
    }
    assert by_hand == {
        ("RepairPolicy", "provider"),
        ("Policy", "nodes"),
        ("Policy", "checks"),
        ("HistoryPolicy", "drain_rules"),
    }
    assert {(name, key) for name, table in SECTIONS.items() for key in table.keys} <= keys
    assert [row for row in rows() if len(row.doc) < 10] == []


def test_what_is_called_a_share_is_declared_as_one() -> None:
    """A percentage would pass otherwise."""
    limits = {
        (name, key): declaration_of(field).high
        for name, table in SECTIONS.items()
        for key, field in table.keys.items()
        if key.endswith("_share")
    }
    assert len(limits) > 10
    assert set(limits.values()) == {1}


@pytest.mark.slow
def test_every_number_of_the_policy_arrives(tmp_path: Path) -> None:
    """Each key set to another value than its default shows up in exactly one place of the settings."""
    base = dataclasses.asdict(load(write(tmp_path, "")))
    for row in rows():
        if row.section in ("", "provider", "store") or isinstance(row.default, Required):
            continue
        if isinstance(row.default, bool) or not isinstance(row.default, int | float):
            continue
        text = (
            f"[{row.section}]\n{row.key} = {row.default / 2 if isinstance(row.default, float) else row.default + 1}\n"
        )
        changed = dataclasses.asdict(load(write(tmp_path, text)))
        assert len(_differences(base, changed)) == 1, text


def _differences(one: Any, other: Any, where: str = "") -> list[str]:
    if isinstance(one, dict) and isinstance(other, dict):
        return [d for key in one for d in _differences(one[key], other[key], f"{where}.{key}")]
    return [] if one == other else [where]


def test_sections_reach_their_places(tmp_path: Path) -> None:
    text = """
[server]
host = "0.0.0.0"
tls_cert = "cert.pem"
tls_key = "/etc/key.pem"
[mode]
mode = "act"
[jobs]
consent_partitions = ["gpu", "train"]
[spares]
reservation = "warm"
"""
    (tmp_path / "cert.pem").touch()
    (tmp_path / "key.pem").touch()
    settings = load(write(tmp_path, text.replace("/etc/", f"{tmp_path}/")))
    assert settings.server.tls_cert == tmp_path / "cert.pem"
    assert settings.policy.mode is Mode.ACT
    assert settings.policy.job.consent_partitions == {"gpu", "train"}
    assert settings.policy.spare_reservation == "warm"


def test_ec2(tmp_path: Path) -> None:
    text = (
        EC2
        + 'endpoint_url = "http://127.0.0.1:1"\n[[provider.offers]]\ninstance_type = "p5.48xlarge"\nmarket = "spot"\n'
    )
    settings = load(write(tmp_path, text))
    ec2 = settings.provider_settings
    assert isinstance(ec2, Ec2Settings)
    assert (ec2.cluster, ec2.region, ec2.offers[0].market) == ("c", "us-west-2", "spot")
    assert settings.policy.repair.provider == "ec2"


def test_command(tmp_path: Path) -> None:
    settings = load(write(tmp_path, COMMAND + "deadline_s = 90\n[cluster]\nname = 'c'\n"))
    assert settings.provider_settings == CommandSettings("c", ("/opt/site/machines", "--site", "a"), 90.0)
    assert settings.policy.repair.provider == "command"


def test_hyperpod_has_a_cluster_name_of_its_own(tmp_path: Path) -> None:
    settings = load(write(tmp_path, "[cluster]\nname = 'slurm'\n" + HYPERPOD + "mode = 'lead'\n"))
    assert settings.cluster.name == "slurm"
    assert settings.provider_settings == HyperpodSettings("pod", "us-west-2", mode="lead")
    assert settings.policy.repair.provider == "hyperpod"


@pytest.mark.parametrize("kind", PROVIDERS)
def test_every_kind_can_be_configured_and_opened(kind: str) -> None:
    """The table's class is there, and its settings are a dataclass with the cluster first where it has one."""
    module, _, name = KINDS[kind].at.partition(":")
    assert callable(getattr(importlib.import_module(module), name))
    settings = KINDS[kind].settings
    if settings is not None:
        assert "cluster" in {f.name for f in dataclasses.fields(settings)}
        assert ("cluster" in KINDS[kind].options) is KINDS[kind].own_cluster


class TestProfile:
    def test_changes_only_what_it_names_and_says_so(self, tmp_path: Path) -> None:
        settings = load(write(tmp_path, 'profile = "practice"\n'))
        named = {
            f"{section}.{key}": value for section, keys in PROFILES["practice"].items() for key, value in keys.items()
        }
        assert settings.profile_changes == named
        assert settings.policy.repair.quiet_s == PROFILES["practice"]["repair"]["quiet_s"]
        assert settings.policy.death == Policy().death
        assert settings.policy.job == Policy().job

    def test_the_file_goes_before_it(self, tmp_path: Path) -> None:
        settings = load(write(tmp_path, 'profile = "practice"\n[repair]\nquiet_s = 7\n'))
        assert settings.policy.repair.quiet_s == 7.0
        assert "repair.quiet_s" not in settings.profile_changes


BAD: list[tuple[str, str, str]] = [
    ("a kind of step", "[propose]\nsteps = ['rebot']\n", "propose.steps: 'rebot' is none of drain, set_down"),
    ("no time to answer", "[propose]\nexpires_s = 5\n", "propose.expires_s: 5 is less than 60: no one could answer"),
    ("a set that is no list", "[nodes]\nname = 'a'\n", "nodes: expected tables [[nodes]], found"),
    ("a set without a name", "[[nodes]]\nnodes = 'n1'\n", "nodes[1].name: give the set a name"),
    (
        "a set of no nodes",
        "[[nodes]]\nname = 'a'\n",
        "nodes[1]: it selects no nodes: give it partitions, features or nodes",
    ),
    ("two sets of a name", "[[nodes]]\nname = 'a'\nnodes = 'n1'\n" * 2, "nodes: two tables have the name 'a'"),
    ("a host list", "[[nodes]]\nname = 'a'\nnodes = 'n[1'\n", "nodes[1].nodes: not a host list"),
    (
        "a set's mode",
        "[[nodes]]\nname = 'a'\nnodes = 'n1'\nmode = 'ask'\n",
        "nodes[1].mode: 'ask' is none of , observe, propose, act",
    ),
    (
        "a set's rung",
        "[[nodes]]\nname = 'a'\nnodes = 'n1'\nrungs = ['rebot']\n",
        "nodes[1].rungs: 'rebot' is none of reset_gpu, reboot",
    ),
    (
        "steps where nothing is asked",
        "[[nodes]]\nname = 'a'\nnodes = 'n1'\nmode = 'act'\nsteps = ['drain']\n",
        "nodes[1].steps: steps wait for an accept only with mode",
    ),
    ("a set's key", "[[nodes]]\nname = 'a'\nnode = 'n1'\n", "nodes[1]: unknown key 'node'; did you mean 'nodes'?"),
    ("not TOML", "a = ", "not TOML"),
    ("unknown section", "[repairs]\nquiet_s = 1\n", "unknown key 'repairs'; did you mean 'repair'?"),
    ("unknown key", "[repair]\nquite_s = 1\n", "repair: unknown key 'quite_s'; did you mean 'quiet_s'?"),
    ("unknown key with nothing near", "[mode]\nzzz = 1\n", "mode: unknown key 'zzz'; valid keys: mode"),
    ("set elsewhere", "[repair]\nprovider = 'ec2'\n", "repair: unknown key 'provider'"),
    ("section is no table", "repair = 1\n", "repair: expected a table [repair], found 1"),
    ("wrong type", "[repair]\nquiet_s = 'long'\n", "repair: quiet_s: expected a number, found 'long'"),
    ("true is no number", "[repair]\nattempts = true\n", "repair: attempts: expected a whole number, found True"),
    ("below zero", "[repair]\nquiet_s = -1\n", "repair.quiet_s: -1 is not between 0 and"),
    ("not finite", "[repair]\nquiet_s = inf\n", "repair: quiet_s: inf is not a finite number"),
    ("share in percent", "[brakes]\ndrains_10min_share = 5\n", "brakes.drains_10min_share: 5 is not between 0 and 1"),
    (
        "rung",
        "[repair]\nrungs = ['rebooot']\n",
        "repair.rungs: 'rebooot' is none of reset_gpu, reboot, stop_start, replace; did you mean 'reboot'?",
    ),
    (
        "mode",
        "[mode]\nmode = 'obsreve'\n",
        "mode.mode: 'obsreve' is none of observe, propose, act; did you mean 'observe'?",
    ),
    ("mode in capitals is no mode", "[mode]\nmode = 'ACT'\n", "mode.mode: 'ACT' is none of observe, propose, act"),
    (
        "check",
        "[checks]\nact_on = ['gpu.nvlnk']\n",
        "checks.act_on: no check is called 'gpu.nvlnk'; did you mean 'gpu.nvlink'?",
    ),
    (
        "all checks",
        "[checks]\nobserve_only = ['*']\n",
        "checks.observe_only: no check is called '*'; `holdfast checks` lists them",
    ),
    (
        "a threshold out of its range",
        "[checks.thresholds]\ngpu.temperature_margin_c = 500\n",
        "checks.thresholds: gpu: temperature_margin_c: 500 is not between 0 and 50",
    ),
    (
        "no command from the head",
        "[checks.thresholds]\ngpu.reset_deadline = 5\n",
        "checks.thresholds: 'gpu.reset_deadline' cannot be set here; a controller may set gpu.",
    ),
    ("no text as a threshold", "[checks.thresholds]\nhost.munge = 'x'\n", "thresholds.host.munge: expected a number"),
    (
        "no threshold without a table",
        "[checks]\nthresholds = { load = 1 }\n",
        "checks: thresholds.load: expected a table",
    ),
    (
        "a check of a set",
        "[[nodes]]\nname = 'a'\nnodes = 'n1'\nobserve_only = ['gpu.xd']\n",
        "nodes[1].observe_only: no check is called 'gpu.xd'; did you mean 'gpu.xid'?",
    ),
    (
        "a threshold of a set",
        "[[nodes]]\nname = 'a'\nnodes = 'n1'\nthresholds = { host = { load_per_cpu = 0 } }\n",
        "nodes[1].thresholds: host: load_per_cpu: 0.0 is not at least 0.1",
    ),
    (
        "a check that is off",
        "[checks]\nchecks_off = ['host.dsk']\n",
        "no check is called 'host.dsk'; did you mean 'host.disk'?",
    ),
    (
        "a check that is off in a set",
        "[[nodes]]\nname = 'a'\nnodes = 'n1'\nchecks_off = ['gpu.xd']\n",
        "nodes[1].checks_off: no check is called 'gpu.xd'; did you mean 'gpu.xid'?",
    ),
    (
        "a set that adds a check",
        "[checks]\nact_on = ['efa.count']\n[[nodes]]\nname = 'a'\nnodes = 'n1'\nact_on = ['gpu.nvlink']\n",
        "nodes[1].act_on: 'gpu.nvlink' is not in [checks] act_on: a set only takes checks away",
    ),
    (
        "a brake of a set",
        "[[nodes]]\nname = 'a'\nnodes = 'n1'\nbrakes = { drains_60mn = 1 }\n",
        "nodes[1].brakes: unknown key 'drains_60mn'; did you mean 'drains_60min'?",
    ),
    (
        "a brake below zero",
        "[[nodes]]\nname = 'a'\nnodes = 'n1'\nbrakes.drains_60min = -1\n",
        "nodes[1].brakes.drains_60min: -1 is not between 0 and 999999",
    ),
    (
        "a budget of a set",
        "[[nodes]]\nname = 'a'\nnodes = 'n1'\nbudgets = { launches_per_day = '3' }\n",
        "nodes[1]: budgets.launches_per_day: expected a whole number",
    ),
    (
        "a name that no brake can have",
        "[[nodes]]\nname = 'a b'\nnodes = 'n1'\nbrakes.drains_60min = 1\n",
        "nodes[1].name: 'a b' cannot name a brake (drains@NAME)",
    ),
    ("profile", "profile = 'practise'\n", "profile: 'practise' is none of practice; did you mean 'practice'?"),
    ("client", "[cluster]\nslurm_client = 'rest'\n", "cluster.slurm_client: 'rest' is none of auto, commands, pyslurm"),
    ("port", "[server]\nport = 70000\n", "server: port: 70000 is not between 0 and 65535"),
    ("open to the network in the clear", "[server]\nhost = '0.0.0.0'\n", "is not loopback and TLS is not set"),
    ("a name may be anywhere", "[server]\nhost = 'head.example.org'\n", "is not loopback and TLS is not set"),
    (
        "proxy by name",
        "[server]\nproxies = ['lb.example.org']\n",
        "server.proxies: 'lb.example.org' does not appear to be",
    ),
    ("proxy with host bits", "[server]\nproxies = ['10.0.0.1/8']\n", "server.proxies: 10.0.0.1/8 has host bits set"),
    ("no room for an agent", "[server]\nmax_connections_per_address = 1\n", "1 is not at least 2"),
    ("half of TLS", "[server]\ntls_cert = 'a.pem'\n", "tls_cert and tls_key belong together"),
    ("TLS without files", "[server]\ntls_cert = 'a.pem'\ntls_key = 'b.pem'\n", "server.tls_cert: there is no file"),
    (
        "provider",
        "[provider]\nkind = 'ecs'\n",
        "provider.kind: 'ecs' is none of none, ec2, ",
    ),
    ("settings of no provider", "[provider]\nregion = 'x'\n", "provider.region has no meaning with kind = 'none'"),
    (
        "settings of another provider",
        EC2 + "deadline_s = 5\n",
        "has no meaning with kind = 'ec2'; it needs kind = 'command'",
    ),
    (
        "no such key of any provider",
        "[provider]\nregoin = 'x'\n",
        "provider: unknown key 'regoin'; did you mean 'region'?",
    ),
    ("a cluster of another kind", EC2 + "cluster = 'x'\n", "with kind = 'ec2'; it needs kind = 'hyperpod'"),
    ("a key of two kinds", COMMAND + "region = 'x'\n", "with kind = 'command'; it needs kind = 'ec2' or "),
    ("hyperpod without a cluster", HYPERPOD.replace('cluster = "pod"', ""), "provider: missing key 'cluster'"),
    ("hyperpod mode", HYPERPOD + "mode = 'led'\n", "provider hyperpod: mode 'led' is none of: observe, lead"),
    ("no command", "[provider]\nkind = 'command'\n", "provider: missing key 'command'"),
    ("empty command", "[provider]\nkind = 'command'\ncommand = []\n", "provider command: command is empty"),
    ("a command by name", "[provider]\nkind = 'command'\ncommand = ['site.sh']\n", "'site.sh' is not an absolute path"),
    (
        "command is no list",
        "[provider]\nkind = 'command'\ncommand = '/x'\n",
        "provider: command: expected a list, found '/x'",
    ),
    ("patience without end", COMMAND + "deadline_s = 3600\n", "deadline_s is 3600, not between 1 and 600"),
    ("command key", COMMAND + "deadlin_s = 3\n", "provider: unknown key 'deadlin_s'; did you mean 'deadline_s'?"),
    ("ec2 without a cluster", EC2.replace('name = "c"', ""), "provider ec2 needs cluster.name"),
    ("ec2 without a template", EC2.replace('launch_template = "gpu"', ""), "provider: missing key 'launch_template'"),
    ("ec2 key", EC2 + "regoin = 'x'\n", "provider: unknown key 'regoin'; did you mean 'region'?"),
    ("offer key", EC2 + "[[provider.offers]]\nsubnet = 'x'\n", "unknown key 'subnet'; did you mean 'subnet_id'?"),
    ("offer market", EC2 + "[[provider.offers]]\nmarket = 'free'\n", "market 'free' of an offer is invalid"),
    ("spares", "[spares]\nreservation = ''\n", "spares.reservation is empty"),
    ("refill", "[spares]\nrefill = 'Idle'\n", "spares.refill: 'Idle' is none of returned, idle; did you mean 'idle'?"),
    ("hangs", "[hangs]\nact = 'stop'\n", "hangs.act: 'stop' is none of "),
    ("no prefix", "[death]\ndomain_prefix = 33\n", "death: domain_prefix: 33 is not between 1 and 32"),
    (
        "a node in two domains",
        '[death.domains]\n"n[1-4]" = "a"\n"n[3-6]" = "b"\n',
        "death.domains: n3, n4 are in 'a' and in 'b'",
    ),
    (
        "silence at once",
        "[death]\nsilent_after_heartbeats = 0.1\n",
        "death.silent_after_heartbeats: 0.1 is less than 1: ",
    ),
    ("no peers", "[death]\npeers = 0\n", "death.peers: 0 is less than 2: two peers must agree"),
    ("no time for a probe", "[death]\nprobe_timeout_s = 0\n", "death.probe_timeout_s: 0 is less than 0.2: "),
    ("no grace", "[death]\nreboot_grace_s = 0\n", "death.reboot_grace_s: 0 is less than 10: "),
    ("a view that is always old", "[control]\nview_max_age_s = 0.5\n", "control.view_max_age_s: 0.5 is less than 3: "),
    ("log", "[log]\nlevel = 'loud'\n", "log.level: 'loud' is none of"),
]


@pytest.mark.parametrize(("text", "expected"), [b[1:] for b in BAD], ids=[b[0] for b in BAD])
def test_bad_files_get_one_line_with_file_and_key(tmp_path: Path, text: str, expected: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load(path)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert expected in message
    assert "\n" not in message


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.toml: No such file"):
        load(tmp_path / "nowhere.toml")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "[repair]\ngroup_window_s = 2678400\n",
            "repair.group_window_s: 2678400 s (31 days) is too long: at most 2592000 s (30 days)",
        ),
        (
            "[jobs]\nsuspect_window_s = 5184000\n",
            "jobs.suspect_window_s: 5184000 s (60 days) is too long: at most 2592000 s (30 days)",
        ),
        (
            "[elastic]\nleave_deadline_s = 7200\n",
            "elastic.leave_deadline_s: 7200 s (2 hours) is too long: at most 3600 s (1 hour)",
        ),
        (
            "[store]\nkeep_days = 30\n",
            "store.keep_days: 30 is too short: announcements looks back 5184000 s (60 days); keep at least 60",
        ),
    ],
)
def test_a_window_longer_than_what_is_remembered_is_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load(write(tmp_path, text))
    assert f"controller.toml: {said}" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_what_is_said_of_checks_arrives_in_the_policy(tmp_path: Path) -> None:
    text = (
        "[checks]\nact_on = ['gpu.nvlink']\nobserve_only = ['gpu.thermal']\n[checks.thresholds]\n"
        "gpu.temperature_margin_c = 5\nhost.load_per_cpu = 8\n"
        "[[nodes]]\nname = 'a'\nnodes = 'n1'\nobserve_only = ['gpu.xid']\nthresholds.gpu.temperature_margin_c = 2\n"
    )
    policy = load(write(tmp_path, text)).policy
    numbers = {"gpu.temperature_margin_c": 5, "host.load_per_cpu": 8.0}
    assert policy.checks == CheckPolicy(Lists(("gpu.nvlink",), ("gpu.thermal",)), numbers)
    assert checks_for("n1", None, policy).thresholds == {**numbers, "gpu.temperature_margin_c": 2}
    assert checks_for("n2", None, policy) == policy.checks
