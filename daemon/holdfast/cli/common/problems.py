"""Exit statuses, and how an error becomes one clear line."""

from __future__ import annotations

from enum import IntEnum

from holdfast.model.errors import ConfigError, HoldfastError, NotFound, Unavailable, Usage


class Exit(IntEnum):
    OK = 0
    PROBLEM = 1
    """A problem was found, or it was refused."""
    USAGE = 2
    """Wrong use, wrong configuration, or no right to it."""
    UNREACHABLE = 3
    """The controller, the database or Slurm does not answer."""


def status_of(error: HoldfastError) -> Exit:
    if isinstance(error, ConfigError | Usage):
        return Exit.USAGE
    return Exit.UNREACHABLE if isinstance(error, Unavailable) else Exit.PROBLEM


_VERBS = {
    "GET /v1/nodes lists them": "`holdfast nodes` lists them",
    "GET /v1/incidents lists them": "`holdfast incidents` lists them",
    "see GET /v1/incidents": "see `holdfast incidents`",
    "Send the header `Authorization: Bearer TOKEN`": "no token was sent: set HOLDFAST_TOKEN, or `holdfast token create` makes one",
}
"""What the API says to programs, as the command line says it to people."""
_NEXT = {
    NotFound: (" incident ", "`holdfast incidents` lists those there are"),
    Usage: ("the token has ", "`holdfast token create ROLE NAME` on the head node makes another"),
    Unavailable: ("does not answer: ", "`holdfast doctor` on the head node names what is wrong"),
}
"""Error → part of its text, and the command that comes next where the text names none."""


def said(error: HoldfastError) -> str:
    """The error in one line that ends with what to do next, where that is known."""
    text = str(error)
    for api, verb in _VERBS.items():
        text = text.replace(api, verb)
    about, step = next((pair for kind, pair in _NEXT.items() if isinstance(error, kind)), ("", ""))
    return f"{text}; {step}" if about and about in text and "`" not in text else text
