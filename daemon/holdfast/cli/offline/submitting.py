"""``holdfast submit`` and the entry of ``holdfast run``: what starts an elastic job."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.common.options import Json
from holdfast.cli.common.show import as_json, line
from holdfast.launcher import arrays
from holdfast.launcher.arrays import ArrayRequest
from holdfast.launcher.place import WrongUse
from holdfast.model.elastic_jobs.elastic import SPARES_MAX, ElasticSpec
from holdfast.model.elastic_jobs.sizes import BadSizes, Sizes, parse_sizes
from holdfast.model.errors import HoldfastError, Rejected, Unavailable, Usage

VERBATIM = {"ignore_unknown_options": True, "allow_interspersed_args": False}
"""What is not ours is sbatch's."""
_SBATCH_S = 120.0
_BASE = "Of the groups 0 … MIN-1: where nothing preempts."
_FLEXIBLE = "Of the other groups: where Slurm may preempt."


def launch() -> None:
    """Start the processes of one replica group, or any command, under srun. `holdfast run --help` has its options."""
    raise Usage("run it as `holdfast run`")


def submit(
    typed: Annotated[
        list[str],
        typer.Argument(
            metavar="[SBATCH OPTION …] SCRIPT [ARGUMENT …]", help="As for sbatch. Options of Holdfast come first."
        ),
    ],
    elastic: Annotated[
        str,
        typer.Option(metavar="MIN:MAX[:STEP|:SIZE,SIZE]", help="Legal numbers of replica groups.", show_default=False),
    ],
    spares: Annotated[int, typer.Option(min=0, max=SPARES_MAX, help="Warm spares beyond the largest size.")] = 0,
    base_partition: Annotated[str | None, typer.Option(help=_BASE, show_default=False)] = None,
    flex_partition: Annotated[str | None, typer.Option(help=_FLEXIBLE, show_default=False)] = None,
    base_qos: Annotated[str | None, typer.Option(help=_BASE, show_default=False)] = None,
    flex_qos: Annotated[str | None, typer.Option(help=_FLEXIBLE, show_default=False)] = None,
    batch: Annotated[
        int | None, typer.Option(min=1, metavar="SAMPLES", help="Global batch, to be checked.", show_default=False)
    ] = None,
    micro: Annotated[
        int | None, typer.Option(min=1, metavar="SAMPLES", help="Micro-batch, to be checked.", show_default=False)
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the two commands instead.")] = False,
    as_data: Json = False,
) -> None:
    """Submit an elastic job: MIN groups that nothing preempts, and the others, which give way, as two job arrays."""
    sizes = _sizes(elastic)
    _check_batch(sizes, batch, micro)
    where = _places(typed, {"partition": (base_partition, flex_partition), "qos": (base_qos, flex_qos)})
    request = _request(ElasticSpec(sizes, spares), typed, *where)
    if dry_run:
        for each in request.shell_lines:
            typer.echo(each)
        return
    if where[0] == where[1]:
        sys.stderr.write(
            "holdfast: both arrays have the same partition and QOS: nothing keeps the base groups from giving way\n"
        )
    base_id, flexible_id = _submit(request)
    if as_data:
        as_json({"base": base_id, "flexible": flexible_id, "sizes": list(sizes.legal), "spares": spares})
        return
    line(f"base array {base_id}: groups {arrays.shown(request.spec.base_indices)}")
    if flexible_id is not None:
        of_them = f", {spares} of them warm spare{'s' * (spares > 1)}" if spares else ""
        line(f"flexible array {flexible_id}: groups {arrays.shown(request.spec.flexible_indices)}{of_them}")


def _sizes(text: str) -> Sizes:
    try:
        return parse_sizes(text)
    except BadSizes as error:
        raise Usage(f"--elastic {error}") from error


def _check_batch(sizes: Sizes, batch: int | None, micro: int | None) -> None:
    if (batch is None) != (micro is None):
        raise Usage("--batch and --micro go together")
    if batch is not None and micro is not None:
        try:
            arrays.check_batch(sizes, batch, micro)
        except WrongUse as error:
            raise Usage(str(error)) from error


def _places(
    typed: list[str], given: dict[str, tuple[str | None, str | None]]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    options = arrays.split(typed)[0]
    for name, (base, flexible) in given.items():
        if (base is None) != (flexible is None):
            raise Usage(f"--base-{name} and --flex-{name} go together")
        if base is not None and arrays.named(options, name, name[0]):
            raise Usage(f"--{name} would put both arrays into one {name}: --base-{name} and --flex-{name} are enough")
    if arrays.named(options, "array", "a"):
        raise Usage("--array is not yours to choose: the elements of an elastic job's arrays are its groups")
    base_options, flexible_options = (
        tuple(f"--{name}={pair[which]}" for name, pair in given.items() if pair[which] is not None) for which in (0, 1)
    )
    return base_options, flexible_options


def _request(spec: ElasticSpec, typed: list[str], base: tuple[str, ...], flexible: tuple[str, ...]) -> ArrayRequest:
    options, script = arrays.split(typed)
    if not script and not arrays.named(options, "wrap", "-"):
        raise Usage("which script? see holdfast submit --help")
    options, comment = arrays.take_comment(options)
    words = arrays.foreign_words((_script_comment(script[0]) if script else "", comment))
    return ArrayRequest(spec, base, flexible, (*options, *script), words)


def _script_comment(path: str) -> str:
    """Of a script that cannot be read sbatch says so itself."""
    try:
        return arrays.script_comment(Path(path).read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return ""


def _submit(request: ArrayRequest) -> tuple[int, int | None]:
    """Both array ids. Raises Unavailable or Rejected, with nothing left in the queue, or with the words what is."""
    base_id = _sbatch(request.base)
    flexible = request.flexible(base_id)
    if flexible is None:
        return base_id, None
    try:
        return base_id, _sbatch(flexible)
    except HoldfastError as error:
        try:
            _run(["scancel", str(base_id)])
        except HoldfastError as second:
            raise type(error)(f"the flexible array: {error}; array {base_id} is still there: {second}") from error
        raise type(error)(f"the flexible array: {error}; array {base_id} is cancelled") from error


def _sbatch(argv: list[str]) -> int:
    answer = _run(argv).strip().partition(";")[0]
    if not answer.isdigit():
        raise Unavailable(f"sbatch did not answer with a job id: {answer[:100]!r}")
    return int(answer)


def _run(argv: list[str]) -> str:
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=_SBATCH_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"{argv[0]} did not answer within {_SBATCH_S:g} s") from error
    except OSError as error:
        raise Unavailable(f"{argv[0]} cannot be run: {error.strerror}") from error
    if done.returncode:
        said = (done.stderr or done.stdout).decode(errors="replace")
        lines = (" ".join(text.removeprefix(f"{argv[0]}: error: ").split()) for text in said.splitlines())
        raise Rejected(f"{argv[0]}: {'; '.join(filter(None, lines))}")
    return done.stdout.decode(errors="replace")
