"""The reference page of the command line, written from it."""

from __future__ import annotations

import argparse

from holdfast_checks.cli.parser import parser

_NOTE = "<!-- Written by docs/generate.py from the code; do not edit. -->\n"


def render() -> str:
    """Every verb of ``holdfast-checks`` with its options."""
    root = parser()
    lines = [
        "# holdfast-checks",
        "",
        _NOTE,
        "What it is for, with examples: [../holdfast-checks.md](../holdfast-checks.md).",
        "",
    ]
    (verbs,) = [action for action in root._actions if isinstance(action, argparse._SubParsersAction)]
    for name, verb in verbs.choices.items():
        shown = [action for action in verb._actions if action.dest != "help"]
        words = [_argument(action) for action in shown if not action.option_strings]
        lines += [
            f"## `{' '.join(['holdfast-checks', name, *words])}`",
            "",
            f"{str(verb.description).capitalize()}.",
            "",
        ]
        options = [action for action in shown if action.option_strings or action.help]
        if options:
            lines += ["| option | meaning |", "|---|---|"]
            lines += [f"| `{_option(action)}` | {_cell(action.help or '')} |" for action in options]
            lines.append("")
    return "\n".join(lines)


def _argument(action: argparse.Action) -> str:
    name = str(action.metavar or action.dest.upper())
    return {"*": f"[{name} …]", "?": f"[{name}]"}.get(str(action.nargs), name)


def _option(action: argparse.Action) -> str:
    if not action.option_strings:
        return _argument(action)
    value = f" {action.metavar}" if action.metavar else ""
    return f"{', '.join(action.option_strings)}{value}"


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
