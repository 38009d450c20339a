"""Run a site's script, one process per request: deadline, bounded output, the core's errors."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, NoReturn

from holdfast.model.errors import NotFound, NotPermitted, OutsideError, Unavailable
from holdfast.providers.command.contract import Garbage, ScriptQuestion, ScriptVerb, failure, read_object
from holdfast_checks.changeable import changeable_command
from holdfast_checks.probes.child import Children, Finished, Hung

log = logging.getLogger(__name__)

MAX_OUTPUT_BYTES = 65536
"""Bytes kept of standard output and standard error each; longer standard output is an invalid answer."""


class ProviderScript:
    """A site's script. Thread-safe: requests about one machine, node or token run one after the other."""

    def __init__(self, command: tuple[str, ...], children: Children) -> None:
        self._command = command
        self._children = children

    def ask(self, question: ScriptQuestion) -> Mapping[str, Any]:
        """Run the script once and return its answer. Raises one of the core's errors, logged once.

        Remaining processes of its process group are killed when it ends or the deadline passes."""
        try:
            done = self._run(question)
            if done.status != 0:
                told = failure(done.status, done.out, done.err)
                raise type(told)(f"provider command: {question}: {told}")
        except OutsideError as error:
            _log_failure(question, error)
            raise
        if question.verb not in (ScriptVerb.CAPABILITIES, ScriptVerb.STATUS):
            log.info(
                "event=provider_command_done verb=%s node=%s instance=%s token=%s incident=%s seconds=%.2f",
                question.verb, question.node or "-", question.instance_id or "-", question.token or "-",
                question.incident or "-", done.seconds,
            )  # fmt: skip
        try:
            return read_object(done.out)
        except Garbage as error:
            self.refuse(question, error)

    def refuse(self, question: ScriptQuestion, garbage: Garbage) -> NoReturn:
        """Unavailable for an invalid answer, since the script may have acted."""
        error = Unavailable(f"provider command: {question}: {garbage}")
        _log_failure(question, error)
        raise error from garbage

    def _run(self, question: ScriptQuestion) -> Finished:
        argv = (*self._command, *question.argv())
        key = question.instance_id or question.node or question.token
        try:
            if why := changeable_command(self._command):
                raise NotPermitted(f"provider command: {why}: it is not run; chown root and chmod go-w it")
            done = self._children.run(key, argv, question.deadline_s, max_bytes=MAX_OUTPUT_BYTES, stdin=question.body())
        except PermissionError as error:
            raise NotPermitted(f"provider command: {argv[0]}: may not be run: {error.strerror}") from error
        except OSError as error:
            raise Unavailable(f"provider command: {argv[0]}: cannot be run: {error.strerror or error}") from error
        if isinstance(done, Hung):
            left = "hangs in the kernel" if done.left_behind else "was killed"
            raise Unavailable(
                f"provider command: {question}: no answer within {question.deadline_s:g} s, it {left}: "
                "what was done is not known"
            )
        if done.truncated and len(done.out) >= MAX_OUTPUT_BYTES:
            raise Unavailable(f"provider command: {question}: more than {MAX_OUTPUT_BYTES} bytes of standard output")
        return done


def _log_failure(question: ScriptQuestion, error: OutsideError) -> None:
    usual = isinstance(error, NotFound) and question.verb is ScriptVerb.STATUS
    log.log(
        logging.DEBUG if usual else logging.WARNING,
        'event=provider_command_failed verb=%s node=%s instance=%s error=%s text="%s"',
        question.verb, question.node or "-", question.instance_id or "-", type(error).__name__,
        str(error).replace('"', "'"),
    )  # fmt: skip
