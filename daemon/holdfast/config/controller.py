"""The controller's settings (``/etc/holdfast/controller.toml``): strict, with the policy's own defaults."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from holdfast import logs
from holdfast.config import limits, strict
from holdfast.config.binding import check_bind, networks
from holdfast.config.check_ids import check_ids
from holdfast.config.enrolment import check_enrolment
from holdfast.config.profiles import PROFILES
from holdfast.config.sections import (
    SLURM_CLIENTS,
    ActorSection,
    ChecksSection,
    ClusterSection,
    EnrolmentSection,
    LogSection,
    ModeSection,
    NotifySection,
    QuorumSection,
    RunSection,
    ServerSection,
    StoreSection,
)
from holdfast.config.spares import check_spares
from holdfast.config.strict import build
from holdfast.model.errors import ConfigError
from holdfast.model.hangs import HangAct, HangPolicy, StragglerAct, StragglerPolicy
from holdfast.model.lookback import check_windows
from holdfast.model.planned import PlannedPolicy
from holdfast.model.policy import (
    RUNGS,
    BrakePolicy,
    DeathPolicy,
    HistoryPolicy,
    JobPolicy,
    MaintenancePolicy,
    Mode,
    Policy,
    RepairPolicy,
    SparePolicy,
)
from holdfast.model.resizing import ElasticPolicy
from holdfast.model.suspects import SuspectPolicy
from holdfast.providers.registry import KINDS, PROVIDERS
from holdfast_checks.settings import schema
from holdfast_checks.settings.option import option

T = TypeVar("T")
LOG_LEVELS = ("debug", "info", "warning", "error")


@dataclass(frozen=True, slots=True)
class ProviderSection:
    """``[provider]``: the kind; every other key is one of the kind's own settings."""

    kind: str = option("none", "What can reboot or replace a machine: one of holdfast.providers.PROVIDERS.")


SECTIONS: Mapping[str, tuple[type[Any], frozenset[str]]] = {
    "cluster": (ClusterSection, frozenset()),
    "server": (ServerSection, frozenset()),
    "store": (StoreSection, frozenset()),
    "mode": (ModeSection, frozenset()),
    "control": (
        Policy,
        frozenset(
            {"mode", "prolog", "brake", "death", "job", "repair", "spares", "history", "planned", "suspects"}
            | {"hangs", "stragglers", "elastic", "maintenance"}
        ),
    ),
    "brakes": (BrakePolicy, frozenset()),
    "death": (DeathPolicy, frozenset()),
    "jobs": (JobPolicy, frozenset()),
    "repair": (RepairPolicy, frozenset({"provider"})),
    "provider": (ProviderSection, frozenset()),
    "spares": (SparePolicy, frozenset()),
    "history": (HistoryPolicy, frozenset()),
    "planned": (PlannedPolicy, frozenset()),
    "suspects": (SuspectPolicy, frozenset()),
    "hangs": (HangPolicy, frozenset()),
    "stragglers": (StragglerPolicy, frozenset()),
    "elastic": (ElasticPolicy, frozenset()),
    "maintenance": (MaintenancePolicy, frozenset()),
    "checks": (ChecksSection, frozenset()),
    "notify": (NotifySection, frozenset()),
    "run": (RunSection, frozenset()),
    "actor": (ActorSection, frozenset()),
    "quorum": (QuorumSection, frozenset()),
    "enrolment": (EnrolmentSection, frozenset()),
    "log": (LogSection, frozenset()),
}
"""Section → the class that it fills, and fields of it that are set elsewhere.

``provider`` also has the keys of its kind (``holdfast.providers.registry.KINDS``)."""


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """All settings of the controller's processes. Paths are absolute."""

    path: Path
    cluster: ClusterSection = field(default_factory=ClusterSection)
    server: ServerSection = field(default_factory=ServerSection)
    store: StoreSection = field(default_factory=StoreSection)
    policy: Policy = field(default_factory=Policy)
    provider: str = "none"
    """Its kind, one of ``holdfast.providers.PROVIDERS``."""
    provider_settings: object | None = None
    """What ``open_provider`` wants of this kind; None for a kind that needs nothing."""
    checks: ChecksSection = field(default_factory=ChecksSection)
    notify: NotifySection = field(default_factory=NotifySection)
    run: RunSection = field(default_factory=RunSection)
    actor: ActorSection = field(default_factory=ActorSection)
    quorum: QuorumSection = field(default_factory=QuorumSection)
    enrolment: EnrolmentSection = field(default_factory=EnrolmentSection)
    log: LogSection = field(default_factory=LogSection)
    profile: str | None = None
    profile_changes: Mapping[str, Any] = field(default_factory=dict)
    """``section.key`` → value that the profile set: printed at the start."""


def load(path: Path | str) -> ControllerSettings:
    """Read and check the file. Raises ConfigError in one line that names file, key and the nearest valid key."""
    path = Path(path)
    return read(strict.load(path), path)


def read(table: Mapping[str, Any], path: Path) -> ControllerSettings:
    """The same from a parsed table."""
    where = str(path)
    _known(table, ["profile", *SECTIONS], where)
    profile, changes = _profile(table, where)
    tables = {name: _table(table, name, changes, where) for name in SECTIONS}
    if "act" in tables["hangs"]:  # as before there was a setting of its own for groups
        tables["hangs"].setdefault("group_act", tables["hangs"]["act"])

    def section(name: str, kind: type[T]) -> T:
        return _section(tables[name], name, kind, where)

    cluster, server = section("cluster", ClusterSection), section("server", ServerSection)
    kind, provider = _provider(tables["provider"], cluster.name, where)
    modes = section("mode", ModeSection)
    mode = _one_of(modes.mode, tuple(Mode), f"{where}: mode.mode")
    prolog = _one_of(modes.prolog, tuple(Mode), f"{where}: mode.prolog")
    policy = replace(
        section("control", Policy),
        mode=Mode(mode),
        prolog=Mode(prolog),
        brake=section("brakes", BrakePolicy),
        death=section("death", DeathPolicy),
        spares=section("spares", SparePolicy),
        history=section("history", HistoryPolicy),
        planned=section("planned", PlannedPolicy),
        suspects=section("suspects", SuspectPolicy),
        hangs=section("hangs", HangPolicy),
        stragglers=section("stragglers", StragglerPolicy),
        elastic=section("elastic", ElasticPolicy),
        maintenance=section("maintenance", MaintenancePolicy),
        job=section("jobs", JobPolicy),
        repair=replace(section("repair", RepairPolicy), provider=kind),
    )
    settings = ControllerSettings(
        path=path.resolve(),
        cluster=cluster,
        server=server,
        store=section("store", StoreSection),
        policy=policy,
        provider=kind,
        provider_settings=provider,
        checks=section("checks", ChecksSection),
        notify=section("notify", NotifySection),
        run=section("run", RunSection),
        actor=section("actor", ActorSection),
        quorum=section("quorum", QuorumSection),
        enrolment=section("enrolment", EnrolmentSection),
        log=section("log", LogSection),
        profile=profile,
        profile_changes={f"{name}.{key}": value for name, keys in changes.items() for key, value in keys.items()},
    )
    return _checked(_resolved(settings), where)


def _known(table: Mapping[str, Any], valid: Iterable[str], where: str) -> None:
    with strict.wrong_settings():
        schema.refuse_unknown(table, valid, where)


def _profile(table: Mapping[str, Any], where: str) -> tuple[str | None, dict[str, dict[str, Any]]]:
    """The profile's name and what it changes: keys that the file does not set itself."""
    name = table.get("profile")
    if name is None or name == "":
        return None, {}
    name = _one_of(name, tuple(PROFILES), f"{where}: profile")
    changes = {
        section: {
            key: value for key, value in keys.items() if key not in _as_table(table.get(section, {}), section, where)
        }
        for section, keys in PROFILES[name].items()
    }
    return name, changes


def _table(table: Mapping[str, Any], name: str, changes: Mapping[str, Mapping[str, Any]], where: str) -> dict[str, Any]:
    return {**changes.get(name, {}), **_as_table(table.get(name, {}), name, where)}


def _as_table(value: object, name: str, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"{where}: {name}: expected a table [{name}], found {value!r}")
    return value


def _section(table: Mapping[str, Any], name: str, kind: type[T], where: str) -> T:
    _, elsewhere = SECTIONS[name]
    valid = [f.name for f in dataclasses.fields(kind) if f.name not in elsewhere]  # type: ignore[arg-type]
    _known(table, valid, f"{where}: {name}")
    value = build(table, kind, f"{where}: {name}")
    for key, number in table.items():
        _in_range(key, number, f"{where}: {name}.{key}")
    return value


def _in_range(key: str, value: object, where: str) -> None:
    """Numbers of the policy: none is below zero, and what is counted or waited for is finite."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return
    if not 0 <= value < 1e9:
        raise ConfigError(f"{where}: {value} is not between 0 and 1000000000")
    if key.endswith("_share") and value > 1:
        raise ConfigError(f"{where}: {value} is not between 0 and 1: a share, not percent")


def _provider(table: Mapping[str, Any], cluster: str, where: str) -> tuple[str, object | None]:
    rest = dict(table)
    kind = _one_of(rest.pop("kind", "none"), PROVIDERS, f"{where}: provider.kind")
    found = KINDS[kind]
    for key in rest:
        others = [other for other, one in KINDS.items() if key in one.options]
        if others and kind not in others:
            needs = " or ".join(repr(other) for other in others)
            raise ConfigError(f"{where}: provider.{key} has no meaning with kind = {kind!r}; it needs kind = {needs}")
    valid = found.options or sorted({key for one in KINDS.values() for key in one.options})
    _known(rest, ["kind", *valid], f"{where}: provider")
    if found.settings is None:
        return kind, None
    if found.needs_cluster_name and not cluster:
        raise ConfigError(f"{where}: provider {kind} needs cluster.name: machines are known by it")
    given = rest if found.own_cluster else {**rest, "cluster": cluster}
    try:
        return kind, build(given, found.settings, f"{where}: provider")
    except ConfigError as error:
        raise ConfigError(str(error) if str(error).startswith(where) else f"{where}: {error}") from error


def _one_of(value: object, valid: tuple[str, ...], where: str) -> str:
    if not isinstance(value, str) or value not in valid:
        near = difflib.get_close_matches(str(value), valid, n=1, cutoff=0.5)
        hint = f"; did you mean {str(near[0])!r}?" if near else ""
        raise ConfigError(f"{where}: {value!r} is none of {', '.join(valid)}{hint}")
    return value


def _resolved(settings: ControllerSettings) -> ControllerSettings:
    base = settings.path.parent

    def absolute(path: Path | None) -> Path | None:
        return base / path if path is not None else None

    server = settings.server
    return replace(
        settings,
        run=replace(settings.run, dir=base / settings.run.dir),
        actor=replace(settings.actor, dir=base / settings.actor.dir),
        quorum=replace(settings.quorum, socket=base / settings.quorum.socket, key=base / settings.quorum.key),
        cluster=replace(settings.cluster, slurm_conf=absolute(settings.cluster.slurm_conf)),
        server=replace(server, tls_cert=absolute(server.tls_cert), tls_key=absolute(server.tls_key)),
    )


def _checked(settings: ControllerSettings, where: str) -> ControllerSettings:
    _one_of(settings.cluster.slurm_client, SLURM_CLIENTS, f"{where}: cluster.slurm_client")
    _one_of(settings.log.format, logs.FORMATS, f"{where}: log.format")
    _one_of(settings.log.level, LOG_LEVELS, f"{where}: log.level")
    _one_of(settings.policy.hangs.act, tuple(HangAct), f"{where}: hangs.act")
    _one_of(settings.policy.hangs.group_act, tuple(HangAct), f"{where}: hangs.group_act")
    _one_of(settings.policy.stragglers.act, tuple(StragglerAct), f"{where}: stragglers.act")
    for rung in settings.policy.repair.rungs:
        _one_of(rung, RUNGS, f"{where}: repair.rungs")
    check_spares(settings.policy.spares, f"{where}: spares")
    check_ids(settings.checks, f"{where}: checks")
    if why := limits.refused(settings.policy) or check_windows(
        settings.policy, timedelta(days=settings.store.keep_days)
    ):
        raise ConfigError(f"{where}: {why}")
    check_enrolment(settings.enrolment, f"{where}: enrolment")
    networks(settings.server.proxies, f"{where}: server.proxies")
    try:
        check_bind(settings.server.host, settings.server.tls_cert, settings.server.tls_key)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None
    for key, file in (("tls_cert", settings.server.tls_cert), ("tls_key", settings.server.tls_key)):
        if file is not None and not file.is_file():
            raise ConfigError(f"{where}: server.{key}: there is no file {file}")
    return settings
