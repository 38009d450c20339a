"""The writer thread of a process: queued work goes into one transaction, and one commit makes all of it durable."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, RootTransaction
from sqlalchemy.exc import OperationalError, SQLAlchemyError

from holdfast.model.errors import Unavailable
from holdfast.store.failures import is_outage, translate

log = logging.getLogger(__name__)
T = TypeVar("T")

GROUP = 256
"""Limit of work items per commit: bounds what an outage loses and how long the lock is held."""
BEGIN_ATTEMPTS = 3
"""Attempts of five seconds (busy timeout) each: longer than any transaction of Holdfast."""
WAIT_S = 30.0
"""A caller gives up after this long; the outcome of its work is then unknown."""


@dataclass(slots=True)
class _Job:
    work: Callable[[Connection], Any]
    future: Future[Any]
    value: Any = None
    error: BaseException | None = None


class Writer:
    """Thread that runs writing functions. Each is all or nothing; an error of one does not affect the others of its group."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._queue: SimpleQueue[_Job | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._loop, name="store-writer", daemon=True)
        self._thread.start()

    def submit(self, work: Callable[[Connection], T]) -> Future[T]:
        """Queue it. The future resolves when it is durable, or with the error that undid it. Raises Unavailable once closed."""
        future: Future[T] = Future()
        with self._lock:
            if self._closed:
                raise Unavailable("the store is closed")
            self._queue.put(_Job(work, future))
        return future

    def run(self, work: Callable[[Connection], T]) -> T:
        """Queue it and wait until it is durable. Raises what it raised; Unavailable in an outage or after 30 s."""
        future = self.submit(work)
        try:
            return future.result(WAIT_S)
        except FutureTimeout as error:
            future.cancel()
            raise Unavailable(f"the store did not write within {WAIT_S:.0f} s") from error

    def close(self) -> None:
        """Write what is queued, then stop."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._queue.put(None)
        self._thread.join(WAIT_S)
        self._engine.dispose()

    def _loop(self) -> None:
        while True:
            group, last = self._next_group()
            if group:
                self._write(group)
            if last:
                return

    def _next_group(self) -> tuple[list[_Job], bool]:
        """Wait for one work item and collect what else is queued. True: it was closed."""
        taken: list[_Job] = []
        item = self._queue.get()
        while item is not None:
            if item.future.set_running_or_notify_cancel():
                taken.append(item)
            if len(taken) >= GROUP:
                return taken, False
            try:
                item = self._queue.get_nowait()
            except Empty:
                return taken, False
        return taken, True

    def _write(self, group: list[_Job]) -> None:
        try:
            self._transaction(group)
        except Exception as error:  # noqa: BLE001 - it goes to every caller that waits; the thread must live on
            failure = translate(error) if isinstance(error, SQLAlchemyError) else error
            log.warning("event=store_write_failed pieces=%d error=%s", len(group), failure)
            for job in group:
                job.future.set_exception(failure)
            return
        for job in group:
            if job.error is None:
                job.future.set_result(job.value)
            else:
                job.future.set_exception(job.error)

    def _transaction(self, group: list[_Job]) -> None:
        with self._engine.connect() as connection:
            transaction = _begin(connection)
            for job in group:
                _run_one(connection, job)
            transaction.commit()


def _begin(connection: Connection) -> RootTransaction:
    """The write lock may be held by another process for a while. Raises OperationalError after the last attempt."""
    for attempt in range(1, BEGIN_ATTEMPTS):
        try:
            return connection.begin()
        except OperationalError as error:
            if error.connection_invalidated:
                raise
            log.warning("event=store_busy attempt=%d error=%s", attempt, error.orig)
            connection.rollback()
    return connection.begin()


def _run_one(connection: Connection, job: _Job) -> None:
    """Run one work item in its own savepoint. Raises only when the database itself fails, which rolls back the whole group."""
    connection.exec_driver_sql("SAVEPOINT piece")  # in plain SQL: SQLAlchemy would compile each savepoint again
    try:
        job.value = job.work(connection)
    except Exception as error:  # the error belongs to the caller that waits for this work item
        if is_outage(error):
            raise
        connection.exec_driver_sql("ROLLBACK TO SAVEPOINT piece")
        job.error = translate(error) if isinstance(error, SQLAlchemyError) else error
    connection.exec_driver_sql("RELEASE SAVEPOINT piece")
