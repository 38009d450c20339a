"""Verbs that work on this machine, without the API: daemons, configuration, tokens, backup, doctor."""

from __future__ import annotations

import dataclasses
import os
import re
import secrets
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.common.options import DEFAULT_PATH, Config, Json
from holdfast.cli.common.progress import working
from holdfast.cli.common.show import as_json, line, moment, table
from holdfast.model.errors import OutsideError, Usage

if TYPE_CHECKING:
    from holdfast.api.answers.node_shapes import AgentShape, ClusterShape
    from holdfast.config.controller import ControllerSettings
    from holdfast.doctor import Advice
    from holdfast.doctor.facts import ControllerFacts
    from holdfast.model.access.tokens import TokenRow
    from holdfast.model.agents.report import AgentView
    from holdfast.model.parts import PartState
    from holdfast.store import SqlStore

ROLES = ("agent", "user", "viewer", "operator")


def controller(config: Config = DEFAULT_PATH) -> None:
    """Run the controller: API, control loop, decisions. It holds no Slurm, AWS or root rights."""
    from holdfast.head.controller_main import run  # noqa: PLC0415

    raise typer.Exit(run(config))


def actor(config: Config = DEFAULT_PATH) -> None:
    """Run the actor: carries out what was decided. It accepts no connections."""
    from holdfast.head.actor_main import run  # noqa: PLC0415

    raise typer.Exit(run(config))


def agent() -> None:
    """Run the agent of this node. `holdfast agent --help` has its options."""
    raise Usage("run it as `holdfast agent`")


def check(
    path: Annotated[Path, typer.Argument(help="The file.", envvar="HOLDFAST_CONFIG", dir_okay=False)] = DEFAULT_PATH,
) -> None:
    """Read controller.toml and say what is wrong with it, or what it changes."""
    from holdfast.clock import SystemClock  # noqa: PLC0415
    from holdfast.config import limits  # noqa: PLC0415
    from holdfast.config.controller import load  # noqa: PLC0415
    from holdfast.head.notify import owner_address, places_of, wrong_addresses  # noqa: PLC0415
    from holdfast.model.errors import ConfigError  # noqa: PLC0415
    from holdfast.store.engines import shown_url  # noqa: PLC0415

    settings = load(path)
    places = places_of(settings.notify, settings.path.parent, SystemClock())
    to_owner = owner_address(settings.notify.owners, settings.path.parent, SystemClock())
    anyone = to_owner("user") if to_owner is not None else None
    addresses = [*(place.address for place in places), *([] if anyone is None else [anyone])]
    wrong = [*wrong_addresses(addresses), *_missing_here(settings)]
    if wrong:
        raise ConfigError(f"{path}: {'; '.join(wrong)}")
    line(
        f"{path}: good; mode {settings.policy.mode}, provider {settings.provider}, store {shown_url(settings.store.url)}"
    )
    for doubt in limits.doubts(settings.policy):
        line(f"  warning: {doubt}")
    for key, value in settings.profile_changes.items():
        line(f"  profile {settings.profile}: {key} = {value}")


def _missing_here(settings: ControllerSettings) -> Iterator[str]:
    """What the file names and this machine, the head node by what the verb is for, does not have."""
    from holdfast.model.errors import ConfigError  # noqa: PLC0415
    from holdfast.providers.command.settings import CommandSettings  # noqa: PLC0415
    from holdfast.store.engines import parse_url  # noqa: PLC0415

    provider = settings.provider_settings
    if isinstance(provider, CommandSettings):
        script = Path(provider.command[0])
        if not script.exists():
            yield f"provider.command: {script} does not exist on this machine"
        elif not script.is_file() or not os.access(script, os.X_OK):
            yield f"provider.command: {script} cannot be executed: chmod +x"
    try:
        parse_url(settings.store.url)
    except ConfigError as error:
        yield str(error)


def example(what: Annotated[str, typer.Argument(help="controller or agent.")] = "controller") -> None:
    """Print a commented file with every setting at its default."""
    from holdfast.config import agent as agent_config  # noqa: PLC0415
    from holdfast.config.example import example as controller_example  # noqa: PLC0415

    makers = {"controller": controller_example, "agent": agent_config.example}
    if what not in makers:
        raise Usage(f"there is an example for: {', '.join(makers)}; not for {what!r}")
    typer.echo(makers[what](), nl=False)


def token_create(
    role: Annotated[str, typer.Argument(help="agent, user, viewer or operator.")],
    subject: Annotated[str, typer.Argument(help="Its node, its numeric uid, or a name for the record.")],
    config: Config = DEFAULT_PATH,
    days: Annotated[
        float | None,
        typer.Option(min=0.001, help="Days until it expires; default 90, never for an agent's.", show_default=False),
    ] = None,
    never_ends: Annotated[bool, typer.Option("--never-ends", help="It has no end, whatever its role.")] = False,
) -> None:
    """Make a token and print it, once. Only its hash is kept. Once a node uses a newer token, each older one of it ends when it was
    not used for ten minutes."""
    from holdfast.api.callers.auth import hash_token  # noqa: PLC0415
    from holdfast.model.access.tokens import end_of  # noqa: PLC0415

    if role not in ROLES:
        raise Usage(f"{role!r} is none of {', '.join(ROLES)}")
    if role == "user" and not subject.isdigit():
        raise Usage(f"a user's token is bound to a numeric uid, not to {subject!r}; `id -u NAME` prints it")
    if days is not None and never_ends:
        raise Usage("give --days or --never-ends, not both")
    now = datetime.now(UTC)
    token = secrets.token_urlsafe(32)
    ends_at = end_of(role, now, days, never=never_ends)
    with _Store(config) as store:
        store.add_token(role, subject, hash_token(token), now, ends_at)
    typer.echo(token)


def token_list(config: Config = DEFAULT_PATH, as_data: Json = False) -> None:
    """Tokens by the beginning of their hash, with their end, their last use (an hour behind at most), and what is to be seen to: a node's
    that is old (180 days), unused for 30 days, an end within 14 days, a person's without an end."""
    from holdfast.model.access.tokens import marks  # noqa: PLC0415

    with _Store(config) as store:
        rows = store.tokens()
    now = datetime.now(UTC)
    if as_data:
        as_json([_token_data(row, now) for row in rows])
        return
    shown = [
        (
            row.hash[:12],
            row.role,
            row.subject,
            moment(row.created_at),
            moment(row.expires_at) or "never",
            _last_use(row),
            ", ".join((_token_state(row, now), *marks(row, now))),
        )
        for row in rows
    ]
    columns = ("HASH", "ROLE", "SUBJECT", "MADE (UTC)", "ENDS (UTC)", "LAST USED (UTC)", "STATE")
    table("", columns, shown, "no tokens; `holdfast token create` makes one")


def _token_data(row: TokenRow, now: datetime) -> dict[str, object]:
    from holdfast.model.access.tokens import marks  # noqa: PLC0415

    fields = {k: str(v) if isinstance(v, datetime) else v for k, v in dataclasses.asdict(row).items()}
    return {**fields, "state": _token_state(row, now), "marks": list(marks(row, now))}


def _token_state(row: TokenRow, now: datetime) -> str:
    return "valid" if row.valid(now) else "revoked" if row.revoked else "ended"


def _last_use(row: TokenRow) -> str:
    """Of a token that is older than the record of its use, since when there is one."""
    if row.last_used_at is None and row.recorded_since is not None:
        return f"not since {moment(row.recorded_since)}"
    return moment(row.last_used_at) or "never"


def token_allow(
    node: Annotated[str, typer.Argument(help="Slurm's name of the node.")],
    config: Config = DEFAULT_PATH,
    minutes: Annotated[float, typer.Option(min=1, max=1440, help="How long it stays so.")] = 60,
) -> None:
    """Let one machine of a node enrol once more, or for the first time where Holdfast knows no machine of the node (`[enrolment]`)."""
    if not re.fullmatch(r"[A-Za-z0-9._-]+", node):
        raise Usage(f"{node!r} is no node's name; give one node")
    now = datetime.now(UTC)
    with _Store(config) as store:
        store.allow_enrolment(node, now + timedelta(minutes=minutes))
    line(f"one machine of {node} may enrol within {minutes:g} minutes")


def token_revoke(
    beginning: Annotated[str, typer.Argument(help="The beginning of its hash, as `token list` shows it.")],
    config: Config = DEFAULT_PATH,
) -> None:
    """Make a token void. A running controller notices within a minute."""
    with _Store(config) as store:
        found = [r for r in store.tokens() if r.hash.startswith(beginning)] if len(beginning) >= 6 else []
        if len(found) != 1:
            raise Usage(
                f"{len(found)} tokens begin with {beginning!r}; give at least 6 digits of one in `holdfast token list`"
            )
        store.revoke_token(found[0].hash)
    line(f"revoked the {found[0].role} token of {found[0].subject}")


def backup(
    target: Annotated[Path, typer.Argument(help="File to be written; it must not exist.")],
    config: Config = DEFAULT_PATH,
) -> None:
    """Copy the SQLite database while the controller runs. For PostgreSQL use pg_dump."""
    with _Store(config) as store:
        store.backup(target)
    line(f"wrote {target}")


def doctor(config: Config = DEFAULT_PATH, as_data: Json = False) -> None:
    """List what would prevent or delay recovery, with the line that fixes each. Exit status 1 when one is an error."""
    from holdfast.config.controller import load  # noqa: PLC0415
    from holdfast.doctor import exit_code  # noqa: PLC0415

    settings = load(config)
    with working("reading Slurm, the provider, the store and the agents"):
        advice = _diagnosis(settings)
    if as_data:
        as_json([dataclasses.asdict(a) for a in advice])
    else:
        table(
            "",
            ("LEVEL", "PROBLEM", "CONSEQUENCE", "FIX"),
            [(a.level, a.what, a.why, a.fix_line) for a in advice],
            "no problems found",
        )
    raise typer.Exit(exit_code(advice))


def _diagnosis(settings: ControllerSettings) -> list[Advice]:
    from holdfast.doctor import run, site_of  # noqa: PLC0415
    from holdfast.doctor.facts import Aside  # noqa: PLC0415
    from holdfast.head.wiring import provider_of, scheduler_of  # noqa: PLC0415

    provider = provider_of(settings) if settings.provider != "none" else None
    shown, not_asked, no_answer = _cluster()
    rows = Aside(sum(shown.unreadable.values()), shown.unreadable_since) if shown is not None else Aside()
    untaken = shown.untaken if shown is not None else None
    controller = _controller(shown) if shown is not None else None
    site, agents = site_of(settings, provider), _agents(shown)
    tokens = _tokens(settings)
    return run(
        scheduler_of(settings),
        site,
        agents,
        rows=rows,
        untaken=untaken,
        controller=controller,
        tokens=tokens,
        not_asked=not_asked,
        no_answer=no_answer,
    )


def _tokens(settings: ControllerSettings) -> tuple[TokenRow, ...]:
    """None of a store that this user cannot read, or whose schema is another release's."""
    from holdfast.model.errors import ConfigError  # noqa: PLC0415
    from holdfast.store import read_tokens  # noqa: PLC0415

    try:
        return read_tokens(settings.store.url)
    except (ConfigError, OutsideError):
        return ()


def _cluster() -> tuple[ClusterShape | None, str, str]:
    """The cluster as the controller shows it, or why it could not be asked (no token, no right), or why it did not answer."""
    from holdfast.api.answers.node_shapes import ClusterShape  # noqa: PLC0415
    from holdfast.api.client import ApiClient  # noqa: PLC0415
    from holdfast.cli.common.answers import read  # noqa: PLC0415

    try:
        return read(ClusterShape, ApiClient().get("/v1/nodes")), "", ""
    except Usage as error:
        return None, str(error), ""
    except OutsideError as error:
        return None, "", str(error)


def _agents(shown: ClusterShape | None) -> dict[str, tuple[AgentView, ...]] | None:
    """Agents as the controller hears them; None when it did not answer."""
    if shown is None:
        return None
    nodes = shown.nodes
    return {n.name: tuple(_view(n.name, a, a.last_heard) for a in n.agents if a.last_heard is not None) for n in nodes}


def _controller(shown: ClusterShape) -> ControllerFacts:
    from holdfast.doctor.facts import ControllerFacts  # noqa: PLC0415
    from holdfast.model.incidents.incident import IncidentKind  # noqa: PLC0415

    held = (n.name for n in shown.nodes if any(i.kind == IncidentKind.UNREADABLE for i in n.incidents))
    return ControllerFacts(tuple(shown.failing), tuple(shown.set_aside), tuple(held), _parts())


def _parts() -> tuple[PartState, ...]:
    """Those that this release knows; none where the controller, of an older release, does not answer the question."""
    from holdfast.api.answers.status_shapes import StatusShape  # noqa: PLC0415
    from holdfast.api.client import ApiClient  # noqa: PLC0415
    from holdfast.cli.common.answers import read  # noqa: PLC0415
    from holdfast.model.parts import Condition, PartName, PartState  # noqa: PLC0415

    try:
        shown = read(StatusShape, ApiClient().get("/v1/status"))
    except (Usage, OutsideError):
        return ()
    return tuple(
        PartState(p.name, p.condition, p.text, p.next_step, p.ready)
        for p in shown.parts
        if isinstance(p.name, PartName) and isinstance(p.condition, Condition)
    )


def _view(node: str, shown: AgentShape, heard: datetime) -> AgentView:
    from holdfast.model.agents.report import AgentView  # noqa: PLC0415

    return AgentView(
        node=node,
        instance_id=shown.instance_id,
        boot_id=shown.boot_id,
        last_heard=heard,
        first_heard=heard,
        heartbeat_interval_s=shown.heartbeat_interval_s,
        agent_version=shown.version,
        clock_offset_s=shown.clock_offset_s,
        all_ok=shown.all_ok,
        authorities=tuple(shown.authorities) if shown.authorities is not None else None,
        gres_problem=shown.gres_problem,
        set_aside=shown.set_aside,
        set_aside_since=shown.set_aside_since,
        checks_version=shown.checks_version,
        checks_refused=shown.checks_refused,
    )


class _Store:
    """The site's store for the time of one verb."""

    def __init__(self, config: Path) -> None:
        self._config = config
        self._store: SqlStore | None = None

    def __enter__(self) -> SqlStore:
        from holdfast.config.controller import load  # noqa: PLC0415
        from holdfast.store import open_store  # noqa: PLC0415

        self._store = open_store(load(self._config).store.url)
        return self._store

    def __exit__(self, *_: object) -> None:
        if self._store is not None:
            self._store.close()
