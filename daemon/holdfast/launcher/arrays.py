"""sbatch commands for the two job arrays of an elastic job. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from holdfast.launcher.place import WrongUse
from holdfast.model.elastic_jobs.elastic import ElasticSpec
from holdfast.model.elastic_jobs.sizes import Sizes

_FIXED = ("sbatch", "--parsable", "--requeue", "--open-mode=append")
_ALONE = frozenset(
    {
        "contiguous",
        "exclusive",
        "get-user-env",
        "help",
        "hold",
        "ignore-pbs",
        "kill-on-invalid-dep",
        "nice",
        "no-kill",
        "no-requeue",
    }
    | {
        "overcommit",
        "oversubscribe",
        "parsable",
        "propagate",
        "quiet",
        "reboot",
        "requeue",
        "spread-job",
        "test-only",
        "usage",
    }
    | {"use-min-nodes", "verbose", "version", "wait"}
)
"""sbatch's long options that take no value in the next word."""
_ALONE_SHORT = frozenset("HIOQVWhksv")
_OURS = re.compile(r"holdfast|(?:elastic|of|spares)=.*")
_OF = "${base%%;*}"


@dataclass(frozen=True, slots=True)
class ArrayRequest:
    """The submission."""

    spec: ElasticSpec
    base_options: tuple[str, ...]
    """Partition and QOS of the base array, as sbatch takes them."""
    flexible_options: tuple[str, ...]
    rest: tuple[str, ...]
    """Further options of sbatch, the script and its arguments, as they were typed."""
    words: tuple[str, ...] = ()
    """Words of the job's previous comment, which are kept."""

    @property
    def base(self) -> list[str]:
        """The command for the base array, which is never preempted."""
        return self._sbatch(self.spec, self.spec.base_indices, self.base_options)

    def flexible(self, base_id: int) -> list[str] | None:
        """The command for the flexible array; None: the job has one size and no spares."""
        indices = self.spec.flexible_indices
        return self._sbatch(replace(self.spec, of=base_id), indices, self.flexible_options) if indices else None

    @property
    def shell_lines(self) -> list[str]:
        """Both commands, as a shell runs them."""
        lines = [f"base=$({shlex.join(self.base)})"]
        later = self.flexible(0)
        if later is not None:
            words = [_with_base_id(word) if word.startswith("--comment=") else shlex.quote(word) for word in later]
            lines.append(" ".join(words))
        return lines

    def _sbatch(self, spec: ElasticSpec, indices: range, where: tuple[str, ...]) -> list[str]:
        comment = " ".join([spec.comment, *self.words])
        return [*_FIXED, f"--array={shown(indices)}", f"--comment={comment}", *where, *self.rest]


def shown(indices: range) -> str:
    """As Slurm writes the task ids of an array."""
    return f"{indices[0]}-{indices[-1]}" if len(indices) > 1 else str(indices[0])


def check_batch(sizes: Sizes, samples: int, micro_samples: int) -> None:
    """A fixed global batch must divide into micro-batches, at least one for each group. Raises WrongUse."""
    if samples < 1 or micro_samples < 1 or samples % micro_samples:
        raise WrongUse(f"a global batch of {samples} cannot be divided into micro-batches of {micro_samples}")
    if samples // micro_samples < sizes.most:
        raise WrongUse(
            f"{sizes.most} groups cannot share {samples // micro_samples} micro-batches: make the global batch larger,"
            f" the micro-batches smaller, or allow at most {samples // micro_samples} groups"
        )


def split(typed: Sequence[str]) -> tuple[list[str], list[str]]:
    """sbatch's options, and the rest: the script and its arguments."""
    at = 0
    while at < len(typed) and typed[at].startswith("-") and typed[at] != "-":
        at += 2 if _takes_next(typed[at]) else 1
    return list(typed[:at]), list(typed[at:])


def take_comment(options: Sequence[str]) -> tuple[list[str], str]:
    """The options without ``--comment``, and its value."""
    kept, comment, words = [], "", iter(options)
    for word in words:
        if word == "--comment":
            comment = next(words, "")
        elif word.startswith("--comment="):
            comment = word.partition("=")[2]
        else:
            kept.append(word)
            if _takes_next(word) and (value := next(words, None)) is not None:
                kept.append(value)
    return kept, comment


def named(options: Sequence[str], long: str, short: str) -> bool:
    """Whether an option is among them, in any of its spellings."""
    words = iter(options)
    for word in words:
        if word == f"--{long}" or word.startswith(f"--{long}=") or re.match(rf"-{short}", word):
            return True
        if _takes_next(word):
            next(words, None)
    return False


def script_comment(script: str) -> str:
    """Value of the script's last ``#SBATCH --comment``."""
    found = ""
    for line in script.splitlines():
        if line.startswith("#SBATCH"):
            try:
                options = shlex.split(line.removeprefix("#SBATCH"), comments=True)
            except ValueError:
                continue
            found = take_comment(options)[1] or found
    return found


def foreign_words(comments: Iterable[str]) -> tuple[str, ...]:
    """Words of these comments that are not about the sizes; they are kept."""
    words = (word for comment in comments for word in comment.replace(",", " ").split())
    return tuple(dict.fromkeys(word for word in words if not _OURS.fullmatch(word)))


def _takes_next(option: str) -> bool:
    """Whether the value of this option is the next word. A plug-in's option is assumed to have its value after ``=``."""
    if option.startswith("--"):
        return "=" not in option and option[2:] not in _ALONE and option != "--"
    return len(option) == 2 and option[1] not in _ALONE_SHORT


def _with_base_id(word: str) -> str:
    """Quote the word, except where the shell inserts the base array's id."""
    before, _, after = word.partition("of=0")
    return f'{shlex.quote(before + "of=")}"{_OF}"{shlex.quote(after) if after else ""}'
