"""Random numbers as a function of (seed, step, micro-batch): nothing to save, nothing to send to a peer. Pure."""

from __future__ import annotations

import hashlib
import struct

_FIELDS = struct.Struct("<QQQ")


def seed_of(seed: int, step: int, micro_batch: int, stream: str = "") -> int:
    """A seed of 63 bits; ``stream`` distinguishes uses in one micro-batch. The same on every machine and in every release."""
    fields = _FIELDS.pack(seed % 2**64, step, micro_batch)
    digest = hashlib.blake2b(fields + stream.encode(), digest_size=8, person=b"holdfast-rng").digest()
    return int.from_bytes(digest, "little") >> 1
