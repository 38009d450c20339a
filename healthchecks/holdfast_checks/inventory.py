"""The GPUs that this node is known to have, remembered so that a lost one can still be named."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from holdfast_checks.gpu_ref import GpuRef
from holdfast_checks.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class GpuInventory:
    """The GPUs seen in good snapshots. Keep it over restarts and reboots: a GPU that never came back is then missed."""

    gpus: tuple[GpuRef, ...] = ()

    def learn(self, snapshot: Snapshot) -> GpuInventory:
        """With the GPUs of a snapshot. A machine that shares no GPU with what was known is another machine."""
        seen = {gpu.ref.uuid: gpu.ref for gpu in snapshot.gpus if gpu.ref.uuid is not None}
        if not seen:
            return self
        known = {ref.uuid: ref for ref in self.gpus if ref.uuid is not None}
        kept = known if seen.keys() & known.keys() else {}
        merged = {uuid: _filled(ref, kept.get(uuid)) for uuid, ref in seen.items()}
        return GpuInventory(tuple(sorted({**kept, **merged}.values(), key=_order)))

    def missing(self, snapshot: Snapshot) -> tuple[GpuRef, ...]:
        """GPUs that are known and that the snapshot does not show at work: lost, refused by NVML, or gone."""
        at_work = {gpu.ref.uuid for gpu in snapshot.gpus if gpu.at_work}
        return tuple(ref for ref in self.gpus if ref.uuid not in at_work)

    def by_pci(self) -> dict[str, GpuRef]:
        """PCI address → GPU, for judging kernel lines."""
        return {ref.pci: ref for ref in self.gpus if ref.pci is not None}

    def to_wire(self) -> list[dict[str, str | int | None]]:
        """For a file; :meth:`from_wire` reads it back."""
        return [asdict(ref) for ref in self.gpus]

    @classmethod
    def from_wire(cls, raw: Iterable[Mapping[str, Any]]) -> GpuInventory:
        """Raises TypeError for anything that :meth:`to_wire` did not write."""
        return cls(tuple(GpuRef(**ref) for ref in raw))


def _filled(ref: GpuRef, known: GpuRef | None) -> GpuRef:
    """What one snapshot could not read (it may fail for a moment) is still known from an earlier one."""
    if known is None:
        return ref
    absent = {f.name: getattr(known, f.name) for f in fields(ref) if getattr(ref, f.name) is None}
    return replace(ref, **absent)


def _order(ref: GpuRef) -> tuple[int, str]:
    return (ref.minor if ref.minor is not None else 1 << 16, ref.component)
