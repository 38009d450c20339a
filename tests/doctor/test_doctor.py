"""Each rule of the doctor: what triggers it, and that a good site gets no findings."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from holdfast.doctor import AdviceLevel, DoctorFacts, SlurmFacts, diagnose, exit_code
from holdfast.doctor.facts import ControllerFacts, MetadataFacts, PluginFacts, SlurmScript, SpankLine
from holdfast.model.agents.report import AgentView
from holdfast.model.machine import ProviderCan
from holdfast.model.parts import Condition, DiskRoom, PartName, PartState
from holdfast.model.policies.node_sets import NodeSet
from holdfast.model.policies.policy import JobPolicy, Mode, Policy, RepairPolicy
from holdfast.model.slurm.cluster import Node, Partition, Reservation

DATA = Path(__file__).parent / "data"
DOCS = Path(__file__).parents[2] / "docs" / "doctor.md"
NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)

GOOD = {
    "JobFileAppend": "1",
    "MaxBatchRequeue": "100",
    "AuthInfo": "socket=/run/munge/munge.socket.2,cred_expire=30",
    "KillOnBadExit": "1",
    "SchedulerParameters": "nohold_on_prolog_fail",
    "ResumeTimeout": "1200 sec",
    "PrologEpilogTimeout": "300",
    "ProctrackType": "proctrack/cgroup",
    "SlurmctldHost[1]": "head2",
    "RequeueExit": "85",
    "PreemptType": "preempt/partition_prio",
    "PreemptMode": "REQUEUE",
    "SlurmctldParameters": "rl_enable,rl_refill_rate=20",
}
PARTITIONS = (
    Partition("train", "OFF", 10, 0, ("n1", "n2", "n3")),
    Partition("flex", "REQUEUE", 1, 30, ("n1", "n2", "n3")),
)


def captured(version: str) -> dict[str, str]:
    """A real ``scontrol show config`` of that release, from a practice cluster."""
    lines = (DATA / f"config-{version}.txt").read_text().splitlines()
    return {key.strip(): value.strip() for key, mark, value in (line.partition("=") for line in lines) if mark}


def node(
    name: str, *, flags: frozenset[str] = frozenset(), reason: str = "", gpus: int = 8, part: str = "train"
) -> Node:
    return Node(name, "IDLE", flags, reason=reason, partitions=(part,), gpu_count=gpus)


def agent(name: str, *, age_s: float = 3, offset_s: float = 0.01, version: str = "1.0") -> AgentView:
    heard = NOW - timedelta(seconds=age_s)
    return AgentView(name, f"i-{name}", "boot", heard, heard, agent_version=version, clock_offset_s=offset_s)


NODES = {name: node(name) for name in ("n1", "n2", "n3")}
AGENTS = {name: (agent(name),) for name in NODES}


def good(version: str = "24.11") -> DoctorFacts:
    """A site at which the doctor finds nothing."""
    return DoctorFacts(
        now=NOW,
        policy=Policy(
            mode=Mode.ACT,
            job=JobPolicy(consent_partitions=frozenset({"train"})),
            repair=RepairPolicy(provider="ec2"),
        ),
        user="holdfast-actor",
        slurm=SlurmFacts(
            version=f"{version}.5",
            config=captured(version) | GOOD,
            nodes=NODES,
            reservations={"holdfast-spares": Reservation("holdfast-spares", ("n3",))},
            partitions=PARTITIONS,
            may_change=True,
            may_reserve=True,
        ),
        agents=AGENTS,
        store_path="/var/lib/holdfast/holdfast.db",
        store_filesystem="ext4",
        plugins=plugins(version),
    )


SO = "/usr/local/lib/holdfast/spank_holdfast.so"
LUA = "/usr/local/share/holdfast/slurm-plugins/lua/holdfast.lua"
GLUE = f'local here, holdfast = pcall(dofile, "{LUA}")'


def plugins(version: str = "24.11", **changes: object) -> PluginFacts:
    """Only a plug-in that exists and fits."""
    release = tuple(int(part) for part in version.split("."))
    line = SpankLine("optional", SO, there=True, readable=True, release=(release[0], release[1]))
    return replace(PluginFacts(seen=True, folder="/etc/slurm", spank=(line,)), **changes)  # type: ignore[arg-type]


def spank(**changes: object) -> Change:
    return site(plugins=plugins(spank=(replace(plugins().spank[0], **changes),)))  # type: ignore[arg-type]


def script(key: str, *, there: bool = True, executable: bool = True) -> SlurmScript:
    return SlurmScript(key, f"/usr/local/share/holdfast/slurm-plugins/{key.lower()}.sh", there, executable)


Change = Callable[[DoctorFacts], DoctorFacts]


def config(**changes: str) -> Change:
    def change(facts: DoctorFacts) -> DoctorFacts:
        assert facts.slurm is not None
        return replace(facts, slurm=replace(facts.slurm, config={**facts.slurm.config, **changes}))

    return change


def with_nodes(**changes: Node) -> Change:
    def change(facts: DoctorFacts) -> DoctorFacts:
        assert facts.slurm is not None
        return replace(facts, slurm=replace(facts.slurm, nodes={**facts.slurm.nodes, **changes}))

    return change


def slurm(**changes: object) -> Change:
    def change(facts: DoctorFacts) -> DoctorFacts:
        assert facts.slurm is not None
        return replace(facts, slurm=replace(facts.slurm, **changes))  # type: ignore[arg-type]

    return change


def site(**changes: object) -> Change:
    return lambda facts: replace(facts, **changes)  # type: ignore[arg-type]


def part(name: PartName, condition: Condition = Condition.FAILED) -> Change:
    return site(controller=ControllerFacts(parts=(PartState(name, condition, "drill", "look"),)))


def policy(**changes: object) -> Change:
    return lambda facts: replace(facts, policy=replace(facts.policy, **changes))  # type: ignore[arg-type]


def agents(changes: Mapping[str, tuple[AgentView, ...]]) -> Change:
    return lambda facts: replace(facts, agents={**AGENTS, **changes})


def both(*changes: Change) -> Change:
    def change(facts: DoctorFacts) -> DoctorFacts:
        for one in changes:
            facts = one(facts)
        return facts

    return change


DRAIN = frozenset({"DRAIN"})
CANNOT = ProviderCan(reboot=False, replace=True, launch_first=False, status=True, power_off_confirmed=False)
SAVING = config(SuspendProgram="/opt/off", SuspendTime="600 sec")
HYPERPOD = policy(repair=RepairPolicy(provider="hyperpod"))
OLD = both(slurm(version="22.05.8"), site(plugins=plugins("22.05")))
DENIED = site(provider_denied={"RunInstances": "UnauthorizedOperation: RunInstances"})
OBSERVING = policy(mode=Mode.OBSERVE)

TABLE = [
    ("slurm.unreachable", AdviceLevel.ERROR, site(slurm=None, slurm_problem="timed out"), "timed out"),
    ("slurm.version", AdviceLevel.WARNING, slurm(version="21.08.5"), "21.08.5"),
    ("slurm.permission", AdviceLevel.ERROR, slurm(may_change=False), "holdfast-actor"),
    ("slurm.permission", AdviceLevel.WARNING, both(slurm(may_change=False), OBSERVING), "holdfast-actor"),
    ("slurm.permission", AdviceLevel.WARNING, slurm(may_change=None), "could not be found out"),
    ("slurm.permission", AdviceLevel.ERROR, slurm(may_change=False, may_reserve=True), "a Slurm operator, who may not"),
    ("slurm.permission_reserve", AdviceLevel.WARNING, slurm(may_reserve=False), "reservations"),
    ("slurm.private_data_controller", AdviceLevel.HINT, config(PrivateData="jobs"), "hides jobs"),
    (
        "slurm.private_data",
        AdviceLevel.ERROR,
        both(slurm(may_change=False), config(PrivateData="jobs,users")),
        "hides jobs",
    ),
    ("slurm.return_to_service", AdviceLevel.WARNING, config(ReturnToService="2"), "=2"),
    ("slurm.return_to_service", AdviceLevel.HINT, config(ReturnToService="0"), "=0"),
    ("slurm.slurmd_timeout", AdviceLevel.WARNING, config(SlurmdTimeout="0 sec"), "never"),
    ("slurm.slurmd_timeout", AdviceLevel.WARNING, config(SlurmdTimeout="900 sec"), "900"),
    ("slurm.reboot_program", AdviceLevel.HINT, config(RebootProgram="(null)"), "RebootProgram"),
    (
        "slurm.reboot_program",
        AdviceLevel.WARNING,
        both(config(RebootProgram="(null)"), policy(repair=RepairPolicy(provider="none"))),
        "RebootProgram",
    ),
    (
        "slurm.reboot_program",
        AdviceLevel.WARNING,
        both(config(RebootProgram="(null)"), site(provider_can=CANNOT)),
        "neither can the provider",
    ),
    ("slurm.resume_timeout", AdviceLevel.WARNING, config(ResumeTimeout="60 sec"), "60"),
    ("slurm.health_check_program", AdviceLevel.HINT, config(HealthCheckProgram="/usr/sbin/nhc"), "/usr/sbin/nhc"),
    ("slurm.prolog_epilog_timeout", AdviceLevel.WARNING, config(PrologEpilogTimeout="65534"), "Epilog"),
    ("slurm.prolog_flags", AdviceLevel.WARNING, config(PrologFlags="Alloc,Contain,Serial"), "Serial"),
    (
        "slurm.power_saving",
        AdviceLevel.WARNING,
        config(SuspendProgram="/opt/off", SuspendTime="600 sec"),
        "power saving",
    ),
    (
        "slurm.power_saving",
        AdviceLevel.WARNING,
        both(config(SuspendProgram="/opt/off", SuspendTime="600 sec"), slurm(version="22.05.8")),
        "power saving",
    ),
    (
        "slurm.power_saving",
        AdviceLevel.WARNING,
        both(SAVING, config(SuspendExcNodes="n1:1,n2"), slurm(version="22.05.8")),
        "spares",
    ),
    ("slurm.node_features", AdviceLevel.HINT, config(NodeFeaturesPlugins="node_features/helpers"), "helpers"),
    (
        "slurm.single_controller",
        AdviceLevel.HINT,
        slurm(config={k: v for k, v in good().slurm.config.items() if k != "SlurmctldHost[1]"}),  # type: ignore[union-attr]
        "no backup",
    ),
    ("slurm.job_requeue", AdviceLevel.ERROR, config(JobRequeue="0"), "JobRequeue=0"),
    ("slurm.max_batch_requeue", AdviceLevel.WARNING, config(MaxBatchRequeue="5"), "=5"),
    ("slurm.job_file_append", AdviceLevel.WARNING, config(JobFileAppend="0"), "truncates"),
    ("slurm.cred_expire", AdviceLevel.HINT, config(AuthInfo="socket=/run/m"), "120 s"),
    ("slurm.cred_expire", AdviceLevel.WARNING, config(AuthInfo="cred_expire=3"), "3 s"),
    ("slurm.kill_wait", AdviceLevel.WARNING, config(KillWait="120 sec"), "120"),
    ("slurm.complete_wait", AdviceLevel.WARNING, config(CompleteWait="32 sec"), "32"),
    ("slurm.kill_on_bad_exit", AdviceLevel.HINT, config(KillOnBadExit="0"), "=0"),
    (
        "slurm.scheduler_delays",
        AdviceLevel.WARNING,
        config(SchedulerParameters="defer,batch_sched_delay=20"),
        "defer, batch_s",
    ),
    ("slurm.rate_limit", AdviceLevel.HINT, config(SlurmctldParameters="idle_on_node_suspend"), "lacks rl_enable"),
    ("slurm.rate_limit", AdviceLevel.HINT, config(SlurmctldParameters="rl_enable"), "2 requests a second"),
    (
        "slurm.rate_limit",
        AdviceLevel.HINT,
        config(SlurmctldParameters="rl_enable,rl_refill_rate=40,rl_refill_period=10"),
        "4 requests a second",
    ),
    (
        "slurm.hold_on_prolog_fail",
        AdviceLevel.WARNING,
        config(Prolog="/etc/slurm/prolog.sh", SchedulerParameters="bf_continue"),
        "held",
    ),
    ("slurm.gres_types", AdviceLevel.ERROR, config(GresTypes="(null)"), "GresTypes"),
    ("slurm.gres_types", AdviceLevel.ERROR, slurm(nodes={n: node(n, gpus=0) for n in NODES}), "no node"),
    ("slurm.select_type", AdviceLevel.WARNING, config(SelectType="select/linear"), "select/linear"),
    ("slurm.proctrack", AdviceLevel.WARNING, config(ProctrackType="proctrack/pgid"), "pgid"),
    ("slurm.min_job_age", AdviceLevel.WARNING, config(MinJobAge="60 sec"), "60"),
    ("pool.no_spare", AdviceLevel.WARNING, slurm(reservations={}), "holdfast-spares"),
    ("pool.no_spare", AdviceLevel.WARNING, with_nodes(n3=node("n3", flags=DRAIN, reason="holdfast[0a]: x")), "n3"),
    ("pool.spare_does_not_fit", AdviceLevel.WARNING, with_nodes(n2=node("n2", part="big")), "partition big"),
    ("pool.spare_does_not_fit", AdviceLevel.WARNING, with_nodes(n3=node("n3", gpus=4)), "8 GPUs"),
    (
        "pool.invalid_registration",
        AdviceLevel.WARNING,
        with_nodes(n1=node("n1", flags=frozenset({"INVALID_REG"}))),
        "n1",
    ),
    ("pool.foreign_drain", AdviceLevel.HINT, with_nodes(n2=node("n2", flags=DRAIN, reason="bad fan (bob)")), "n2"),
    ("agents.no_answer", AdviceLevel.WARNING, site(agents=None, no_answer="refused"), "which agents report: refused"),
    ("agents.missing", AdviceLevel.ERROR, site(agents={"n1": AGENTS["n1"], "n3": AGENTS["n3"]}), "1 of 3 nodes: n2"),
    ("agents.missing", AdviceLevel.ERROR, agents({"n2": ()}), "1 of 3 nodes: n2"),
    (
        "agents.checks_refused",
        AdviceLevel.WARNING,
        agents({"n2": (replace(agent("n2"), checks_refused="checks.thresholds: gpu: too high"),)}),
        "1 agents refused the policy of checks: n2",
    ),
    ("agents.unknown_node", AdviceLevel.WARNING, agents({"ip-10-0-0-1": (agent("ip-10-0-0-1"),)}), "ip-10-0-0-1"),
    ("agents.silent", AdviceLevel.ERROR, agents({"n2": (agent("n2", age_s=26),)}), "n2"),
    ("agents.clock_skew", AdviceLevel.WARNING, agents({"n2": (agent("n2", offset_s=-40.0),)}), "n2, -40.0 s"),
    ("agents.clock_skew", AdviceLevel.ERROR, agents({"n2": (agent("n2", offset_s=400.0),)}), "n2, +400.0 s"),
    (
        "agents.gres",
        AdviceLevel.WARNING,
        agents({"n2": (replace(agent("n2"), gres_problem="/dev/nvidia8 is no GPU; NVML has minors 0-7"),)}),
        "on n2: /dev/nvidia8 is no GPU; NVML has minors 0-7",
    ),
    ("agents.versions", AdviceLevel.HINT, agents({"n2": (agent("n2", version="0.9"),)}), "0.9, 1.0"),
    (
        "controller.failing",
        AdviceLevel.ERROR,
        site(controller=ControllerFacts(failing=("turn: KeyError: 'n1'",))),
        "turn: KeyError",
    ),
    (
        "controller.set_aside",
        AdviceLevel.ERROR,
        site(controller=ControllerFacts(set_aside=("job 7 (ann)",))),
        "job 7 (ann)",
    ),
    ("controller.held_nodes", AdviceLevel.ERROR, site(controller=ControllerFacts(held=("n1",))), "n1"),
    ("site.store_on_network", AdviceLevel.ERROR, site(store_filesystem="nfs4", store_on_network=True), "nfs4"),
    ("site.store_in_memory", AdviceLevel.WARNING, site(store_filesystem="tmpfs"), "tmpfs"),
    ("site.provider_unreachable", AdviceLevel.ERROR, site(provider_problem="no credentials"), "no credentials"),
    ("provider.permission", AdviceLevel.ERROR, DENIED, "may not, at the provider ec2: RunInstances"),
    ("provider.permission", AdviceLevel.WARNING, both(DENIED, OBSERVING), "RunInstances"),
    (
        "provider.refused",
        AdviceLevel.WARNING,
        site(provider_refused={"RunInstances": "InvalidLaunchTemplateId.NotFound"}),
        "InvalidLaunchTemplateId",
    ),
    (
        "provider.repairs_itself",
        AdviceLevel.HINT,
        both(HYPERPOD, site(provider_repairs=True)),
        "left to the provider hyperpod",
    ),
    ("plugins.none", AdviceLevel.HINT, site(plugins=PluginFacts(seen=True, folder="/etc/slurm")), "/etc/slurm"),
    ("plugins.spank_required", AdviceLevel.ERROR, spank(kind="required"), "'required'"),
    ("plugins.spank_missing", AdviceLevel.WARNING, spank(there=False, readable=False, release=None), "is not there"),
    ("plugins.spank_missing", AdviceLevel.WARNING, spank(readable=False, release=None), "cannot be read"),
    ("plugins.spank_release", AdviceLevel.WARNING, spank(release=(22, 5)), "22.05, and 24.11.5"),
    (
        "plugins.lua_unprotected",
        AdviceLevel.ERROR,
        site(plugins=plugins(lua_glue=f'local holdfast = dofile("{LUA}")', lua_module=LUA, lua_module_there=True)),
        "without pcall",
    ),
    (
        "plugins.lua_unused",
        AdviceLevel.WARNING,
        site(plugins=plugins(lua_glue=GLUE, lua_module=LUA, lua_module_there=True)),
        "no lua",
    ),
    (
        "plugins.lua_missing",
        AdviceLevel.WARNING,
        both(site(plugins=plugins(lua_glue=GLUE, lua_module=LUA)), config(JobSubmitPlugins="lua")),
        "not there",
    ),
    (
        "plugins.lua_lemons",
        AdviceLevel.WARNING,
        both(
            site(plugins=plugins(lua_glue=GLUE, lua_module=LUA, lua_module_there=True, lemons_not_writable="/l")),
            config(JobSubmitPlugins="lua"),
        ),
        "write to /l",
    ),
    (
        "plugins.prolog_missing",
        AdviceLevel.WARNING,
        site(plugins=plugins(scripts=(script("Prolog"), script("Epilog", there=False, executable=False)))),
        "epilog.sh is not there",
    ),
    ("plugins.prolog_half", AdviceLevel.HINT, site(plugins=plugins(scripts=(script("Prolog"),))), "Epilog does not"),
    (
        "site.metadata_open",
        AdviceLevel.ERROR,
        site(metadata=MetadataFacts(True, ("http://x",))),
        "any user of this machine",
    ),
    ("site.metadata_untried", AdviceLevel.HINT, site(metadata=MetadataFacts(False)), "could not be tried"),
    ("site.no_provider", AdviceLevel.HINT, policy(repair=RepairPolicy(provider="none")), "no provider"),
    ("site.observe", AdviceLevel.HINT, OBSERVING, "observes"),
    ("site.node_set", AdviceLevel.WARNING, policy(nodes=(NodeSet(name="a", nodes="x[1-8]"),)), "'a' matches no node"),
    (
        "site.node_set",
        AdviceLevel.WARNING,
        policy(nodes=(NodeSet(name="a", partitions=("trian",)),)),
        "partition of Slurm's: trian",
    ),
    ("site.changeable", AdviceLevel.ERROR, site(changeable=("/c may be written by everybody",)), "/c may be written"),
    ("site.readable", AdviceLevel.WARNING, site(readable=("/c",)), "can read /c"),
    ("slurm.controller_rights", AdviceLevel.WARNING, site(controller_user="root"), "runs as root"),
    (
        "slurm.controller_rights",
        AdviceLevel.WARNING,
        both(site(controller_user="slurm"), config(SlurmUser="slurm(64030)")),
        "runs as slurm",
    ),
    (
        "slurm.controller_rights",
        AdviceLevel.WARNING,
        site(controller_user="hf", actor_user="hf", user="hf"),
        "runs as hf",
    ),
    (
        "site.node_set",
        AdviceLevel.WARNING,
        policy(nodes=(NodeSet(name="a", nodes="n1,N2,n3.cluster.example", never_touch=True),)),
        "no node of Slurm's: N2, n3.cluster.example",
    ),
    ("controller.store", AdviceLevel.ERROR, part(PartName.STORE), "drill"),
    ("controller.loop", AdviceLevel.ERROR, part(PartName.LOOP), "drill"),
    ("controller.actor", AdviceLevel.ERROR, part(PartName.ACTOR), "drill"),
    ("controller.actor", AdviceLevel.WARNING, part(PartName.ACTOR, Condition.WARNING), "drill"),
    ("controller.notifier", AdviceLevel.ERROR, part(PartName.NOTIFIER), "drill"),
    ("controller.notifier", AdviceLevel.HINT, part(PartName.NOTIFIER, Condition.WARNING), "drill"),
    ("controller.connections", AdviceLevel.WARNING, part(PartName.CONNECTIONS, Condition.WARNING), "drill"),
    ("site.disk", AdviceLevel.ERROR, site(disk=DiskRoom(2**20, 2**40, 2**20)), "1 MiB free"),
    ("site.disk", AdviceLevel.WARNING, site(disk=DiskRoom(2 * 2**30, 2**40, 3 * 2**30)), "2.0 GiB free"),
    ("site.steps_untaken", AdviceLevel.ERROR, site(untaken="no actor takes steps (Drain n1)"), "no actor takes steps"),
    ("site.consent", AdviceLevel.HINT, policy(job=JobPolicy()), "no partition"),
    ("agents.not_asked", AdviceLevel.WARNING, site(agents=None, not_asked="no token: set HOLDFAST_TOKEN"), "no token"),
    ("slurm.permission_other_user", AdviceLevel.HINT, site(user="root", actor_user="slurm"), "the actor runs as slurm"),
    ("slurm.permission_other_user", AdviceLevel.HINT, site(user="root"), "tried as root"),
]


def test_each_cause_has_its_own_next_step() -> None:
    """A missing token is no controller that is down, and a limit of the actor's own is no dead actor."""
    fixes = {a.id: a.fix_line for a in diagnose(site(agents=None, not_asked="no token")(good()))}
    assert "HOLDFAST_TOKEN" in fixes["agents.not_asked"]
    assert "systemctl" not in fixes["agents.not_asked"]
    text = "the actor's own limit holds back further steps"
    part = PartState(PartName.ACTOR, Condition.FAILED, text, "journalctl -u holdfast-actor -g own_limit")
    held = site(untaken=text, controller=ControllerFacts(parts=(part,)))(good())
    fixes = {a.id: a.fix_line for a in diagnose(held)}
    assert fixes["site.steps_untaken"] == part.next_step
    assert "Flags=IGNORE_JOBS" in {a.id: a.fix_line for a in diagnose(slurm(reservations={})(good()))}["pool.no_spare"]


@pytest.mark.parametrize("user", ["holdfast-actor", "alice"])
def test_nothing_is_said_of_rights_that_were_tried_as_the_actor_or_as_an_ordinary_user(user: str) -> None:
    actor = user if user != "alice" else ""
    found = diagnose(site(user=user, actor_user=actor)(good()))
    assert "slurm.permission_other_user" not in {a.id for a in found}


@pytest.mark.parametrize(("wanted", "level", "change", "says"), TABLE, ids=[f"{r[0]}-{r[1]}" for r in TABLE])
def test_rule_speaks(wanted: str, level: AdviceLevel, change: Change, says: str) -> None:
    found = [one for one in diagnose(change(good())) if one.id == wanted]
    assert len(found) == 1
    (advice,) = found
    assert advice.level is level
    assert says in advice.what
    assert advice.why
    assert advice.fix_line
    assert "\n" not in advice.what + advice.why + advice.fix_line


@pytest.mark.parametrize("version", ["22.05", "24.11"])
def test_good_site_hears_nothing(version: str) -> None:
    assert diagnose(good(version)) == []


NOTHING_TO_SAY = [
    (
        "empty config: nothing read, nothing blamed",
        slurm(config={"GresTypes": "gpu", "SlurmctldHost[0]": "a", "SlurmctldHost[1]": "b"}),
    ),
    ("our own drain", with_nodes(n2=node("n2", flags=DRAIN, reason="holdfast[0abc]: gpu.xid 79"))),
    (
        "a drained node needs no agent",
        both(
            with_nodes(n2=node("n2", flags=DRAIN, reason="holdfast[0a]: x")),
            site(agents={"n1": AGENTS["n1"], "n3": AGENTS["n3"]}),
        ),
    ),
    (
        "a node that is switched off needs no agent",
        both(
            with_nodes(n2=node("n2", flags=frozenset({"POWERED_DOWN"}))),
            site(agents={"n1": AGENTS["n1"], "n3": AGENTS["n3"]}),
        ),
    ),
    (
        "power saving that leaves spares alone",
        config(SuspendProgram="/off", SuspendTime="600 sec", SuspendExcStates="DOWN,DRAIN,RESERVED"),
    ),
    ("power saving never begins", config(SuspendProgram="/off", SuspendTime="INFINITE")),
    ("the controller's user sees for itself", both(config(PrivateData="jobs,nodes"), site(user="holdfast-controller"))),
    ("every spare is kept awake by name", both(SAVING, config(SuspendExcNodes="n1,n3:1"), OLD)),
    ("spares may be in a range", both(SAVING, config(SuspendExcNodes="n[1-3]"), OLD)),
    ("Slurm's settings are on another machine", site(plugins=PluginFacts())),
    ("a plug-in whose release cannot be seen", spank(release=None)),
    (
        "the Lua module in use",
        both(
            site(plugins=plugins(lua_glue=GLUE, lua_module=LUA, lua_module_there=True)),
            config(JobSubmitPlugins="lua,defaults"),
        ),
    ),
    ("prolog and epilog", site(plugins=plugins(scripts=(script("Prolog"), script("Epilog"))))),
    ("our own health check program", config(HealthCheckProgram="/usr/libexec/holdfast/health-check")),
    (
        "one of two agents of a node is heard",  # word: a test's id
        agents({"n2": (agent("n2", age_s=500), agent("n2"))}),
    ),
    ("no database file", site(store_path="", store_filesystem="")),
    (
        "login nodes without GPUs",
        with_nodes(login=node("login", flags=DRAIN, gpus=0, part="login", reason="holdfast[0a]: x")),
    ),
]


@pytest.mark.parametrize("change", [row[1] for row in NOTHING_TO_SAY], ids=[row[0] for row in NOTHING_TO_SAY])
def test_no_false_alarm(change: Change) -> None:
    told = {one.id for one in diagnose(change(good()))}
    assert told <= {"slurm.cred_expire"}  # an empty configuration means Slurm's own default there


def test_silent_slurm_is_the_only_slurm_advice() -> None:
    """What could not be read is no finding about anything else."""
    found = diagnose(replace(good(), slurm=None, slurm_problem="slurmctld is away", agents=None))
    assert [one.id for one in found] == ["slurm.unreachable"]


def test_errors_come_first_and_decide_the_exit_code() -> None:
    facts = both(OBSERVING, config(JobRequeue="0", JobFileAppend="0"))(good())
    levels = [one.level for one in diagnose(facts)]
    assert levels == [AdviceLevel.ERROR, AdviceLevel.WARNING, AdviceLevel.HINT]
    assert exit_code(diagnose(facts)) == 1
    assert exit_code(diagnose(OBSERVING(good()))) == 0


def test_fixes_keep_what_is_there() -> None:
    facts = both(config(AuthInfo="socket=/run/x,cred_expire=300", Prolog="/p", SchedulerParameters="bf_continue"))(
        good()
    )
    fixes = {one.id: one.fix_line for one in diagnose(facts)}
    assert fixes["slurm.cred_expire"] == "slurm.conf: AuthInfo=socket=/run/x,cred_expire=30"
    assert fixes["slurm.hold_on_prolog_fail"] == "slurm.conf: SchedulerParameters=bf_continue,nohold_on_prolog_fail"


def test_power_saving_fix_fits_the_release() -> None:
    saving = config(SuspendProgram="/off", SuspendTime="600 sec")
    new, old = diagnose(saving(good())), diagnose(both(saving, slurm(version="22.05.8"))(good()))
    assert new[0].fix_line == "slurm.conf: SuspendExcStates=RESERVED,DRAIN,DOWN"
    assert old[0].fix_line == "slurm.conf: SuspendExcNodes=n3"


def test_every_advice_is_tried_here_and_documented() -> None:
    """Ids in the sources, in the tests and in the documentation are the same set."""
    sources = (Path(__file__).parents[2] / "daemon" / "holdfast" / "doctor").rglob("*.py")
    used = {
        found
        for file in sources
        for found in re.findall(
            r'^ +"((?:slurm|pool|agents|controller|site|provider|plugins|elastic|quorum|tls|tokens)\.\w+)",$',
            file.read_text(),
            re.MULTILINE,
        )
    }
    rooms = ("elastic", "quorum", "tls", "aside", "tokens", "metadata")
    elsewhere = "".join(Path(__file__).with_name(f"test_doctor_{room}.py").read_text() for room in rooms)
    assert used == {row[0] for row in TABLE} | set(
        re.findall(r'"((?:agents|site|elastic|quorum|tls|tokens)\.\w+)"', elsewhere)
    )
    assert used == set(re.findall(r"^\| `([a-z_]+\.[a-z_]+)` \|", DOCS.read_text(), re.MULTILINE))
