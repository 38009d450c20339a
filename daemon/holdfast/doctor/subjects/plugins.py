"""Rules about Holdfast's own plug-ins in Slurm: none of them may ever be in the way of a job."""

from __future__ import annotations

import re
from collections.abc import Iterator

from holdfast.doctor.advice import Advice, AdviceLevel
from holdfast.doctor.facts import DoctorFacts, SlurmFacts, SpankLine

_BUILD = "make -C slurm-plugins/spank install PREFIX=/usr/local   # on a machine with this Slurm's headers"
_BARE_DOFILE = re.compile(r"^(?!.*\bpcall\b).*\bdofile\b.*holdfast", re.MULTILINE)


def none_at_all(slurm: SlurmFacts, facts: DoctorFacts) -> Iterator[Advice]:
    seen = facts.plugins
    if not seen.seen or seen.spank or "holdfast" in seen.lua_glue or seen.scripts:
        return
    yield Advice(
        "plugins.none",
        AdviceLevel.HINT,
        f"no plug-in of Holdfast is in Slurm's configuration ({seen.folder})",
        "Users opt in by --comment=holdfast instead of --holdfast, and ask for their checkpoint themselves.",
        f"{seen.folder}/plugstack.conf: optional /usr/local/lib/holdfast/spank_holdfast.so   # docs/slurm-plugins.md",
    )


def spank(slurm: SlurmFacts, facts: DoctorFacts) -> Iterator[Advice]:
    for line in facts.plugins.spank:
        yield from _spank_line(slurm, facts, line)


def _spank_line(slurm: SlurmFacts, facts: DoctorFacts, line: SpankLine) -> Iterator[Advice]:
    where = f"{facts.plugins.folder}/plugstack.conf"
    if line.kind != "optional":
        yield Advice(
            "plugins.spank_required",
            AdviceLevel.ERROR,
            f"plugstack.conf has the plug-in as {line.kind!r}",
            "When it cannot be loaded, as after an upgrade of Slurm, no job starts any more.",
            f"{where}: optional {line.path}",
        )
    if not line.there or not line.readable:
        yield Advice(
            "plugins.spank_missing",
            AdviceLevel.WARNING,
            f"plugstack.conf names {line.path}, which {'cannot be read' if line.there else 'is not there'}",
            "A script with #SBATCH --holdfast is refused, as with any unknown option; jobs start without a resume path.",
            f"chmod 0755 {line.path}" if line.there else _BUILD,
        )
    elif line.release is not None and slurm.release != (0, 0) and line.release != slurm.release:
        built = f"{line.release[0]}.{line.release[1]:02d}"
        yield Advice(
            "plugins.spank_release",
            AdviceLevel.WARNING,
            f"{line.path} was compiled for Slurm {built}, and {slurm.version} runs",
            "Slurm does not load it: scripts with #SBATCH --holdfast are refused; jobs start without a resume path.",
            _BUILD,
        )


def lua(slurm: SlurmFacts, facts: DoctorFacts) -> Iterator[Advice]:
    seen = facts.plugins
    if "holdfast" not in seen.lua_glue:
        return
    where = f"{seen.folder}/job_submit.lua"
    if _BARE_DOFILE.search(seen.lua_glue):
        yield Advice(
            "plugins.lua_unprotected",
            AdviceLevel.ERROR,
            f"{where} loads holdfast.lua without pcall",
            "When that file is missing, the whole script fails to load, and Slurm refuses every submission.",
            f'{where}: local here, holdfast = pcall(dofile, "{seen.lua_module or "…/holdfast.lua"}")',
        )
    if "lua" not in slurm.options("JobSubmitPlugins"):
        yield Advice(
            "plugins.lua_unused",
            AdviceLevel.WARNING,
            f"{where} calls Holdfast, and JobSubmitPlugins has no lua",
            "Opted-in jobs get no requeue by default.",
            f"slurm.conf: JobSubmitPlugins={_joined(slurm.value('JobSubmitPlugins'), 'lua')}",
        )
    if seen.lua_module and not seen.lua_module_there:
        yield Advice(
            "plugins.lua_missing",
            AdviceLevel.WARNING,
            f"{where} names {seen.lua_module}, which is not there or cannot be read",
            "Opted-in jobs are not requeued by default; submissions still work.",
            f"install -D -m 0644 slurm-plugins/lua/holdfast.lua {seen.lua_module}",
        )
    if seen.lemons_not_writable:
        yield Advice(
            "plugins.lua_lemons",
            AdviceLevel.WARNING,
            f"SlurmUser may not write to {seen.lemons_not_writable}",
            "slurmctld opens it only in the way that waits for nothing, which needs that right: large jobs are not kept off lemons.",
            "give its folder slurmctld's group and set-gid: docs/slurm-plugins.md#the-lua-module",
        )


def scripts(_: SlurmFacts, facts: DoctorFacts) -> Iterator[Advice]:
    for script in facts.plugins.scripts:
        if not script.there or not script.executable:
            yield Advice(
                "plugins.prolog_missing",
                AdviceLevel.WARNING,
                f"{script.key}={script.path} {'is not executable' if script.there else 'is not there'} on this machine",
                f"A node on which it is so drains at its next job: Slurm takes a {script.key} that cannot be run for a failed one.",
                f"install -D -m 0755 slurm-plugins/{script.key.lower()}.sh {script.path}   # on every node",
            )
    keys = {script.key for script in facts.plugins.scripts}
    if keys == {"Prolog"} or keys == {"Epilog"}:
        (key,) = keys
        other = "Epilog" if key == "Prolog" else "Prolog"
        yield Advice(
            "plugins.prolog_half",
            AdviceLevel.HINT,
            f"{key} asks the agent for fatal findings, {other} does not",
            "While the controller is down, a node that fails between two jobs takes the next one."
            if other == "Prolog"
            else "While the controller is down, a node that failed under a job stays open until its next Prolog.",
            f"slurm.conf: {other}=/usr/local/share/holdfast/slurm-plugins/{other.lower()}.sh",
        )


def _joined(old: str, new: str) -> str:
    return f"{old},{new}" if old else new


RULES = (none_at_all, spank, lua, scripts)
