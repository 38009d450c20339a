"""``holdfast tls``: the cluster's own authority, the controllers' certificate, and who trusts them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.common.options import Json
from holdfast.cli.common.problems import Exit
from holdfast.cli.common.show import as_json, line, table
from holdfast.model.errors import OutsideError, Rejected, Usage

if TYPE_CHECKING:
    from holdfast.api.answers.node_shapes import AgentShape
    from holdfast.tls.folder import TlsFolder
    from holdfast.tls.plan import Plan, TlsState, TlsStep, Wishes
    from holdfast.tls.survey import TlsSurvey

Dir = Annotated[Path, typer.Option("--dir", help="Folder of ca.pem, tls.pem, tls.key and ca/.", file_okay=False)]
Names = Annotated[
    list[str] | None,
    typer.Option(
        "--name", help="Host name or address by which nodes call a controller; repeat it for each.", show_default=False
    ),
]
Days = Annotated[int, typer.Option("--days", min=1, max=3650, help="Life of the certificate in days.")]
_FOLDER = Path("/etc/holdfast")
_DAYS, _CA_DAYS = 397, 3650
NOTICE = timedelta(days=30)
"""A certificate that ends sooner is a problem worth an exit status."""


def init(
    name: Names = None,
    folder: Dir = _FOLDER,
    days: Days = _DAYS,
    ca_days: Annotated[
        int, typer.Option("--ca-days", min=30, max=7300, help="Life of the authority in days.")
    ] = _CA_DAYS,
) -> None:
    """Make an authority, a key and a certificate for the controllers; what is there and good stays as it is."""
    from holdfast.tls.plan import plan_init  # noqa: PLC0415

    wishes = _wishes(name)
    _carry_out(folder, lambda state: plan_init(state, wishes, datetime.now(UTC)), days, ca_days)


def renew(
    name: Names = None,
    folder: Dir = _FOLDER,
    days: Days = _DAYS,
    new_key: Annotated[bool, typer.Option("--new-key", help="Replace the controllers' private key too.")] = False,
    within: Annotated[
        int | None,
        typer.Option(
            "--within", min=1, help="Only if it ends within this many days (for a timer).", show_default=False
        ),
    ] = None,
    new_ca: Annotated[
        bool, typer.Option("--new-ca", help="Make a new authority; agents trust the old and the new one.")
    ] = False,
    retire_old_ca: Annotated[
        bool, typer.Option("--retire-old-ca", help="End that overlap: the old authority is trusted no longer.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Retire the old authority without asking the controller who needs it.")
    ] = False,
) -> None:
    """Issue a new certificate from the same authority, or replace the authority without an interruption."""
    from holdfast.tls.plan import plan_renew, plan_replace, plan_retire  # noqa: PLC0415

    if new_ca and retire_old_ca:
        raise Usage("--new-ca begins an overlap and --retire-old-ca ends it: give one of them")
    wishes = _wishes(name, new_key=new_key, within=within)
    if new_ca:
        _carry_out(folder, lambda state: plan_replace(state, wishes), days)
    elif retire_old_ca:
        agents = None if force else _authorities_of_agents()
        _carry_out(folder, lambda state: plan_retire(state, agents, force=force), days)
    else:
        _carry_out(folder, lambda state: plan_renew(state, wishes, datetime.now(UTC)), days)


def show(folder: Dir = _FOLDER, as_data: Json = False) -> None:
    """Show the certificates, until when they are good, and which agents trust them. Exit status 1 on a problem."""
    from holdfast.tls.folder import TlsFolder  # noqa: PLC0415
    from holdfast.tls.survey import survey  # noqa: PLC0415

    place = TlsFolder(folder)
    found = survey(place.certificate, place.trust)
    agents = _authorities_of_agents()
    problems = _problems(found, datetime.now(UTC))
    if as_data:
        as_json({**_plain(found), "problems": problems, "agents": agents})
    else:
        _show_certificates(found, place)
        _show_agents(found, agents)
        for problem in problems:
            line(f"problem: {problem}")
    raise typer.Exit(Exit.PROBLEM if problems else Exit.OK)


def _wishes(names: list[str] | None, *, new_key: bool = False, within: int | None = None) -> Wishes:
    from holdfast.tls.folder import found_names  # noqa: PLC0415
    from holdfast.tls.plan import Wishes  # noqa: PLC0415

    due = timedelta(days=within) if within is not None else None
    return Wishes(tuple(names or ()), found_names(), new_key, due)


def _carry_out(folder: Path, decide: Callable[[TlsState], Plan], days: int, ca_days: int = _CA_DAYS) -> None:
    """Read what is there, decide, do it and say it; one process at a time."""
    from holdfast.tls.folder import Maker, TlsFolder, read_state, service_owner  # noqa: PLC0415
    from holdfast.tls.plan import Keep, Refuse  # noqa: PLC0415

    place = TlsFolder(folder)
    with place.alone():
        plan = decide(read_state(place))
        if isinstance(plan, Refuse):
            raise Rejected(plan.why)
        if isinstance(plan, Keep):
            line(f"nothing to do: {plan.why}")
            return
        maker = Maker(place, datetime.now(UTC), days, ca_days, service_owner())
        for step in plan:
            line(maker.do(step))
    for hint in _next_steps(place, plan):
        line(hint)


def _next_steps(place: TlsFolder, steps: Sequence[TlsStep]) -> list[str]:
    from holdfast.tls.plan import Issue, MakeAuthority  # noqa: PLC0415

    first = any(isinstance(step, MakeAuthority) for step in steps)
    hints = [f'controller.toml, [server]: tls_cert = "{place.certificate}", tls_key = "{place.key}"'] if first else []
    hints.append(f"next: systemctl {'restart' if first else 'reload'} holdfast-controller")
    if any(not isinstance(step, Issue) for step in steps):
        hints.append(f"then: copy {place.trust} to each node; agents read it when it changes")
    return hints


def _authorities_of_agents() -> dict[str, tuple[str, ...] | None] | None:
    """Node → the authorities that its agents report (None: it does not say); None: the controller was not asked."""
    from holdfast.api.answers.node_shapes import ClusterShape  # noqa: PLC0415
    from holdfast.api.client import ApiClient  # noqa: PLC0415
    from holdfast.cli.common.answers import read  # noqa: PLC0415

    try:
        nodes = read(ClusterShape, ApiClient().get("/v1/nodes")).nodes
    except (Usage, OutsideError):
        return None
    heard = {n.name: [a for a in n.agents if a.last_heard is not None] for n in nodes}
    return {name: _common(agents) for name, agents in heard.items() if agents}


def _common(agents: list[AgentShape]) -> tuple[str, ...] | None:
    """What every agent of the node trusts."""
    told = [set(agent.authorities) for agent in agents if agent.authorities is not None]
    return tuple(sorted(set.intersection(*told))) if told and len(told) == len(agents) else None


def _problems(found: TlsSurvey, now: datetime) -> list[str]:
    problems = [found.problem] if found.problem else []
    for one in (*([found.served] if found.served else []), *found.trusted):
        if one.ends_at <= now:
            problems.append(f"{one.subject} has ended on {one.ends_at:%Y-%m-%d}: every agent refuses it")
        elif one.ends_at - now < NOTICE:
            problems.append(f"{one.subject} ends on {one.ends_at:%Y-%m-%d}: holdfast tls renew")
    return [*problems, *(f"Python 3.13 refuses it: {why}: holdfast tls renew --new-ca" for why in found.refused)]


def _show_certificates(found: TlsSurvey, place: TlsFolder) -> None:
    rows = []
    if found.served is not None:
        one = found.served
        rows.append(
            ("certificate", place.certificate, ", ".join(one.names), f"{one.ends_at:%Y-%m-%d}", one.fingerprint)
        )
    for number, one in enumerate(found.trusted):
        what = "authority" if number == 0 else "old authority"
        rows.append((what, place.trust, one.subject, f"{one.ends_at:%Y-%m-%d}", one.fingerprint))
    table("", ("WHAT", "FILE", "FOR", "UNTIL", "FINGERPRINT"), rows, "no certificates; `holdfast tls init` makes them")


def _show_agents(found: TlsSurvey, agents: Mapping[str, tuple[str, ...] | None] | None) -> None:
    from holdfast.tls.plan import without  # noqa: PLC0415

    if agents is None:
        line(
            "which agents trust them: not known, the controller was not asked (HOLDFAST_URL, HOLDFAST_CA_FILE, a token)"
        )
        return
    for one in found.trusted:
        behind = without(one.fingerprint, agents)
        missing = f"; not, or not known: {', '.join(behind[:8])}" + (" …" if len(behind) > 8 else "") if behind else ""
        line(f"{one.subject}: trusted by {len(agents) - len(behind)} of {len(agents)} agents{missing}")


def _plain(found: TlsSurvey) -> dict[str, object]:
    def text(value: object) -> object:
        if isinstance(value, datetime):
            return value.isoformat()
        if isinstance(value, dict):
            return {key: text(part) for key, part in value.items()}
        return [text(part) for part in value] if isinstance(value, list | tuple) else value

    return {key: text(value) for key, value in dataclasses.asdict(found).items()}
