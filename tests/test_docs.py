"""What the documentation names exists: links, commands, verbs, settings, endpoints, checks, and a runbook page for each message."""

from __future__ import annotations

import ast
import functools
import re
import shlex
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

import site_links
from holdfast.cli.app import app
from holdfast.config.example import rows
from holdfast.model.event import EventKind
from holdfast.model.notice import RUNBOOKS, Topic
from holdfast_checks.known import all_checks

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    page
    for top in ROOT.iterdir()
    if not top.name.startswith(".")  # not to be walked through: .cache may hold whole systems
    for page in (top.rglob("*.md") if top.is_dir() else [top])
    if page.suffix == ".md"
    and not any(part.startswith(".") or part == "node_modules" for part in page.relative_to(ROOT).parts)
)
IDS = [str(page.relative_to(ROOT)) for page in PAGES]
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"`([^`\n]+)`")


@cache
def prose(page: Path) -> str:
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


@cache
def anchors(page: Path) -> set[str]:
    """As GitHub makes them from headings."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", text).strip().replace(" ", "-")
        number, unique = 0, slug
        while unique in found:
            number += 1
            unique = f"{slug}-{number}"
        found.add(unique)
    return found


def in_pages(problems: Callable[[Path], Iterable[str]]) -> list[str]:
    """What is wrong in any page, with the page's name."""
    return [f"{name}: {problem}" for page, name in zip(PAGES, IDS, strict=True) for problem in problems(page)]


def broken_links(page: Path) -> Iterator[str]:
    for target in _LINK.findall(prose(page)):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        there = (page.parent / name).resolve() if name else page
        if not there.exists():
            yield f"{target}: no such file"
        elif anchor and anchor not in anchors(there):
            yield f"{target}: no such heading"


def test_every_link_leads_somewhere() -> None:
    assert in_pages(broken_links) == []


def test_broken_links_would_be_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Here\n\n[a](page.md#here) [b](none.md) [c](#there) [d](https://example.org/x)\n")
    assert list(broken_links(page)) == ["none.md: no such file", "#there: no such heading"]


def test_every_page_is_reached_from_the_readme() -> None:
    seen: set[Path] = set()
    todo = [ROOT / "README.md"]
    while todo:
        page = todo.pop()
        seen.add(page)
        local = (target.partition("#")[0] for target in _LINK.findall(prose(page)) if ":" not in target)
        todo += [
            p for name in local if name and (p := (page.parent / name).resolve()).suffix == ".md" and p not in seen
        ]
    assert [str(p.relative_to(ROOT)) for p in PAGES if p not in seen] == []


def test_every_page_is_in_the_navigation_of_the_site_once() -> None:
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    named = re.findall(r"^ +- (?:.+: )?(\S+\.md)$", nav, re.MULTILINE)
    pages = [page.relative_to(ROOT / "docs").as_posix() for page in PAGES if page.is_relative_to(ROOT / "docs")]
    assert sorted(named) == sorted([*pages, *site_links.PAGES.values()])


def test_a_link_of_the_repository_is_one_of_the_site() -> None:
    text = "[a](../README.md#use-it) [b](x.md) [c](../daemon/holdfast/ports.py) [d](#here) [e](https://example.org/x)\n"
    fence = "```\n[a](../README.md)\n```\n"
    site = (
        "[a](index.md#use-it) [b](x.md) [c](source/daemon/holdfast/ports.py.md) [d](#here) [e](https://example.org/x)\n"
    )
    assert site_links.for_site(text + fence, "docs/page.md") == site + fence
    assert site_links.for_site("[a](docs/iam/ec2.json)", "README.md") == "[a](iam/ec2.json)"
    assert site_links.for_site("[a](../ports.md)", "docs/iam/page.md") == "[a](../ports.md)"
    assert list(site_links.linked(text + fence, "docs/page.md")) == [
        "README.md",
        "docs/x.md",
        "daemon/holdfast/ports.py",
    ]


_REPOSITORY_PATH = re.compile(
    r"(?:daemon|healthchecks|training|tests|docs|bench|lifecycle-scripts|slurm-plugins)/[\w./-]+"
)
_TO_BE_NAMED = re.compile(r"/(?:NAME|KIND)\b")


def test_every_file_that_a_recipe_names_exists() -> None:
    page = (ROOT / "docs" / "contributing.md").read_text(encoding="utf-8")
    paths = [span for line in page.splitlines() for span in _SPAN.findall(line) if _REPOSITORY_PATH.fullmatch(span)]
    assert len(paths) >= 40
    assert [path for path in paths if not _TO_BE_NAMED.search(path) and not (ROOT / path).exists()] == []


def command_lines(page: Path) -> Iterator[str]:
    """What a reader would type: lines of console and sh blocks, and code spans."""
    text = page.read_text(encoding="utf-8")
    for language, block in _FENCE.findall(text):
        if language == "console":
            yield from (line[2:] for line in block.splitlines() if line.startswith("$ "))
        elif language in ("sh", "bash"):
            yield from block.splitlines()
    yield from _SPAN.findall(prose(page))


def _words(command: str) -> list[str]:
    """Of one command: up to a comment, pipe, redirection or the end of a substitution."""
    command = re.split(r"\s#|[;|<>)]|\$\(|&&|…", command)[0]
    try:
        return shlex.split(command)
    except ValueError:
        return command.split()


def holdfast_commands(page: Path) -> Iterator[list[str]]:
    for typed in command_lines(page):
        line = re.split(r"\s#\s", typed)[0]
        for match in re.finditer(r"(?:^|[\s(\"/])holdfast (?=[a-z-])", line):
            before = line[: match.start()].rsplit(";", 1)[-1]
            if not re.search(r"(apt|pip|usermod|install|User=|Group=|-name=|--comment=|group|reservation)", before):
                yield _words(line[match.end() :])


@cache
def tree() -> Any:
    return typer.main.get_command(app)


def _wrong(words: list[str]) -> str:
    """The parts of a command that do not exist; empty: all of it does."""
    command: Any = tree()
    rest = list(words)
    while rest and getattr(command, "commands", None) and not rest[0].startswith("-"):
        for name in rest[0].split("|"):
            if name not in command.commands:
                return name
        command = command.commands[rest.pop(0).split("|")[0]]
    if getattr(command, "name", "") in ("agent", "run"):
        return ""  # argparse, so that a node needs no typer
    known = {name for p in command.params for name in (*p.opts, *p.secondary_opts)} | {"--help"}
    return next((w for w in rest if re.match(r"--?[a-z]", w) and w.partition("=")[0] not in known), "")


def wrong_commands(page: Path) -> list[str]:
    return [f"{' '.join(words)}: {wrong}" for words in holdfast_commands(page) if (wrong := _wrong(words))]


def test_every_holdfast_command_exists() -> None:
    assert in_pages(wrong_commands) == []


def test_wrong_commands_would_be_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "`holdfast nope` and `holdfast incident mend ID`\n\n```console\n$ sudo -u x holdfast nodes --nope\n```\n"
    )
    assert sorted(_wrong(words) for words in holdfast_commands(page)) == ["--nope", "mend", "nope"]


def test_the_readme_has_commands() -> None:
    assert sum(1 for _ in holdfast_commands(ROOT / "README.md")) >= 8


def test_every_verb_of_dev_exists() -> None:
    cases = re.findall(r"^([a-z0-9.| -]+)\)", (ROOT / "dev").read_text(), re.MULTILINE)
    verbs = {verb.strip() for case in cases for verb in case.split("|")}
    assert {"setup", "demo", "test"} <= verbs
    named = {verb for page in PAGES for line in command_lines(page) for verb in re.findall(_DEV, line)}
    assert len(named) > 5
    assert named - verbs == set()


_DEV = re.compile(r"(?:^|\s)\./dev ([a-z][\w.-]*)")


@functools.cache
def settings_known() -> frozenset[tuple[str, str]]:
    return frozenset((row.section, row.key) for row in rows())


def settings_named(page: Path) -> list[tuple[str, str]]:
    return re.findall(r"`\[([a-z]+)\] ([a-z0-9_]+)(?: = [^`]*)?`", prose(page))


def test_every_setting_that_is_named_exists() -> None:
    assert sum(len(settings_named(page)) for page in PAGES) > 50
    assert (
        in_pages(lambda page: [f"[{s}] {key}" for s, key in settings_named(page) if (s, key) not in settings_known()])
        == []
    )


def test_the_reference_leaves_nothing_out() -> None:
    reference = {page.name: page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "reference").glob("*.md")}
    for check in all_checks().values():
        assert f"`{check.id}`" in reference["checks.md"]
    for kind in EventKind:
        assert f"`{kind.value}`" in reference["events.md"]
    for row in rows():
        assert f"| `{row.key}` |" in reference["configuration.md"]


def test_milestones_are_events() -> None:
    known = {kind.value for kind in EventKind}
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    milestones = page.partition("## Milestones")[2].partition("\n## ")[0]
    named = re.findall(r"`([a-z_]+\.[a-z_]+)`", milestones)
    assert len(named) >= 8
    assert set(named) <= known


def _calls_an_operator(call: ast.Call) -> bool:
    """Whether this makes a message to operators; one with a ``user`` is the job's owner's, who has no runbook."""
    named = isinstance(call.func, ast.Name) and call.func.id == "Notify"
    return named and not any(word.arg == "user" for word in call.keywords)


def _subjects() -> Iterator[tuple[str, list[str]]]:
    """Every message to an operator: where it is made, and the fixed words of its subject."""
    for file in sorted((ROOT / "daemon" / "holdfast" / "decisions").rglob("*.py")):
        module = ast.parse(file.read_text(encoding="utf-8"))
        given = {
            node.targets[0].id: node.value
            for node in ast.walk(module)
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        }
        for node in ast.walk(module):
            if isinstance(node, ast.Call) and _calls_an_operator(node):
                subject = node.args[0]
                subject = given[subject.id] if isinstance(subject, ast.Name) else subject
                for each in (subject.body, subject.orelse) if isinstance(subject, ast.IfExp) else (subject,):
                    yield f"{file.name}:{node.lineno}", _fixed_words(each)


def _fixed_words(subject: ast.expr) -> list[str]:
    parts = subject.values if isinstance(subject, ast.JoinedStr) else [subject]
    words = [str(p.value) for p in parts if isinstance(p, ast.Constant)]
    return [word for word in words if any(c.isalpha() for c in word)]


HEADLINES = {
    "respond.py": ("`job.hung: ", "`job.stall: "),
    "held_notices.py": ("`job.held: ",),
    "pair_probes.py": ("`job.unexplained: ", "`pair probes failed: "),
}
"""Modules with a subject that is the incident's headline and nothing else: how these headlines begin."""


def _notices() -> Iterator[tuple[str, list[str]]]:
    """Every message to an operator: where it is made, and what it says of its level and topic."""
    for file in sorted((ROOT / "daemon" / "holdfast" / "decisions").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and _calls_an_operator(node):
                said = [*node.args[2:4], *(word.value for word in node.keywords)]
                yield f"{file.name}:{node.lineno}", [ast.unparse(each) for each in said]


@pytest.mark.slow
def test_every_message_to_a_human_says_its_level_and_topic() -> None:
    found = list(_notices())
    assert len(found) >= 15
    for where, said in found:
        assert said[0].startswith("NoticeLevel."), where
        assert said[1].startswith("Topic."), where
        assert said[1] != "Topic.OTHER", where


def test_every_topic_is_explained_and_its_runbook_is_the_one_of_its_messages() -> None:
    page = (ROOT / "docs" / "notifications.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`[a-z_`, ]+) \| (.+) \|$", page.partition("## Topics")[2], re.MULTILINE)
    named = {topic: text for topics, text in rows for topic in re.findall(r"`([a-z_]+)`", topics)}
    assert set(named) == set(Topic)
    for topic, runbook in RUNBOOKS.items():
        assert (ROOT / "docs" / runbook).is_file()
        assert f"({runbook})" in named[topic] or (runbook, named[topic]) == ("notifications.md", "this page"), topic


@pytest.mark.slow
def test_every_message_to_a_human_has_a_runbook() -> None:
    messages = re.findall(
        r"^\| (.+) \| \[", (ROOT / "docs/runbooks/README.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    found = list(_subjects())
    assert len(found) >= 4
    for where, words in found:
        file = where.partition(":")[0]
        assert words or file in HEADLINES, f"{where}: no fixed word in its subject; name its headlines in HEADLINES"
        for headline in () if words else HEADLINES[file]:
            assert any(headline in message for message in messages), f"{where}: {headline}"
        assert any(all(w.strip() in message for w in words) for message in messages), f"{where}: {words}"


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ('f"{headline}"', []),
        ("incident.headline", []),
        ('f"{a}: {b}"', []),
        ('f"{node} stays DOWN"', [" stays DOWN"]),
        ('"all of it"', ["all of it"]),
    ],
)
def test_a_subject_that_is_only_a_headline_names_no_runbook(source: str, words: list[str]) -> None:
    assert _fixed_words(ast.parse(source, mode="eval").body) == words


def test_every_page_that_a_message_names_is_one_that_the_command_prints() -> None:
    code = "".join(f.read_text(encoding="utf-8") for f in (ROOT / "daemon" / "holdfast").rglob("*.py"))
    named = set(re.findall(r"holdfast runbook ([a-z][a-z-]+)", code))
    assert len(named) >= 10
    assert [name for name in sorted(named) if not (ROOT / "docs" / "runbooks" / f"{name}.md").is_file()] == []


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "runbooks").glob("[a-z]*.md")), ids=lambda p: str(p.name))
def test_a_runbook_says_what_to_do(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for part in ("**Means.**", "**Look.**", "**Act.**", "**Over** when"):
        assert part in text


def test_the_proxy_proves_the_controller_before_it_sends_its_secret() -> None:
    """The port is free for any user while no controller runs."""
    recipe = (ROOT / "docs/dashboard.md").read_text().partition("```nginx")[2].partition("```")[0]
    assert "proxy-secret" in recipe or "holdfast-secret" in recipe
    for line in ("proxy_ssl_verify on;", "proxy_ssl_trusted_certificate ", "proxy_ssl_name "):
        assert line in recipe
