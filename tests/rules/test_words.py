"""The linter of words refuses what it is for, and leaves code alone."""

from __future__ import annotations

import pytest

from support.linters import load

words = load("words")

REFUSED = (
    "the agents are told of it",
    "acts on the check's word",
    "no agent was heard from n1",
    "found at the last look",
    "nobody's machine",
    "it waits for a human",
    "whoever drained it",
    "to be decided anew",
    "a key beside its certificate",
    "the begin of the window",
    "for so long it waits",
    "at most so many times",
    "Slurm drains it by itself",
    "a database of its own",
    "why it stands where it stands",
    "what stands there",
    "the job goes on without it",
    "a launch that is on its way",
    "the address was put down",
    "to mend a node",
    "the hardware was let go",
    "WHY IT STANDS THERE",
    "the column IF IT MAY ACT",
    "the rooms of elastic jobs",
    "what the book says",
    "the shows of the demo",
    "a ghost of a job",
    "what would hurt recovery",
    "tidy up what is left",
)

FINE = (
    "a new rung of the ladder; the agent is silent",
    "it looks like a fault of the node; look for it in the log",
    "mode stands for what it may do",
    "there is no room for more, and it needs room to grow",
    "the node carries on standard output",
    "docs/runbooks/nobodys-machine.md tells-apart",
    "this long, this many, no one, an operator",
    "the runbook shows the command",
    "`told` and ``beside`` are names in code",
)


@pytest.mark.parametrize("text", REFUSED)
def test_a_word_is_refused_in_a_page_and_in_a_literal(text: str) -> None:
    assert words.hits("docs/x.md", f"# Page\n\n{text}.\n")[0].line == 3
    assert words.hits("daemon/x.py", f'def f():\n    """Return.\n\n    {text}."""\n')[0].line == 4
    assert words.hits("daemon/x.py", f'raise ValueError(f"{{node}}: {text}")')


@pytest.mark.parametrize("text", REFUSED)
def test_a_word_is_refused_in_comments_and_messages_of_scripts(text: str) -> None:
    for source in (
        f"echo one\n\n# {text}",
        f'x=$# y=${{x#z}}\n\nsay "$node: {text}"',
        f"\n\n\tsay 'now: {text.replace(chr(39), '’')}'",
        f"cat <<'END'\na\n  {text}\nEND\n",
    ):
        assert {hit.line for hit in words.hits("lifecycle-scripts/x.sh", source)} == {3}
        assert words.hits("dev", source)
    assert words.hits("slurm-plugins/x.c", f"char c = '\"';\n\n/* So that {text}. */")[0].line == 3
    assert words.hits("slurm-plugins/x.c", f'fail("%s: {text}", node); // fine')


def test_a_word_over_two_lines_of_a_comment_is_refused() -> None:
    assert [hit.found for hit in words.hits("x.sh", "# it does so on\n# its way\n")] == ["on its way"]
    assert [hit.found for hit in words.hits("x.c", "/* it does so on\n * its way */\n")] == ["on its way"]


def test_code_of_scripts_is_let_pass() -> None:
    source = 'case $told in room) mend ;; esac\nsay "$told"\nx=${beside#a}\necho told # word: a command\'s name\n'
    assert words.hits("x.sh", source) == []
    assert words.hits("x.c", "int hf_tell(int told); /* a told */ // word: a name\n") == []


@pytest.mark.parametrize("text", FINE)
def test_standard_terms_and_code_are_let_pass(text: str) -> None:
    assert words.hits("docs/x.md", text) == []
    assert words.hits("daemon/x.py", f'TEXT = "{text}"') == []


def test_every_word_is_planted() -> None:
    every = {word.instead for word in words.WORDS}
    assert {hit.instead for text in REFUSED for hit in words.hits("docs/x.md", text)} == every


def test_a_phrase_is_found_over_the_end_of_a_line() -> None:
    assert [(hit.line, hit.found) for hit in words.hits("docs/x.md", "Slurm drains it\nby\nitself.")] == [
        (2, "by itself")
    ]


def test_names_comments_values_and_fences_are_not_read() -> None:
    assert words.hits("daemon/x.py", "told = book.beside  # nobody's word\nSTATE = 'heard'\n") == []
    assert words.hits("docs/x.md", "```\nit told nobody\n```\n\n[page](nobody)\n") == []


def test_a_reason_excuses_a_line() -> None:
    assert words.hits("daemon/x.py", 'TEXT = "user nobody was told"  # word: a Unix account, and Slurm\'s text') == []
    assert words.hits("docs/x.md", "user nobody <!-- word: a Unix account -->") == []


def test_released_parts_of_the_changelog_are_history() -> None:
    log = "# Changelog\n\n## Unreleased\n\n- plain\n\n## 0.1\n\n- nobody was told\n"
    assert words.hits("CHANGELOG.md", log) == []
    assert words.hits("CHANGELOG.md", log.replace("plain", "anew"))[0].line == 5
