"""``host.credential``: munge can encode a credential and decode it again. A munged that hangs, or whose key is gone, still listens."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast_checks.checks.host_munge import gather as munge_is_used
from holdfast_checks.per_host import bad, good, unknown
from holdfast_checks.probes.child import CHILDREN, Finished, Hung
from holdfast_checks.registry import Check, Context, Cost, Need, NotApplicable, NotGathered, Threshold
from holdfast_checks.result import Remedy, Result, Severity

CHECK_ID = "host.credential"
K, N = 2, 2
DEADLINE_S = 4.0
_MOST_BYTES = 4096


@dataclass(frozen=True, slots=True)
class HostCredentialFacts:
    """How the two commands ended."""

    made: Finished | Hung
    read: Finished | Hung | None
    """None: there was nothing to read."""


def gather(context: Context) -> HostCredentialFacts:
    """Raises NotApplicable where munge is not used, does not listen, or has no commands."""
    settings = context.settings.host
    if not munge_is_used(context).listens:
        raise NotApplicable("munged does not run, see host.munge")
    try:
        made = CHILDREN.run("munge", [settings.munge, "-n"], DEADLINE_S, max_bytes=_MOST_BYTES)
        if isinstance(made, Hung) or made.status or not made.out:
            return HostCredentialFacts(made, None)
        return HostCredentialFacts(made, CHILDREN.run("unmunge", [settings.unmunge], DEADLINE_S, stdin=made.out))
    except FileNotFoundError as error:
        raise NotApplicable(f"{error.filename} is not installed") from error
    except ValueError as error:
        raise NotGathered(f"munge said more than a credential: {error}") from error


def judge(facts: HostCredentialFacts) -> tuple[Result, ...]:
    """A credential that its own munged refuses is refused everywhere."""
    for what, done in (("munge", facts.made), ("unmunge", facts.read)):
        if isinstance(done, Hung):
            summary = f"{what} has not answered within {DEADLINE_S:g} s"
            return (bad(CHECK_ID, "hang", Severity.DEGRADED, Remedy.REBOOT, summary, pid=done.pid),)
        if done is not None and done.status:
            return (bad(CHECK_ID, "refused", Severity.DEGRADED, Remedy.HUMAN, f"{what}: {done.complaint}"),)
    if facts.read is None:
        return (unknown(CHECK_ID, "munge gave no credential and no error"),)
    return (good(CHECK_ID, "munge reads its own credential"),)


CHECK = Check(
    id=CHECK_ID,
    title="munge makes credentials and reads them",
    needs=frozenset({Need.HOST, Need.COMMAND}),
    interval_s=900,
    cost=Cost.PASSIVE,
    severity=Severity.DEGRADED,
    remedy=Remedy.HUMAN,
    gather=gather,
    judge=judge,
    place=lambda settings: f"{settings.host.munge} {settings.host.unmunge}",
    hysteresis=(K, N),
    deadline_s=3 * DEADLINE_S,
    thresholds=(
        Threshold("answer", DEADLINE_S, "s", "our choice: munge answers in milliseconds"),
        Threshold("bad samples", K, "samples", "a restart of the service takes less than one interval"),
    ),
)
