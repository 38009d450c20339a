"""Raise or lower a result by those before it: the same link twice, a link's own fault before its echoes.

State of one process, bounded; lost at a restart, after which the first line counts as a first one again."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field, replace

from holdfast_checks.kernel.nvlink import LinkFault
from holdfast_checks.result import Remedy, Result, Severity

ECHO_S = 60.0
"""An Xid 145 within this time of a fatal 149 on the node is its echo."""
AGAIN_S = 60.0
"""Lines of one link within this time are one burst, not a repetition."""
_KEPT = 256
_WORSE_AGAIN = (LinkFault.HARDWARE, LinkFault.MECHANICAL)
_LINK_EVENT = "149"
_ECHO = "145"


@dataclass(slots=True)
class Repeats:
    """Feed it every result of one node's kernel log, in order."""

    _links: OrderedDict[tuple[str, int], float | None] = field(default_factory=OrderedDict)
    """Links (of a GPU, by number) that had an error of the hardware or of its connection already, and when first."""
    _link_down_s: float | None = None
    """When the latest fatal 149 was logged."""
    _echoes: OrderedDict[str, float] = field(default_factory=OrderedDict)
    """GPU → when its latest fatal 145 was logged."""

    def weigh(self, result: Result) -> Result:
        """The result, raised or not by those before it."""
        if result.check != "gpu.xid":
            return result
        if result.code == "74":
            return self._link_error(result)
        if result.code in (_LINK_EVENT, _ECHO) and result.severity is Severity.FATAL:
            return self._block_error(result)
        return result

    def _link_error(self, result: Result) -> Result:
        if result.evidence.get("link_fault") not in _WORSE_AGAIN:
            return result
        link = (result.component, int(result.evidence["link"]))
        at_s, first_s = result.fault_monotonic_s, self._links.get(link)
        if link not in self._links:
            self._links[link] = at_s
            if len(self._links) > _KEPT:
                self._links.popitem(last=False)
            return result
        if at_s is not None and first_s is not None and at_s - first_s <= AGAIN_S:
            return result
        said = f"for the second time on link {link[1]}"
        return _calling_for(Remedy.REPLACE, result, said, "repeated")

    def _block_error(self, result: Result) -> Result:
        now_s = result.fault_monotonic_s
        if now_s is None:
            return result
        if result.code == _LINK_EVENT:
            self._link_down_s = now_s
            return result
        if self._link_down_s is not None and abs(now_s - self._link_down_s) <= ECHO_S:
            return replace(result, consequence=True, evidence={**result.evidence, "cause_xid": int(_LINK_EVENT)})
        self._echoes[result.component] = now_s
        if len(self._echoes) > _KEPT:
            self._echoes.popitem(last=False)
        others = (at_s for gpu, at_s in self._echoes.items() if gpu != result.component)
        if any(abs(now_s - at_s) <= ECHO_S for at_s in others):
            said = "on several GPUs and no link of theirs is down"
            return _calling_for(Remedy.REBOOT, result, said, "fabric_wide")
        return result


def _calling_for(remedy: Remedy, result: Result, said: str, mark: str) -> Result:
    """The same fault, which for a reason (``mark`` in the evidence) calls for something else."""
    return replace(
        result,
        outcome=result.outcome if result.grade is None else replace(result.grade, remedy=remedy),
        summary=f"{result.summary}, {said}",
        evidence={**result.evidence, mark: True},
    )
