"""Fetch a state from peers, verified and complete. Nothing is written to disk.

Every peer that offers the same state is a source. A chunk that is corrupt or late from one of them is fetched from another."""

from __future__ import annotations

import http.client
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

from holdfast_train.errors import TransferFailed
from holdfast_train.peers.proof import ASKED, PROOF, ask_proof, same, tell_proof
from holdfast_train.peers.serving import CHUNK_BYTES
from holdfast_train.tensors.codec import Packed, body_bytes

TRIES = 3
"""Attempts per chunk: a broken connection or a flipped bit should not fail a step."""
PARALLEL = 4
"""Chunks in flight at a time, from all sources together."""
WORDS_BYTES_MAX = 4096
_GRACE_S = 0.5
"""Time for the threads to report why nothing arrived."""
_ASK_AGAIN_S = 0.02
"""Pause before a retry: the quorum notifies both sides at once, so the request may come before the peer offers its state."""


def fetch(urls: str | Sequence[str], what: str | int, key: bytes, timeout_s: float) -> Packed:
    """Fetch the state that the peers at ``urls`` serve. ``what``: a step, or ``snapshot/STEP``, ``delta/STEP``, ``rest/STEP``.
    Raises TransferFailed when no source is left."""
    deadline_s = time.monotonic() + timeout_s
    sources = [_Source(url, key, deadline_s) for url in ([urls] if isinstance(urls, str) else urls)]
    if not sources:
        raise TransferFailed("no peer is known that state could be fetched from")
    return _Gathering(sources, f"/v1/{what}").run()


def ask(url: str, path: str, key: bytes, timeout_s: float) -> bytes:
    """Fetch a short answer of a peer, verified. Raises TransferFailed."""
    return _Source(url, key, time.monotonic() + timeout_s).get(path, None, most_bytes=WORDS_BYTES_MAX)


class _Source:
    def __init__(self, url: str, key: bytes, deadline_s: float) -> None:
        self._key, self.deadline_s = key, deadline_s
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            host = port = None
        if host is None or port is None or parts.scheme != "http":
            raise TransferFailed(f"a peer gives no address that state could be fetched from: {url[:80]!r}")
        self._host, self._port = host, port

    def get(self, path: str, size: int | None, *, most_bytes: int | None = None) -> bytes:
        """Fetch one answer, verified. Raises TransferFailed after ``TRIES`` or at the deadline."""
        reason, failed = "no time was left", 0
        most_bytes = size if size is not None else most_bytes
        while failed < TRIES and (left_s := self.deadline_s - time.monotonic()) > 0:
            try:
                status, body, shown, nonce = self._ask(path, left_s, most_bytes)
            except (OSError, http.client.HTTPException) as error:
                reason, failed = f"{type(error).__name__}: {error}", failed + 1
                continue
            if status == 404:
                reason = "it did not offer it in time"
                time.sleep(_ASK_AGAIN_S)
                continue
            if status == 403:
                raise self.failed(
                    path, "it refuses our token: HOLDFAST_QUORUM_TOKEN differs between the groups", final=True
                )
            if status != 200:
                raise self.failed(path, f"it no longer has it (status {status})")
            if same(shown, tell_proof(self._key, path, nonce, body)) and size in (None, len(body)):
                return body
            failed += 1
            reason = "what came is corrupt, or from a process that does not know the token"
        raise self.failed(path, reason)

    def _ask(self, path: str, timeout_s: float, most_bytes: int | None) -> tuple[int, bytes, str | None, str]:
        nonce = secrets.token_hex(16)
        connection = http.client.HTTPConnection(self._host, self._port, timeout=timeout_s)
        try:
            connection.request("GET", path, headers={ASKED: nonce, PROOF: ask_proof(self._key, path, nonce)})
            answer = connection.getresponse()
            if most_bytes is not None and (answer.length is None or answer.length > most_bytes):
                raise http.client.HTTPException(f"{answer.length} bytes, and at most {most_bytes} were expected")
            return answer.status, answer.read(), answer.getheader(PROOF), nonce
        finally:
            connection.close()

    def failed(self, path: str, why: str, *, final: bool = False) -> TransferFailed:
        return TransferFailed(
            f"state {path} did not come from the peer at {self._host}:{self._port}: {why}", final=final
        )


class _Gathering:
    """Fetches the chunks of one state, with a few threads per source. A slow source does not delay the rest: its missing chunks
    are requested from idle sources as well, and the first answer counts."""

    def __init__(self, sources: list[_Source], path: str) -> None:
        self._sources, self._path = sources, path
        self._changed = threading.Condition()
        self._index: bytes | None = None
        self._body = bytearray()
        self._open: deque[int] = deque()
        self._owed: dict[int, set[_Source]] = {}
        """Chunks that were requested and are outstanding, with their sources."""
        self._left = list(sources)
        self._failure: TransferFailed | None = None

    def run(self) -> Packed:
        for source in self._sources:
            self._start(self._lead, source)
        with self._changed:
            until_s = max(source.deadline_s for source in self._sources) + _GRACE_S
            while self._left and not self._complete() and (left_s := until_s - time.monotonic()) > 0:
                self._changed.wait(left_s)
            if self._index is not None and self._complete():
                self._left = []  # threads that still wait for a slow source end at their next check
                return Packed(self._index, self._body)
            self._left = []
            raise self._failure or self._sources[0].failed(self._path, "no time was left")

    def _lead(self, source: _Source) -> None:
        """The first thread of a source: check that it offers the same as the others."""
        index = source.get(f"{self._path}/index", None)
        with self._changed:
            if self._index is None:
                self._begin(index)
            if index != self._index:
                raise source.failed(self._path, "it offers another state than the other peers")
        for _ in range(PARALLEL // len(self._sources) - 1):
            self._start(self._work, source)
        self._work(source)

    def _begin(self, index: bytes) -> None:
        try:
            self._body = bytearray(body_bytes(index))
        except MemoryError as error:
            raise TransferFailed("not enough memory for the state of a peer") from error
        self._index = index
        self._open.extend(range(-(-len(self._body) // CHUNK_BYTES)))

    def _work(self, source: _Source) -> None:
        while (number := self._claim(source)) is not None:
            start = number * CHUNK_BYTES
            body = source.get(f"{self._path}/{number}", min(CHUNK_BYTES, len(self._body) - start))
            with self._changed:
                if self._left and self._owed.pop(number, None) is not None:
                    self._body[start : start + len(body)] = body
                self._changed.notify_all()

    def _claim(self, source: _Source) -> int | None:
        """The next chunk for this source; None: there is nothing more to do for it."""
        with self._changed:
            while source in self._left and not self._complete():
                if self._open:
                    number = self._open.popleft()
                    self._owed[number] = {source}
                    return number
                for number, of in self._owed.items():
                    if source not in of and len(of) == 1:
                        of.add(source)
                        return number
                if all(source in of for of in self._owed.values()):
                    return None
                self._changed.wait(1.0)
            return None

    def _complete(self) -> bool:
        return self._index is not None and not self._open and not self._owed

    def _start(self, what: Callable[[_Source], None], source: _Source) -> None:
        def run() -> None:
            try:
                what(source)
            except TransferFailed as error:
                self._lose(source, error)
            except MemoryError:
                self._lose(source, source.failed(self._path, "not enough memory for it here"))

        threading.Thread(target=run, name="peer-fetch", daemon=True).start()

    def _lose(self, source: _Source, error: TransferFailed) -> None:
        with self._changed:
            if source in self._left:
                self._left.remove(source)
                if self._failure is None or error.final:
                    self._failure = error
            for number, of in list(self._owed.items()):
                of.discard(source)
                if not of:
                    del self._owed[number]
                    self._open.append(number)
            self._changed.notify_all()
