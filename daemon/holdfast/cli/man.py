"""Manual pages of every command, made from the commands themselves: ``python -m holdfast.cli.man FOLDER``."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from holdfast import __version__

ENVIRONMENT: Mapping[str, str] = {
    "HOLDFAST_URL": "The controller, such as https://head:8460; default http://127.0.0.1:8460.",
    "HOLDFAST_TOKEN, HOLDFAST_TOKEN_FILE": "The token, or the file that holds it; else ~/.config/holdfast/token.",
    "HOLDFAST_CA_FILE": "The authority of the controller's certificate.",
    "HOLDFAST_CONFIG": "The controller's settings; default /etc/holdfast/controller.toml.",
    "TZ": "The zone of times that are typed as words, and of those that are shown without UTC.",
}
STATUS = {
    "0": "Done.",
    "1": "A problem was found, or it was refused.",
    "2": "Wrong use, configuration or rights.",
    "3": "The controller, the database or Slurm does not answer.",
}


def pages() -> dict[str, str]:
    """File name → page, one for each command and each group."""
    from holdfast.cli.app import command  # noqa: PLC0415

    found = dict(_walk(command(), ("holdfast",)))
    names = sorted(found)
    return {f"{name}.1": _page(name, found[name], names) for name in names}


def _walk(command: Any, path: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    yield "-".join(path), (path, command)
    for name, inner in sorted(getattr(command, "commands", {}).items()):
        if not inner.hidden:
            yield from _walk(inner, (*path, name))


def _page(name: str, found: tuple[tuple[str, ...], Any], names: list[str]) -> str:
    path, command = found
    text = " ".join((command.help or "").split())
    first = text.partition(". ")[0].rstrip(".")
    lines = [
        f'.TH "{name.upper()}" 1 "" "Holdfast {__version__}" "Holdfast"',
        ".SH NAME",
        f"{plain(name)} \\- {plain(first)}",
        ".SH SYNOPSIS",
        ".nh",
        _synopsis(path, command),
        ".hy",
        ".SH DESCRIPTION",
        plain(text),
        *_parameters(command),
        *_commands(path, command),
        *_section("EXIT STATUS", STATUS),
        *_section("ENVIRONMENT", ENVIRONMENT),
        ".SH SEE ALSO",
        ", ".join(f"\\fB{plain(each)}\\fR(1)" for each in _related(name, names)),
    ]
    return "\n".join(line for line in lines if line) + "\n"


def _synopsis(path: tuple[str, ...], command: Any) -> str:
    words = [f"\\fB{plain(' '.join(path))}\\fR"]
    if any(p.param_type_name == "option" for p in command.params):
        words.append("[\\fIOPTIONS\\fR]")
    words += [f"\\fI{plain(_metavar(p))}\\fR" for p in command.params if p.param_type_name == "argument"]
    if getattr(command, "commands", None):
        words.append("\\fICOMMAND\\fR [\\fIARGUMENTS\\fR]")
    return " ".join(words)


def _metavar(parameter: Any) -> str:
    name = str(parameter.metavar or parameter.name.upper())
    return name if parameter.required or name.startswith("[") else f"[{name}]"


def _parameters(command: Any) -> Iterator[str]:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option" and not getattr(p, "hidden", False)]
    if arguments:
        yield from _section("ARGUMENTS", {_metavar(p): p.help or "" for p in arguments})
    if options:
        yield from _section("OPTIONS", {_option(p): p.help or "" for p in options})


def _option(parameter: Any) -> str:
    names = ", ".join(sorted((*parameter.opts, *parameter.secondary_opts), key=len))
    takes = "" if parameter.is_flag else f" {parameter.metavar or parameter.name.upper()}"
    return f"{names}{takes}"


def _commands(path: tuple[str, ...], command: Any) -> Iterator[str]:
    inner = {name: c for name, c in sorted(getattr(command, "commands", {}).items()) if not c.hidden}
    if inner:
        yield from _section(
            "COMMANDS", {" ".join((*path[1:], name)): c.get_short_help_str(120) for name, c in inner.items()}
        )


def _section(title: str, entries: Mapping[str, str]) -> Iterator[str]:
    yield f".SH {title}"
    for name, text in entries.items():
        yield ".TP"
        yield f"\\fB{plain(name)}\\fR"
        yield plain(" ".join(text.split())) or "\\&"


def _related(name: str, names: list[str]) -> list[str]:
    """The group above, the commands below, and its neighbours."""
    above = name.rpartition("-")[0]
    near = [n for n in names if n != name and (n == above or n.rpartition("-")[0] in (name, above))]
    return near[:12] or ["holdfast"]


_MARKS = re.compile(r"`([^`]*)`")


def plain(text: str) -> str:
    """As roff takes it literally; what is quoted as code is bold."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    escaped = "".join(c if c.isascii() else f"\\[u{ord(c):04X}]" for c in escaped)
    marked = _MARKS.sub(r"\\fB\1\\fR", escaped)
    return f"\\&{marked}" if marked.startswith((".", "'")) else marked


def main(argv: list[str] | None = None) -> int:
    """Write all pages into a folder."""
    given = sys.argv[1:] if argv is None else argv
    if len(given) != 1:
        sys.stderr.write("usage: python -m holdfast.cli.man FOLDER\n")
        return 2
    folder = Path(given[0])
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (folder / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
