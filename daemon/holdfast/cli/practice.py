"""``holdfast practice``: a real Slurm with emulated GPUs on this machine."""

from __future__ import annotations

import dataclasses
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.options import Json
from holdfast.cli.problems import Usage
from holdfast.cli.show import as_json, line, table

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.practice.inject import Injector
    from holdfast.practice.site import Site

FOLDER_VARIABLE = "HOLDFAST_PRACTICE_DIR"
"""Not the mark of a cluster's own processes (``processes.MARK``): what carries that is killed by ``down``."""
Folder = Annotated[Path, typer.Option("--dir", "-d", envvar=FOLDER_VARIABLE, help="The cluster's own folder.")]
DEFAULT_FOLDER = Path("/tmp/holdfast-practice")  # noqa: S108 - short, since Unix socket paths are


def up(
    folder: Folder = DEFAULT_FOLDER,
    nodes: Annotated[int, typer.Option(min=2, max=64, help="Nodes, spares included.")] = 5,
    spares: Annotated[int, typer.Option(min=0, max=16, help="How many of them are spares.")] = 1,
) -> None:
    """Start it: Slurm, Holdfast, an agent per node, the AWS emulator."""
    from holdfast.practice.site import Site  # noqa: PLC0415

    if spares >= nodes:
        raise Usage(f"{spares} spares of {nodes} nodes leave none to work")
    site = _site(folder) if _is_site(folder) else Site.create(folder, nodes=nodes, spares=spares)
    site.up()
    where = "" if folder == DEFAULT_FOLDER else f" --dir {shlex.quote(str(folder))}"
    program = shlex.quote(str(Path(sys.executable).with_name("holdfast")))
    typer.echo(f"up in {folder}: {len(site.practice.nodes)} nodes, spares: {', '.join(site.spare_names) or 'none'}")
    typer.echo(f'to use it in this shell:  eval "$({program} practice env{where})"')
    typer.echo(f"then, for example:        holdfast nodes; holdfast practice inject n2 xid 79 --gpu 3{where}")
    typer.echo(f"to end it:                holdfast practice down{where}")


def env(folder: Folder = DEFAULT_FOLDER) -> None:
    """Print the lines that let this shell use it: eval "$(holdfast practice env)"."""
    for key, value in {**_site(folder).client_env(), FOLDER_VARIABLE: str(folder.absolute())}.items():
        typer.echo(f"export {key}={shlex.quote(value)}")


def _is_site(folder: Path) -> bool:
    return (folder / "etc" / "controller.toml").exists()


def _site(folder: Path) -> Site:
    from holdfast.practice import Practice  # noqa: PLC0415
    from holdfast.practice.site import Site  # noqa: PLC0415

    practice = Practice.load(folder)
    if not _is_site(folder):
        raise Usage(
            f"the practice cluster in {folder} has no Holdfast on it: it was not made by `holdfast practice up`"
        )
    return Site(practice)


def down(
    folder: Folder = DEFAULT_FOLDER,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the folder and its logs.")] = False,
) -> None:
    """Stop everything and leave nothing behind."""
    from holdfast.practice import Practice  # noqa: PLC0415

    practice = Practice.load(folder)
    if keep:
        practice.down()
    else:
        practice.remove()
    line("down")


def status(folder: Folder = DEFAULT_FOLDER, as_data: Json = False) -> None:
    """What runs, node by node. Exit status 1 when something does not."""
    from holdfast.practice import Practice  # noqa: PLC0415

    got = Practice.load(folder).status()
    if as_data:
        as_json({**dataclasses.asdict(got), "folder": str(got.folder)})
    else:
        rows = [(n.name, n.slurm_state, _alive(n.slurmd), _alive(n.agent), n.instance_id) for n in got.nodes]
        table(str(got.folder), ("NODE", "SLURM", "SLURMD", "AGENT", "INSTANCE"), rows, "no nodes")
    dead = [name for name, alive in got.processes.items() if not alive]
    if dead:
        line(f"not running: {', '.join(dead)}")
    raise typer.Exit(1 if dead or not got.slurmctld else 0)


def _alive(alive: bool) -> str:
    return "up" if alive else "down"


def inject(
    node: Annotated[str, typer.Argument(help="The node; `-` for faults of none.")],
    fault: Annotated[str, typer.Argument(help="What happens: one of those above, or of `holdfast practice faults`.")],
    value: Annotated[
        str | None, typer.Argument(help="Xid code, seconds, scope, text or count.", show_default=False)
    ] = None,
    folder: Folder = DEFAULT_FOLDER,
    gpu: Annotated[int, typer.Option(help="Device minor of the GPU.")] = 0,
) -> None:
    """Throw a fault: xid CODE, power_loss, cut_off (controller or all), hang_nvml, stuck_task, stuck_epilog, clock_skew SECONDS,
    kernel_message TEXT, kill_agent, kill_slurmd, fill_queue COUNT, stop_slurmctld, start_slurmctld, heal."""
    from holdfast.practice import Practice  # noqa: PLC0415
    from holdfast.practice.inject import Injector  # noqa: PLC0415

    _fault(fault, value)(Injector(Practice.load(folder)), node, value or "", gpu)
    line(f"{node}: {fault} {value or ''}".rstrip())


_PLAIN = ("power_loss", "hang_nvml", "stuck_task", "stuck_epilog", "kill_agent", "kill_slurmd", "heal")
_CLUSTER = ("stop_slurmctld", "start_slurmctld")
_VALUED = ("xid", "clock_skew", "kernel_message", "fill_queue")


def _fault(fault: str, value: str | None) -> Callable[[Injector, str, str, int], object]:
    fault = fault.replace("-", "_")
    if fault in _VALUED and value is None:
        raise Usage(f"{fault} needs a value, such as: holdfast practice inject n2 xid 79 --gpu 3")
    if fault in _PLAIN:
        return lambda injector, node, _value, _gpu: getattr(injector, fault)(node)
    if fault in _CLUSTER:
        return lambda injector, _node, _value, _gpu: getattr(injector, fault)()
    if fault in _WITH_VALUE:
        return _WITH_VALUE[fault]
    from holdfast.practice.faults import all_faults  # noqa: PLC0415

    if fault not in all_faults():
        raise Usage(f"{fault!r} is none of {', '.join((*_PLAIN, *_WITH_VALUE, *_CLUSTER, *all_faults()))}")
    return lambda injector, node, value, gpu: injector.fault(fault, node, value, gpu)


def faults(as_data: Json = False) -> None:
    """The faults of a node's hardware and host that `inject` can throw."""
    from holdfast.practice.faults import all_faults  # noqa: PLC0415

    rows = [(fault.name, fault.value or "-", fault.doc) for fault in all_faults().values()]
    if as_data:
        as_json([{"name": name, "value": value, "doc": doc} for name, value, doc in rows])
    else:
        table("faults", ("FAULT", "VALUE", "WHAT HAPPENS"), rows, "none")


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise Usage(f"{text!r} is not a number") from None


def _cut_off(injector: Injector, node: str, value: str, _gpu: int) -> None:
    if value not in ("", "controller", "all"):
        raise Usage(f"cut_off: {value!r} is neither controller nor all")
    injector.cut_off(node, "all" if value == "all" else "controller")


_WITH_VALUE: dict[str, Callable[[Injector, str, str, int], object]] = {
    "xid": lambda i, node, value, gpu: i.xid(node, int(_number(value)), gpu),
    "cut_off": _cut_off,
    "clock_skew": lambda i, node, value, _gpu: i.clock_skew(node, _number(value)),
    "kernel_message": lambda i, node, value, _gpu: i.kernel_message(node, value),
    "fill_queue": lambda i, _node, value, _gpu: i.fill_queue(int(_number(value))),
}
