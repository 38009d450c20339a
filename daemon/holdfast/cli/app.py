"""The tree of verbs."""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from holdfast import __version__
from holdfast.cli import login
from holdfast.cli.common.live import watched, with_seconds
from holdfast.cli.common.problems import Exit, said, status_of
from holdfast.cli.common.show import printable
from holdfast.cli.nodes import checks, lemons, node, node_sheet, policies, spares
from holdfast.cli.offline import checkpoints, local, plan, practice, restoring, runbooks, schema, submitting, tls
from holdfast.cli.orders import budgets, maintaining, operating, proposing, suppressing
from holdfast.cli.views import audit, night, notices, reading, status, top, why
from holdfast.model.errors import HoldfastError

HELP = "Holdfast: a Slurm GPU cluster that heals itself."
EPILOG = (
    "Exit status: 0 done; 1 a problem was found or it was refused; 2 wrong use, configuration or rights; "
    "3 the controller, the database or Slurm does not answer."
)

app = typer.Typer(
    name="holdfast", help=HELP, epilog=EPILOG, no_args_is_help=True, pretty_exceptions_enable=False, add_completion=True
)


def _group(name: str, text: str, panel: str, *, alone: bool = False) -> typer.Typer:
    """``alone``: its name is a verb too, which is its callback."""
    group = typer.Typer(help=text, no_args_is_help=not alone, pretty_exceptions_enable=False)
    app.add_typer(group, name=name, rich_help_panel=panel)
    return group


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


for look in (
    status.status,
    night.night,
    spares.nodes,
    spares.spares,
    lemons.lemons,
    reading.incidents,
    proposing.proposals,
    reading.jobs,
    why.why,
    notices.notices,
    reading.metrics,
    night.saved,
    audit.audit,
):
    app.command(rich_help_panel="Look")(watched(look))
_checks = _group("checks", checks.checks.__doc__ or "", "Look", alone=True)
_checks.callback(invoke_without_command=True)(watched(checks.checks))
_checks.command("what-if")(policies.what_if)
_policy = _group("policy", "The policy of checks: what is in force where, and what a file would change.", "Look")
_policy.command()(watched(policies.show))
_policy.command()(policies.diff)
app.command(rich_help_panel="Look")(top.top)
app.command(rich_help_panel="Look")(login.login)
app.command(rich_help_panel="Look")(runbooks.runbook)
app.command(rich_help_panel="Look")(schema.schema)
app.command(rich_help_panel="Look")(plan.plan)
_incident = _group("incident", "One incident: its timeline, and what to do with it.", "Look")
_incident.command()(watched(reading.show))
_incident.command()(reading.bundle)
for word in (operating.ack, operating.close, operating.retry):
    _incident.command()(word)
_node = _group("node", "One node: its history and health, and what operators note and order of it.", "Look")
for of_node in (node.history, node.health, node_sheet.sheet, node.note, node.drain, node.release, node.replace):
    _node.command()(of_node)
for order in (operating.pause, operating.resume):
    app.command(rich_help_panel="Operate")(order)
app.command(rich_help_panel="Operate")(operating.release)
app.command(rich_help_panel="Operate")(maintaining.maintain)
for mute in (suppressing.suppress, watched(suppressing.suppressions), suppressing.unsuppress):
    app.command(rich_help_panel="Operate")(mute)
for verdict in (proposing.accept, proposing.dismiss, proposing.snooze, proposing.reopen):
    app.command(rich_help_panel="Operate")(verdict)
_budget = _group("budget", "Machines that may still be ended, cycled and bought.", "Operate")
_budget.command()(watched(budgets.show))
_budget.command()(budgets.extend)
for daemon in (local.controller, local.actor, local.agent):
    app.command(rich_help_panel="Daemons")(daemon)
for chore in (local.doctor, local.backup, restoring.restore):
    app.command(rich_help_panel="Set up")(chore)
_config = _group("config", "The controller's settings.", "Set up")
_config.command()(local.check)
_config.command()(local.example)
_notify = _group("notify", "Messages to people.", "Set up")
_notify.command("test")(notices.send_test)
_token = _group("token", "Bearer tokens of the API.", "Set up")
_token.command("create")(local.token_create)
_token.command("list")(local.token_list)
_token.command("allow")(local.token_allow)
_token.command("revoke")(local.token_revoke)
_tls = _group("tls", "The cluster's own certificate authority and the controllers' certificate.", "Set up")
for paper in (tls.init, tls.renew, tls.show):
    _tls.command()(paper)
app.command(rich_help_panel="In a job", context_settings=submitting.VERBATIM)(submitting.submit)
app.command("run", rich_help_panel="In a job")(submitting.launch)
_checkpoint = _group("checkpoint", "Checkpoints of a job; works without the controller.", "In a job")
_checkpoint.command()(checkpoints.latest)
_checkpoint.command("list")(checkpoints.listing)
_checkpoint.command()(checkpoints.verify)
_checkpoint.command()(checkpoints.register)
_practice = _group("practice", "A practice cluster on this machine: real Slurm, emulated GPUs.", "Try it")
for part in (practice.up, practice.env, watched(practice.status), practice.inject, practice.faults, practice.down):
    _practice.command()(part)


@functools.cache
def command() -> Any:
    """The parser of all verbs, built once a process: building it takes longer than most verbs."""
    return typer.main.get_command(app)


def run(argv: Sequence[str]) -> int:
    """Run one verb; the exit status. An expected error is one line on standard error."""
    logging.basicConfig(level=logging.ERROR, format="%(levelname)s %(message)s")
    try:
        status = command()(
            args=with_seconds(argv) if _watches(argv) else list(argv), prog_name="holdfast", standalone_mode=False
        )
    except HoldfastError as error:
        sys.stderr.write(f"holdfast: {printable(said(error))}\n")
        return status_of(error)
    except WRONG_USE as error:
        return _wrong_use(error)
    except BrokenPipeError:
        sys.stderr.close()
        return Exit.OK
    except typer.Abort:
        return INTERRUPTED
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else Exit.USAGE
    return status if isinstance(status, int) else Exit.OK


def _watches(argv: Sequence[str]) -> bool:
    """Whether its ``--watch`` is ours: what a job is started with is not touched."""
    return bool(argv) and argv[0] not in ("submit", "run", "checkpoint", "agent")


WRONG_USE: type[Exception] = typer.BadParameter.__mro__[1]
"""The parser's error, wherever this typer has it from (click, or its bundled copy)."""
INTERRUPTED = 130


def _wrong_use(error: Any) -> int:
    path = error.ctx.command_path if error.ctx is not None else "holdfast"
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()  # the help itself
    else:
        sys.stderr.write(f"holdfast: {error.format_message().rstrip('.')}; see {path} --help\n")
    return Exit.USAGE
