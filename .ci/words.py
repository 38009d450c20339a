"""Words that Holdfast does not use, and what to write instead: ``python .ci/words.py``, part of ``./dev lint``.

It reads Markdown (README, docs, the unreleased part of the changelog), the string literals of Python files, docstrings included, and the
comments and quoted texts of shell and C. Not read: names, comments of Python, code in backticks, and literals without a space (values that
are stored or sent). A line with a good reason ends in ``# word: the reason`` (Markdown: ``<!-- word: the reason -->``, C: ``// word:``)."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Word:
    """A pattern of whole words, and what is written in their place."""

    pattern: str
    instead: str


_ONE = (
    "a|an|the|this|one|each|every|next|last|first|second|its|another|earlier|later|same|per|two|three|both|between|of"
)

WORDS: tuple[Word, ...] = (
    Word(r"IF IT MAY ACT", "IF ENFORCED"),
    Word(r"WHY IT STANDS THERE", "REASON"),
    Word(r"tells?(?!:)|told|untold|telling", "report, say, notify, distinguish"),
    Word(r"(own|last|its|their|\w+['’]s) word|word of (an?|the|its)", "report, verdict, notice"),
    Word(r"heard|unheard", "reporting, received"),
    Word(
        rf"({_ONE}) looks?(?! (like|for|up)\b)|(a|the|each|every|next|last|second) look for",
        "poll, sample, read, check",
    ),
    Word(r"(nobody|somebody|anybody)(['’]s)?", "no one, another user, an operator, anyone"),
    Word(r"a human|(the )?humans?['’]s?|humans", "an operator"),
    Word(r"whoever", "a node that …, a user who …, anyone who …"),
    Word(r"anew", "again"),
    Word(r"besides?", "in addition, next to, except"),
    Word(r"(the|an?|its|their|whose|at|each) begin|begins? of", "start, prefix"),
    Word(r"so long|so many", "this long, as long as, this many"),
    Word(r"by (itself|themselves)|of (its|their) own", "automatically, on its own, its own"),
    Word(
        r"stands? (there|still|open|empty|where|idle)|(where|why|how|as) (\w+ ){0,3}stands?(?! for\b)|(what|it) stands|stood",
        "is, remains",
    ),
    Word(r"(go|goes|going|gone|went) on(?! (to )?(the|a|an|standard)\b)", "continue"),
    Word(r"on (its|their) way", "in flight, under way"),
    Word(r"(put|puts|putting) down", "record"),
    Word(r"mend|mends|mended|mending", "repair, fix"),
    Word(r"(let|lets|letting) (\w+ ){0,2}go", "release"),
    Word(
        r"(?<!no )(?<!has )(?<!have )(?<!make )(?<!makes )(?<!leave )(?<!leaves )(?<!enough )(?<!is )(?<!more )(?<!/)"
        r"rooms?(?! (for|to|in|on|left)\b)(?!/)",
        "package or module; rendezvous (of an elastic job)",
    ),
    Word(r"(the|a|its|one|world['’]s|this|in|per|into|cycle['’]s|same) book(['’]s)?|books", "state, state snapshot"),
    Word(r"(the|more|other|these|an?|each|all|every|two|three|its) shows?(?! (the|a|how|what|that)\b)", "scenario"),
    Word(r"ghosts?|stillborn|courtesy|courtesies|poke|pokes|poked|lookout", "what it does"),
    Word(r"hurts?", "affect, harm"),
    Word(r"tidy|tidies|tidied|tidying", "clean up"),
)

HISTORY = ("docs/decisions",)
"""Not rewritten: they say what was decided, in the words of that day."""

PYTHON = ("daemon", "healthchecks", "training", "tests", "bench", ".ci", "docs", "lifecycle-scripts", "slurm-plugins")
ABOUT_WORDS = (".ci/words.py", "tests/rules/test_words.py")


@dataclass(frozen=True, slots=True)
class Hit:
    """One such word in a file."""

    path: str
    line: int
    found: str
    instead: str

    def __str__(self) -> str:
        return f'{self.path}:{self.line}: words: "{self.found}": write {self.instead} (or end the line in "# word: the reason")'


_ANY = re.compile(
    "|".join(rf"(?P<w{n}>(?<![\w-])(?:{word.pattern})(?![\w=-]))" for n, word in enumerate(WORDS)), re.IGNORECASE
)
_CODE = re.compile(r"^ *```.*?^ *```|``.*?``|`[^`]*`|\]\([^)\s]*\)", re.DOTALL | re.MULTILINE)
"""What is quoted in a text: fenced and inline code, and the targets of links."""
_EXCUSE = re.compile(r"(#|<!--|//) word: \S")


def hits(path: str, source: str) -> list[Hit]:
    """Words of ``WORDS`` in a file. ``path``: from the root of the repository, with slashes."""
    texts = _texts(path, source)
    lines = source.splitlines()
    found = (hit for first, text in texts for hit in _in_text(path, first, text))
    return sorted((h for h in found if not _excused(lines, h.line)), key=lambda h: h.line)


def _texts(path: str, source: str) -> Iterator[tuple[int, str]]:
    """What people read in a file, each text with its first line."""
    if path.endswith(".py"):
        yield from _literals(source)
    elif path.endswith(".md"):
        yield 1, _unreleased(source) if path == "CHANGELOG.md" else source
    else:
        for match in (_C if path.endswith((".c", ".h")) else _SHELL).finditer(source):
            comment, quoted = match["comment"], match["quoted"]
            text = (
                re.sub(r"(?m)^[ \t]*(#+|/?\*+|//)", " ", comment)
                if comment
                else re.sub(r"\$[{(]?\w*", "\x00", quoted or "")
            )
            if " " in text.strip():
                yield source.count("\n", 0, match.start()) + 1, text


_SHELL = re.compile(
    r"(?P<comment>(?:(?:^|(?<=\s))#[^\n]*(?:\n(?=[ \t]*#)[ \t]*)?)+)|\\."
    r"|(?P<quoted><<-?'?(?P<end>\w+)'?[^\n]*\n.*?^[ \t]*(?P=end)$|'[^']*'|\"(?:\\.|[^\"\\])*\")",
    re.DOTALL | re.MULTILINE,
)
_C = re.compile(r"(?P<comment>/\*.*?\*/|//[^\n]*)|'(?:\\.|[^'\\])+'|(?P<quoted>\"(?:\\.|[^\"\\])*\")", re.DOTALL)
"""Comments and quoted texts; what is matched without a name (an escaped or a single character) is passed over."""


def _literals(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of each literal that has a space. What is put into an f-string counts as code: `{job} told {owner}` has a space."""
    inside: set[ast.AST] = set()
    for node in ast.walk(ast.parse(source)):
        if node in inside:
            continue
        if isinstance(node, ast.JoinedStr):
            inside.update(node.values)
            text = "".join(str(p.value) if isinstance(p, ast.Constant) else "\x00" for p in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        else:
            continue
        if " " in text.strip():
            yield node.lineno, text


def _unreleased(changelog: str) -> str:
    """The part before the first release. The lines stay where they are."""
    parts = re.split(r"^(?=## )", changelog, flags=re.MULTILINE)
    return "".join(parts[:2])


def _in_text(path: str, first: int, text: str) -> Iterator[Hit]:
    plain = _CODE.sub(lambda code: " \x00 " + "\n" * code.group().count("\n"), text)
    words = [(word, first + n) for n, line in enumerate(plain.split("\n")) for word in line.split()]
    joined = " ".join(word for word, _ in words)
    for match in _ANY.finditer(joined):
        number = int(str(match.lastgroup).removeprefix("w"))
        yield Hit(path, words[joined.count(" ", 0, match.start())][1], match.group(), WORDS[number].instead)


def _excused(lines: list[str], line: int) -> bool:
    return bool(_EXCUSE.search(lines[min(line, len(lines)) - 1]))


@cache
def files() -> list[str]:
    """All files that are read."""
    python = (file for folder in PYTHON for file in (ROOT / folder).rglob("*.py"))
    pages = (ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md"))
    scripts = (file for folder in PYTHON for kind in ("*.sh", "*.c", "*.h") for file in (ROOT / folder).rglob(kind))
    paths = {file.relative_to(ROOT).as_posix() for file in (*python, *pages, *scripts, ROOT / "dev")}
    return sorted(path for path in paths if not within(path, (*HISTORY, *ABOUT_WORDS)))


def within(path: str, places: tuple[str, ...]) -> bool:
    return any(path == place or path.startswith(f"{place}/") for place in places)


def main() -> int:
    found = [hit for path in files() for hit in hits(path, (ROOT / path).read_text())]
    for hit in found:
        print(hit)  # noqa: T201
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
