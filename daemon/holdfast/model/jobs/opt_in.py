"""Opt-in from a job's comment: consent, a refusal, or a near miss of the keyword. Pure; standard library only."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

CONSENT_WORD = "holdfast"
"""``sbatch --comment=holdfast`` (alone or as one word among others) opts a job in."""

NO_NOTES_WORD = "holdfast-no-notes"
"""With this word in its comment, a job gets no note about its recovery; it is recovered all the same."""

_LIKE = re.compile(r"[^\w\s]*(?:no[-_]?|non[-_]?)?hold[-_ ]?fast(?:[=:][\w.+-]*)?[^\w\s]*", re.IGNORECASE)
_VALUE = re.compile(r"(hold[-_ ]?fast)\s*([=:])\s*", re.IGNORECASE)
_NO_BEFORE = frozenset(
    {
        "no",
        "non",
        "not",
        "never",
        "without",
        "w/o",
        "don't",
        "dont",
        "disable",
        "skip",
        "except",
        "minus",
        "stop",
        "off",
    }
)
_NO_AFTER = frozenset({"no", "not", "off", "never", "none", "false", "disabled", "disable", "0"})
_REFUSING = frozenset(
    {
        "ignore",
        "ignored",
        "avoid",
        "exclude",
        "excluded",
        "exempt",
        "opt-out",
        "opt_out",
        "optout",
        "hands-off",
        "no-restart",
        "no-requeue",
    }
    | {"norestart", "norequeue"}
)
"""Words with which a comment that mentions Holdfast refuses, at any position."""
_ACTS = frozenset({"restart", "requeue", "touch", "stop", "kill", "move", "interrupt", "recover", "heal"})
"""Verbs that a comment forbids with one of :data:`_NO_BEFORE` up to three words before: ``please do not requeue``."""
_FILLERS = frozenset(
    {"use", "using", "want", "need", "run", "with", "by", "under", "the", "any", "is", "be", "=", ":", "please"}
)
_SHOWN_MOST = 40


class OptInMeaning(StrEnum):
    """Meaning of a comment for Holdfast."""

    NOTHING = "nothing"
    CONSENT = "consent"
    REFUSAL = "refusal"
    """``no holdfast``, ``holdfast=off``."""
    NEAR_MISS = "near_miss"
    """``Holdfast``, ``holdfast=yes``: no consent, but it may have been meant as one."""


@dataclass(frozen=True, slots=True)
class OptIn:
    """Meaning of a comment, and the words that express it."""

    said: OptInMeaning
    words: str = ""


def read_comment(comment: str) -> OptIn:
    """Reads a job's comment; commas separate words, too. A refusal anywhere outweighs the keyword: without consent no job is stopped."""
    words = _VALUE.sub(r"\1\2", comment.replace(",", " ")).split()  # rule prose: how users declare something
    like = [at for at, word in enumerate(words) if _LIKE.fullmatch(word)]
    for at in like:
        if refusal := _refusal(words, at):
            return OptIn(OptInMeaning.REFUSAL, refusal)
    refusing = [at for at in range(len(words)) if like and _refuses(words, at)]
    if refusing:
        first, last = min(refusing[0], like[0]), max(refusing[0], like[0])
        return OptIn(OptInMeaning.REFUSAL, _shown(words[first : last + 1]))
    if CONSENT_WORD in words:
        return OptIn(OptInMeaning.CONSENT, CONSENT_WORD)
    if like:
        return OptIn(OptInMeaning.NEAR_MISS, _shown(words[like[0] : like[0] + 1]))
    together = (at for at in range(len(words) - 1) if [w.lower() for w in words[at : at + 2]] == ["hold", "fast"])
    begins = next(together, None)
    return (
        OptIn(OptInMeaning.NOTHING)
        if begins is None
        else OptIn(OptInMeaning.NEAR_MISS, _shown(words[begins : begins + 2]))
    )


def wants_notes(comment: str) -> bool:
    """Whether the job's owner gets a note about its recovery."""
    return NO_NOTES_WORD not in comment.replace(",", " ").split()  # rule prose: how users declare something


def why_not(comment: str) -> str:
    """For the owner of a job that did not opt in, in brackets after those words; empty: its comment does not mention Holdfast."""
    found = read_comment(comment)
    if found.said is OptInMeaning.REFUSAL:
        return f' (its comment says "{found.words}")'
    if found.said is OptInMeaning.NEAR_MISS:
        word = f"that is {CONSENT_WORD}, in lower case and with nothing attached"
        return f' (its comment says "{found.words}", which is not the word: {word})'
    return ""


def _refusal(words: list[str], at: int) -> str:
    """The words that refuse; empty: none do."""
    word = _bare(words[at])
    if re.match(r"\W*non?[-_]?hold", word) or re.split(r"[=:]", word, maxsplit=1)[-1] in _NO_AFTER:
        return _shown(words[at : at + 1])
    before = next((i for i in range(at - 1, -1, -1) if _bare(words[i]) not in _FILLERS), None)
    if before is not None and _bare(words[before]) in _NO_BEFORE:
        return _shown(words[before : at + 1])
    after = next((i for i in range(at + 1, len(words)) if _bare(words[i]) not in _FILLERS), None)
    return _shown(words[at : after + 1]) if after is not None and _bare(words[after]) in _NO_AFTER else ""


def _refuses(words: list[str], at: int) -> bool:
    """Whether the word refuses at any position."""
    word, before = _bare(words[at]), [_bare(w) for w in words[max(0, at - 3) : at]]
    return (
        word in _REFUSING
        or (word in _ACTS and not _NO_BEFORE.isdisjoint(before))
        or (word == "out" and before[-1:] == ["opt"])
    )


def _bare(word: str) -> str:
    return word.lower().strip("\"'.:;!()[]")


def _shown(words: list[str]) -> str:
    """Safe in a note that Slurm keeps and shows."""
    return re.sub(r"[^\w=:.+' -]", "", " ".join(words))[:_SHOWN_MOST]
