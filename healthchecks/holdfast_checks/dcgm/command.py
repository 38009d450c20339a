"""Asking ``dcgmi``. It talks to DCGM's host engine, whose calls may block for a minute and more on a driver in trouble
(DCGM#313), so every question has a deadline."""

from __future__ import annotations

import re

from holdfast_checks.gpu_ref import GpuRef
from holdfast_checks.inventory import GpuInventory
from holdfast_checks.pci import normalise
from holdfast_checks.probes.child import CHILDREN, Hung
from holdfast_checks.registry import Context, NotApplicable, NotGathered

MOST_BYTES = 4 * 1024 * 1024
"""A level 3 run over 8 GPUs and their switches says some hundred kilobytes."""
_TIMED_OUT = (124, 137)
"""What coreutils' timeout answers when it had to end the command."""
_GRACE_S = 5.0
_NO_ENGINE = ("unable to establish a connection", "unable to connect to host engine")
_GPU_ROW = re.compile(r"^\|\s*(?P<id>\d*)\s*\|\s*(?P<key>[^:|]+?)\s*:\s*(?P<value>[^|]*?)\s*\|", re.MULTILINE)


def ask(context: Context, *arguments: str, deadline_s: float) -> str:
    """What ``dcgmi`` prints. Raises NotApplicable where DCGM is not installed or its host engine does not run, NotGathered
    when it does not answer in time, OSError when it cannot be started.

    At the deadline it is asked to end first, so that it stops a diagnostic that it has begun; then it is killed."""
    settings = context.settings.dcgm
    limit_s = max(1.0, deadline_s - _GRACE_S) if deadline_s > 2 * _GRACE_S else deadline_s * 0.8
    argv = ["timeout", "--signal=TERM", "--kill-after=2", f"{limit_s:g}", settings.dcgmi, *arguments]
    answer = CHILDREN.run(f"dcgmi {arguments[0]}", argv, deadline_s, max_bytes=MOST_BYTES)
    if isinstance(answer, Hung):
        raise NotGathered(f"dcgmi {arguments[0]} gave no answer within {deadline_s:g} s")
    if answer.status == 127:
        raise NotApplicable("DCGM is not installed here (no dcgmi)")
    if answer.status in _TIMED_OUT:
        raise NotGathered(f"dcgmi {arguments[0]} gave no answer within {limit_s:g} s")
    text = answer.text
    if any(words in text.lower() for words in _NO_ENGINE):
        raise NotApplicable("DCGM's host engine (nv-hostengine) does not run here")
    if answer.truncated:
        raise NotGathered(f"dcgmi {arguments[0]} said more than {MOST_BYTES} bytes")
    if "{" not in text and arguments[0] != "discovery":
        raise NotGathered(f"dcgmi {arguments[0]}: {answer.complaint}")
    return text


def gpus(context: Context) -> dict[int, GpuRef]:
    """DCGM's number of each GPU → the GPU. What this node's inventory does not know is named by what DCGM says of it.
    Raises as :func:`ask`."""
    return discovered(ask(context, "discovery", "-l", deadline_s=5.0), context.inventory)


def discovered(text: str, inventory: GpuInventory) -> dict[int, GpuRef]:
    """From the table of ``dcgmi discovery -l``; its list of switches has no UUIDs and is passed over."""
    by_uuid = {ref.uuid: ref for ref in inventory.gpus if ref.uuid}
    raw: dict[int, dict[str, str]] = {}
    current: int | None = None
    for row in _GPU_ROW.finditer(text):
        if row["id"]:
            current = int(row["id"])
        if current is not None and row["key"] in ("Device UUID", "PCI Bus ID"):
            raw.setdefault(current, {})[row["key"]] = row["value"]
    return {
        number: by_uuid.get(uuid, GpuRef(uuid=uuid, pci=normalise(one.get("PCI Bus ID", ""))))
        for number, one in raw.items()
        if (uuid := one.get("Device UUID"))
    }
