"""``holdfast practice``: a real Slurm with emulated GPUs on this machine."""

from __future__ import annotations

import dataclasses
import shlex
import sys
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.common.options import Json
from holdfast.cli.common.progress import working
from holdfast.cli.common.show import as_json, counted, line, table
from holdfast.model.errors import Usage

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.practice.cluster.site import PracticeSite
    from holdfast.practice.faults.inject import Injector

FOLDER_VARIABLE = "HOLDFAST_PRACTICE_DIR"
"""Not the mark of a cluster's own processes (``processes.MARK``): what carries that is killed by ``down``."""
FolderOption = Annotated[Path, typer.Option("--dir", "-d", envvar=FOLDER_VARIABLE, help="The cluster's own folder.")]
DEFAULT_FOLDER = Path("/tmp/holdfast-practice")  # noqa: S108 - short, since Unix socket paths are


def up(
    folder: FolderOption = DEFAULT_FOLDER,
    nodes: Annotated[int, typer.Option(min=2, max=64, help="Nodes, spares included.")] = 5,
    spares: Annotated[int, typer.Option(min=0, max=16, help="How many of them are spares.")] = 1,
    provider: Annotated[str, typer.Option(help="Provider of the nodes: ec2, hyperpod or command.")] = "ec2",
    elastic: Annotated[
        bool,
        typer.Option(
            "--elastic", help="Slurm is set up for elastic jobs: a second partition, flex, gives way to train."
        ),
    ] = False,
) -> None:
    """Start it: Slurm, Holdfast, an agent per node, and an emulator of the provider."""
    from holdfast.practice.cluster.site import PracticeSite  # noqa: PLC0415

    if spares >= nodes:
        raise Usage(f"{spares} spares of {nodes} nodes leave none to work")
    if _is_site(folder):
        site = _site(folder)
        if elastic and not site.practice.spec.elastic:
            raise Usage(
                f"the practice cluster in {folder} is there already, without --elastic: end it first, or name another --dir"
            )
    else:
        site = PracticeSite.create(folder, nodes=nodes, spares=spares, provider=provider, elastic=elastic)
    with working(f"starting Slurm, Holdfast and {counted(len(site.practice.nodes), 'node')} in {folder}"):
        site.up()
    where = "" if folder == DEFAULT_FOLDER else f" --dir {shlex.quote(str(folder))}"
    program = shlex.quote(str(Path(sys.executable).with_name("holdfast")))
    typer.echo(f"up in {folder}: {len(site.practice.nodes)} nodes, spares: {', '.join(site.spare_names) or 'none'}")
    typer.echo(f'to use it in this shell:  eval "$({program} practice env{where})"')
    some = site.practice.nodes[1]
    typer.echo(f"then, for example:        holdfast nodes; holdfast practice inject {some} xid 79 --gpu 3{where}")
    typer.echo(f"to end it:                holdfast practice down{where}")


def env(folder: FolderOption = DEFAULT_FOLDER) -> None:
    """Print the lines that let this shell use it: eval "$(holdfast practice env)"."""
    for key, value in {**_site(folder).client_env(), FOLDER_VARIABLE: str(folder.absolute())}.items():
        typer.echo(f"export {key}={shlex.quote(value)}")


def _is_site(folder: Path) -> bool:
    return (folder / "etc" / "controller.toml").exists()


def _site(folder: Path) -> PracticeSite:
    from holdfast.practice import Practice  # noqa: PLC0415
    from holdfast.practice.cluster.site import PracticeSite  # noqa: PLC0415

    practice = Practice.load(folder)
    if not _is_site(folder):
        raise Usage(
            f"the practice cluster in {folder} has no Holdfast on it: it was not made by `holdfast practice up`"
        )
    return PracticeSite(practice)


def down(
    folder: FolderOption = DEFAULT_FOLDER,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the folder and its logs.")] = False,
) -> None:
    """Stop everything and leave nothing behind."""
    from holdfast.practice import Practice  # noqa: PLC0415

    practice = Practice.load(folder)
    with working(f"stopping what runs in {folder}"):
        if keep:
            practice.down()
        else:
            practice.remove()
    line("down")


def status(folder: FolderOption = DEFAULT_FOLDER, as_data: Json = False) -> None:
    """What runs, node by node. Exit status 1 when something does not."""
    from holdfast.practice import Practice  # noqa: PLC0415

    got = Practice.load(folder).status()
    if as_data:
        as_json({**dataclasses.asdict(got), "folder": str(got.folder)})
    else:
        rows = [(n.name, n.slurm_state, _alive(n.slurmd), _alive(n.agent), n.instance_id) for n in got.nodes]
        table(str(got.folder), ("NODE", "SLURM", "SLURMD", "AGENT", "INSTANCE"), rows, "no nodes")
    dead = [name for name, alive in got.processes.items() if not alive]
    running = [(f"slurmd.{n.name}", n.slurmd) for n in got.nodes]
    running += [(f"agent.{n.name}", n.agent) for n in got.nodes if _is_site(folder)]
    dead += [name for name, alive in running if not alive and name not in got.processes]
    if dead:
        line(f"not running: {', '.join(dead)}")
    raise typer.Exit(1 if dead or not got.slurmctld else 0)


def _alive(alive: bool) -> str:
    return "up" if alive else "down"


def _names(incomplete: str) -> list[str]:
    from holdfast.practice.faults import all_faults  # noqa: PLC0415

    return [name for name in (*_OTHERS, *all_faults()) if name.startswith(incomplete)]


def inject(
    node: Annotated[str, typer.Argument(help="The node; `-` for faults of none.")],
    fault: Annotated[
        str, typer.Argument(help="What happens; `holdfast practice faults` lists them.", autocompletion=_names)
    ],
    value: Annotated[
        str | None, typer.Argument(help="What the list names: code, seconds, text, …", show_default=False)
    ] = None,
    folder: FolderOption = DEFAULT_FOLDER,
    gpu: Annotated[int, typer.Option(help="Device minor of the GPU.")] = 0,
) -> None:
    """Throw a fault, such as xid 79, power_loss, cut_off all, efa_gone or disk_full; `heal` undoes what can be undone."""
    from holdfast.practice import Practice  # noqa: PLC0415
    from holdfast.practice.faults.inject import Injector  # noqa: PLC0415

    _fault(fault, value)(Injector(Practice.load(folder)), node, value or "", gpu)
    line(f"{node}: {fault} {value or ''}".rstrip())


def _fault(fault: str, value: str | None) -> Callable[[Injector, str, str, int], object]:
    from holdfast.practice.faults import all_faults  # noqa: PLC0415

    fault = fault.replace("-", "_")
    other, hardware = _OTHERS.get(fault), all_faults().get(fault)
    if other is None and hardware is None:
        near = get_close_matches(fault, (*_OTHERS, *all_faults()), n=3)
        meant = f"; did you mean {' or '.join(near)}?" if near else ";"
        raise Usage(f"there is no fault {fault!r}{meant} `holdfast practice faults` lists them")
    if other is None:
        if hardware is not None and hardware.value and not value:
            raise Usage(f"{fault} needs a value: {hardware.value}")
        return lambda injector, node, value, gpu: injector.fault(fault, node, value, gpu)
    if other.example and not value:
        raise Usage(f"{fault} needs a value, such as: holdfast practice inject {other.example}")
    if value and not other.value:
        raise Usage(f"{fault} takes no value, so not {value!r}")
    return other.throw


def faults(as_data: Json = False) -> None:
    """The faults that `inject` can throw."""
    from holdfast.practice.faults import all_faults  # noqa: PLC0415

    others = [(name, other.value or "-", other.doc) for name, other in _OTHERS.items()]
    rows = [*others, *((fault.name, fault.value or "-", fault.doc) for fault in all_faults().values())]
    if as_data:
        as_json([{"name": name, "value": value, "doc": doc} for name, value, doc in rows])
    else:
        table("", ("FAULT", "VALUE", "WHAT HAPPENS"), rows, "none")


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise Usage(f"{text!r} is not a number") from None


def _cut_off(injector: Injector, node: str, value: str, _gpu: int) -> None:
    if value not in ("", "controller", "all"):
        raise Usage(f"cut_off: {value!r} is neither controller nor all")
    injector.cut_off(node, "all" if value == "all" else "controller")


@dataclasses.dataclass(frozen=True, slots=True)
class _Other:
    """A fault of processes, of the network or of Slurm."""

    doc: str
    throw: Callable[[Injector, str, str, int], object]
    value: str = ""
    """What the value means; empty: none is taken."""
    example: str = ""
    """Where a value must be given: what follows ``inject``."""


_OTHERS = {
    "xid": _Other(
        "The kernel logs an Xid of the GPU, and NVML reports it.",
        lambda i, node, value, gpu: i.xid(node, int(_number(value)), gpu),
        "its number",
        "n2 xid 79 --gpu 3",
    ),
    "power_loss": _Other(
        "All processes are gone at once, and packets to the node are dropped.",
        lambda i, node, _value, _gpu: i.power_loss(node),
    ),
    "cut_off": _Other(
        "The agent cannot reach the controller; all: slurmd does not answer either, and the job keeps training.",
        _cut_off,
        "controller (unless given) or all",
    ),
    "hang_nvml": _Other("Every NVML call blocks.", lambda i, node, _value, _gpu: i.hang_nvml(node)),
    "stuck_task": _Other(
        "Tasks do not end, so the job stays COMPLETING.", lambda i, node, _value, _gpu: i.stuck_task(node)
    ),
    "stuck_epilog": _Other("The next epilog does not end.", lambda i, node, _value, _gpu: i.stuck_epilog(node)),
    "clock_skew": _Other(
        "The agent's clock is off.",
        lambda i, node, value, _gpu: i.clock_skew(node, _number(value)),
        "seconds",
        "n2 clock_skew 300",
    ),
    "kernel_message": _Other(
        "The kernel logs this line.",
        lambda i, node, value, _gpu: i.kernel_message(node, value),
        "the line",
        "n2 kernel_message 'nfs: server s1 not responding, still trying'",
    ),
    "kill_agent": _Other("The agent is killed.", lambda i, node, _value, _gpu: i.kill_agent(node)),
    "kill_slurmd": _Other("slurmd is killed; its jobs run on.", lambda i, node, _value, _gpu: i.kill_slurmd(node)),
    "heal": _Other("Undoes what can be undone; without power: a boot.", lambda i, node, _value, _gpu: i.heal(node)),
    "fill_queue": _Other(
        "Jobs of another user wait in the queue (node -).",
        lambda i, _node, value, _gpu: i.fill_queue(int(_number(value))),
        "how many",
        "- fill_queue 20",
    ),
    "stop_slurmctld": _Other("slurmctld stops (node -).", lambda i, _node, _value, _gpu: i.stop_slurmctld()),
    "start_slurmctld": _Other("slurmctld starts again (node -).", lambda i, _node, _value, _gpu: i.start_slurmctld()),
}
