"""Takes a state from a peer: proven and whole, or not at all. Nothing is written to a disk."""

from __future__ import annotations

import http.client
import secrets
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

from holdfast_train.codec import Packed, body_bytes
from holdfast_train.errors import TransferFailed
from holdfast_train.proof import ASKED, PROOF, ask_proof, same, tell_proof
from holdfast_train.serving import CHUNK_BYTES

TRIES = 3
"""Of each chunk: a broken connection or a flipped bit is not worth a failed step."""
PARALLEL = 4
_ASK_AGAIN_S = 0.02
"""The quorum tells both sides at once, so we may ask before the peer has copied its state."""


def fetch(url: str, step: int, key: bytes, timeout_s: float) -> Packed:
    """The state of this step as the peer at ``url`` serves it. Raises TransferFailed."""
    source = _Source(url, key, time.monotonic() + timeout_s)
    index = source.get(f"/v1/{step}/index", None)
    try:
        body = bytearray(body_bytes(index))
    except MemoryError as error:
        raise TransferFailed("there is no memory for the state of a peer") from error
    view = memoryview(body)

    def take(number: int) -> None:
        there = view[number * CHUNK_BYTES : (number + 1) * CHUNK_BYTES]
        there[:] = source.get(f"/v1/{step}/{number}", len(there))

    with ThreadPoolExecutor(PARALLEL, thread_name_prefix="peer-fetch") as pool:
        for done in [pool.submit(take, number) for number in range(-(-len(body) // CHUNK_BYTES))]:
            done.result()
    return Packed(index, body)


class _Source:
    def __init__(self, url: str, key: bytes, deadline_s: float) -> None:
        self._key, self._deadline_s = key, deadline_s
        parts = urlsplit(url)
        if parts.scheme != "http" or parts.hostname is None or parts.port is None:
            raise TransferFailed(f"a peer gives no address that state could be fetched from: {url[:80]!r}")
        self._host, self._port = parts.hostname, parts.port

    def get(self, path: str, size: int | None) -> bytes:
        """One answer, proven. Raises TransferFailed after ``TRIES`` or at the deadline."""
        reason, failed = "no time was left", 0
        while failed < TRIES and (left_s := self._deadline_s - time.monotonic()) > 0:
            try:
                status, body, shown, nonce = self._ask(path, left_s)
            except (OSError, http.client.HTTPException) as error:
                reason, failed = f"{type(error).__name__}: {error}", failed + 1
                continue
            if status == 404:
                reason = "it did not offer it in time"
                time.sleep(_ASK_AGAIN_S)
                continue
            if status == 403:
                raise self._failed(
                    path, "it refuses our token: HOLDFAST_QUORUM_TOKEN differs between the groups", final=True
                )
            if status != 200:
                raise self._failed(path, f"it no longer has it (status {status})")
            if same(shown, tell_proof(self._key, path, nonce, body)) and size in (None, len(body)):
                return body
            failed += 1
            reason = "what came is corrupt, or from somebody who does not know the token"
        raise self._failed(path, reason)

    def _ask(self, path: str, timeout_s: float) -> tuple[int, bytes, str | None, str]:
        nonce = secrets.token_hex(16)
        connection = http.client.HTTPConnection(self._host, self._port, timeout=timeout_s)
        try:
            connection.request("GET", path, headers={ASKED: nonce, PROOF: ask_proof(self._key, path, nonce)})
            answer = connection.getresponse()
            return answer.status, answer.read(), answer.getheader(PROOF), nonce
        finally:
            connection.close()

    def _failed(self, path: str, why: str, *, final: bool = False) -> TransferFailed:
        return TransferFailed(
            f"state {path} did not come from the peer at {self._host}:{self._port}: {why}", final=final
        )
