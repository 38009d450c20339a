"""The controller's settings (``/etc/holdfast/controller.toml``): strict, with the policy's own defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from holdfast.config import drain_rules, limits, strict
from holdfast.config.binding import check_bind, networks
from holdfast.config.check_ids import check_policy
from holdfast.config.dashboard import check_dashboard
from holdfast.config.enrolment import check_enrolment
from holdfast.config.node_sets import NODES, check_narrowing, read_sets
from holdfast.config.notify import check_notify, check_owners
from holdfast.config.profiles import PROFILES
from holdfast.config.sections import (
    ActorSection,
    ChecksSection,
    ClusterSection,
    DashboardSection,
    EnrolmentSection,
    LogSection,
    NotifySection,
    QuorumSection,
    RunSection,
    ServerSection,
    StoreSection,
    TelemetrySection,
)
from holdfast.config.spares import check_spares
from holdfast.config.strict import build
from holdfast.config.tables import FileTable, fill, tables_of
from holdfast.config.telemetry import check_telemetry
from holdfast.model.errors import ConfigError
from holdfast.model.policies.lookback import check_windows
from holdfast.model.policies.policy import Policy
from holdfast.providers.registry import KINDS, PROVIDERS
from holdfast_checks.settings.option import TomlTable, option


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """All settings of the controller's processes, and so the tables of the file. Paths are absolute."""

    path: Path
    cluster: ClusterSection = option(ClusterSection(), "The Slurm cluster.")
    server: ServerSection = option(ServerSection(), "Where agents and people reach the API.")
    store: StoreSection = option(StoreSection(), "The database.")
    policy: Policy = option(Policy(), "How findings join and steps are repeated.", name="control")
    provider: str = option(
        "none",
        f"{', '.join(PROVIDERS)}. Each other key is for the kinds that its text begins with.",
        name="kind",
        one_of=PROVIDERS,
        table=TomlTable("provider", "What can reboot or replace a machine."),
    )
    """The table's other keys are settings of the kind (``holdfast.providers.registry.KINDS``)."""
    provider_settings: object | None = None
    """What ``open_provider`` wants of this kind; None for a kind that needs nothing."""
    checks: ChecksSection = option(
        ChecksSection(),
        "Which health checks act, and by which thresholds, on all nodes. The agents get this with their heartbeats.",
    )
    dashboard: DashboardSection = option(DashboardSection(), "The pages for a browser.")
    notify: NotifySection = option(NotifySection(), "Where notifications go.")
    run: RunSection = option(RunSection(), "The controller's own processes.")
    actor: ActorSection = option(ActorSection(), "Limits that the actor enforces independently.")
    quorum: QuorumSection = option(QuorumSection(), "Where the groups of elastic jobs meet.")
    enrolment: EnrolmentSection = option(
        EnrolmentSection(), "Tokens for nodes on EC2 by the identity of their machine."
    )
    telemetry: TelemetrySection = option(TelemetrySection(), "What is sent to other tools (docs/metrics.md).")
    log: LogSection = option(LogSection(), "The log on standard error.")
    profile: str | None = None
    profile_changes: Mapping[str, Any] = field(default_factory=dict)
    """``section.key`` → value that the profile set: printed at the start."""


SECTIONS: Mapping[str, FileTable] = {table.name: table for table in tables_of(ControllerSettings)}
"""The tables of the file by name, in its order."""


def load(path: Path | str) -> ControllerSettings:
    """Read and check the file. Raises ConfigError in one line that names file, key and the nearest valid key."""
    path = Path(path)
    return read(strict.load(path), path)


def read(table: Mapping[str, Any], path: Path) -> ControllerSettings:
    """The same from a parsed table."""
    where = str(path)
    strict.refuse_unknown(table, ["profile", NODES, drain_rules.KEY, *SECTIONS], where)
    profile, changes = _profile(table, where)
    tables = {name: _table(table, name, changes, where) for name in SECTIONS}
    if "act" in tables["hangs"]:  # as before there was a setting of its own for groups
        tables["hangs"].setdefault("group_act", tables["hangs"]["act"])
    settings = fill(
        ControllerSettings,
        tables,
        where,
        path=path.resolve(),
        provider=_kind(tables["provider"], where),
        profile=profile,
        profile_changes={f"{name}.{key}": value for name, keys in changes.items() for key, value in keys.items()},
    )
    for name, section in SECTIONS.items():
        for key, value in tables[name].items():
            if key in section.keys:
                _in_range(value, f"{where}: {name}.{key}")
    sets = read_sets(table.get(NODES, []), where)
    check_narrowing(sets, settings.checks.act_on, where)
    repair = replace(settings.policy.repair, provider=settings.provider)
    rules = drain_rules.read(table.get(drain_rules.KEY, []), where)
    history = replace(settings.policy.history, drain_rules=rules)
    settings = replace(
        settings,
        policy=replace(
            settings.policy,
            repair=repair,
            history=history,
            nodes=sets,
            checks=check_policy(settings.checks, f"{where}: checks"),
        ),
        provider_settings=_provider(settings.provider, tables["provider"], settings.cluster.name, where),
    )
    return _checked(_resolved(settings), where)


POLICY_TABLES = ("profile", "mode", "propose", "repair", NODES, "checks")
"""Of the file, what says which checks act and what may be done to which nodes."""


def policy_tables(given: Mapping[str, Any], path: Path) -> Policy:
    """The policy by these tables of a file alone, all else at its default. Raises ConfigError in one line."""
    strict.refuse_unknown(given, POLICY_TABLES, str(path))
    return read(given, path).policy


def _profile(table: Mapping[str, Any], where: str) -> tuple[str | None, dict[str, dict[str, Any]]]:
    """The profile's name and what it changes: keys that the file does not set itself."""
    name = table.get("profile")
    if name is None or name == "":
        return None, {}
    strict.refuse_other(name, tuple(PROFILES), f"{where}: profile")
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


def _in_range(value: object, where: str) -> None:
    """No number of the file is below zero, and what is counted or waited for is finite; what is narrower is declared."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return
    if not 0 <= value < 1e9:
        raise ConfigError(f"{where}: {value} is not between 0 and 1000000000")


def _kind(table: Mapping[str, Any], where: str) -> str:
    kind = table.get("kind", "none")
    strict.refuse_other(kind, PROVIDERS, f"{where}: provider.kind")
    return str(kind)


def _provider(kind: str, table: Mapping[str, Any], cluster: str, where: str) -> object | None:
    rest = {key: value for key, value in table.items() if key != "kind"}
    found = KINDS[kind]
    for key in rest:
        others = [other for other, one in KINDS.items() if key in one.options]
        if others and kind not in others:
            needs = " or ".join(repr(other) for other in others)
            raise ConfigError(f"{where}: provider.{key} has no meaning with kind = {kind!r}; it needs kind = {needs}")
    valid = found.options or sorted({key for one in KINDS.values() for key in one.options})
    strict.refuse_unknown(rest, ["kind", *valid], f"{where}: provider")
    if found.settings is None:
        return None
    if found.needs_cluster_name and not cluster:
        raise ConfigError(f"{where}: provider {kind} needs cluster.name: machines are known by it")
    given = rest if found.own_cluster else {**rest, "cluster": cluster}
    try:
        built: object = build(given, found.settings, f"{where}: provider")
    except ConfigError as error:
        raise ConfigError(str(error) if str(error).startswith(where) else f"{where}: {error}") from error
    return built


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
        dashboard=replace(settings.dashboard, proxy_secret_file=absolute(settings.dashboard.proxy_secret_file)),
        telemetry=replace(settings.telemetry, otlp_header_file=absolute(settings.telemetry.otlp_header_file)),
        server=replace(server, tls_cert=absolute(server.tls_cert), tls_key=absolute(server.tls_key)),
    )


def _checked(settings: ControllerSettings, where: str) -> ControllerSettings:
    check_spares(settings.policy.spares, f"{where}: spares")
    check_notify(settings.notify, f"{where}: notify")
    check_owners(settings.notify.owners, f"{where}: notify.owners", wanted=settings.policy.job.owner_mail)
    check_dashboard(settings.dashboard, f"{where}: dashboard")
    if why := limits.wrong_domains(settings.policy.death) or check_windows(
        settings.policy, timedelta(days=settings.store.keep_days)
    ):
        raise ConfigError(f"{where}: {why}")
    check_enrolment(settings.enrolment, f"{where}: enrolment")
    check_telemetry(settings.telemetry, f"{where}: telemetry")
    networks(settings.server.proxies, f"{where}: server.proxies")
    try:
        check_bind(settings.server.host, settings.server.tls_cert, settings.server.tls_key)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None
    for key, file in (("tls_cert", settings.server.tls_cert), ("tls_key", settings.server.tls_key)):
        if file is not None and not file.is_file():
            raise ConfigError(f"{where}: server.{key}: there is no file {file}")
    return settings
