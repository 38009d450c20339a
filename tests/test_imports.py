"""Import rules that pyproject.toml cannot express: allow-lists, clocks in pure code, and what a node really loads."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DAEMON = ROOT / "daemon" / "holdfast"
CHECKPOINT = ROOT / "training" / "holdfast_checkpoint"

PURE_STDLIB = frozenset(
    {
        "__future__",
        "bisect",
        "collections",
        "dataclasses",
        "datetime",
        "enum",
        "errno",
        "fnmatch",
        "functools",
        "hashlib",
        "heapq",
        "hmac",
        "ipaddress",
        "itertools",
    }
    | {"math", "operator", "re", "statistics", "types", "typing", "zlib", "zoneinfo"}
)
"""Nothing here reads a clock (but datetime's own calls, looked for below), draws a number, or reaches outside."""
CLOCK_CALLS = frozenset({"now", "utcnow", "today", "time", "monotonic", "perf_counter"})
CLOCKS = frozenset({"now", "utcnow", "today"})
"""Of ``datetime`` and ``date``: also without a call they may be handed on, or be a default that somebody calls later."""  # word: code
OUTSIDE = frozenset({"open", "__import__", "input", "print", "exec", "eval", "compile", "breakpoint", "globals"})
"""Built-in functions that reach files, people or other modules."""
WAYS_OUT = frozenset({"os", "sys", "io", "importlib", "builtins", "environ", "getenv", "__builtins__", "__loader__"})
"""Modules, and what reaches them, that a pure module of the standard library has as attributes: ``functools.os.environ``."""

PURE_FOLDERS = ("decisions", "metrics", "model")
"""May import each other, and nothing else of the daemon."""
NODE_PACKAGES = frozenset({"psutil", "pynvml", "urllib3"})
"""Everything outside the standard library that an agent may load (brotli and the like: urllib3 takes what it finds)."""
URLLIB3_OPTIONAL = frozenset({"brotli", "brotlicffi", "zstandard", "h2", "hpack", "hyperframe", "socks", "backports"})
OURS = frozenset({"holdfast", "holdfast_checks", "holdfast_checkpoint"})


def imported(source: str) -> Iterator[str]:
    """Dotted names of everything that a module imports, wherever in it."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide where a name comes from"
            yield node.module or ""


def clock_calls(source: str) -> list[str]:
    """Calls such as ``datetime.now()``."""
    calls = (node.func for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    return [ast.unparse(func) for func in calls if isinstance(func, ast.Attribute) and func.attr in CLOCK_CALLS]


def ways_out(source: str) -> list[str]:
    """References, called or not, to clocks, files, the environment and other modules, in the order of the text."""
    tree = ast.parse(source)
    nodes = (node for node in ast.walk(tree) if isinstance(node, ast.Name | ast.Attribute | ast.Call))
    bound = dict(_bound(tree))
    found = [node for node in nodes if _is_way_out(node, bound)]
    return [ast.unparse(node) for node in sorted(found, key=lambda n: (n.lineno, n.col_offset))]


def _bound(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Names for classes of ``datetime`` and for the module ``time``, and what they stand for."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import) or (isinstance(node, ast.ImportFrom) and node.module == "datetime"):
            yield from ((alias.asname or alias.name, f"{_prefix(node)}{alias.name}") for alias in node.names)


def _prefix(node: ast.Import | ast.ImportFrom) -> str:
    return "" if isinstance(node, ast.Import) else "datetime."


def _is_way_out(node: ast.AST, bound: dict[str, str]) -> bool:
    match node:
        case ast.Name(id=name, ctx=ast.Load()):
            return name in OUTSIDE | WAYS_OUT
        case ast.Attribute(value=ast.Name(id=module)) if bound.get(module) == "time":
            return True
        case ast.Attribute(value=of, attr=name):
            base = of.attr if isinstance(of, ast.Attribute) else of.id if isinstance(of, ast.Name) else ""
            clock = name in CLOCKS and bound.get(base, base).removeprefix("datetime.") in ("datetime", "date")
            return clock or name in WAYS_OUT
        case ast.Call(func=ast.Name(id="getattr"), args=[_, ast.Constant(value=name), *_]):
            return name in CLOCKS | OUTSIDE | WAYS_OUT
    return False


def pure_modules() -> list[Path]:
    folders = (path for folder in PURE_FOLDERS for path in (DAEMON / folder).rglob("*.py"))
    return sorted([*folders, DAEMON / "agent" / "timing" / "schedule.py"])


@pytest.mark.parametrize("path", ["words.py", "settings/option.py"])
def test_what_pure_modules_may_import_is_pure(path: str) -> None:
    source = (ROOT / "healthchecks" / "holdfast_checks" / path).read_text()
    assert {name for name in imported(source) if name.split(".")[0] not in PURE_STDLIB} == set()


def strangers(source: str, folder: str) -> set[str]:
    """Imports of a pure module that are not on the list."""
    ours = ("acting", "result", "settings.option", "words")
    allowed = ["holdfast.model", *(f"holdfast_checks.{name}" for name in ours)]
    if folder != "model":
        allowed += ["holdfast.decisions", "holdfast.metrics"]
    return {
        name
        for name in imported(source)
        if name.split(".")[0] not in PURE_STDLIB and not any(name == a or name.startswith(a + ".") for a in allowed)
    }


@pytest.mark.slow
def test_pure_modules() -> None:
    impure = {}
    for path in pure_modules():
        source = path.read_text()
        if found := [*strangers(source, path.relative_to(DAEMON).parts[0]), *clock_calls(source), *ways_out(source)]:
            impure[str(path.relative_to(DAEMON))] = found
    assert impure == {}
    assert len(pure_modules()) > 200


def test_every_pure_folder_is_there() -> None:
    """One that no longer exists would go unwatched."""
    assert [folder for folder in PURE_FOLDERS if not (DAEMON / folder / "__init__.py").is_file()] == []


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import time", {"time"}),
        ("def f():\n    import random", {"random"}),
        ("from holdfast.store import x", {"holdfast.store"}),
        ("from holdfast.modelling import x", {"holdfast.modelling"}),
        ("from holdfast.model.book import Book\nfrom collections.abc import Mapping", set()),
    ],
)
def test_a_planted_import_is_found(source: str, found: set[str]) -> None:
    assert strangers(source, "model") == found


def test_a_planted_clock_is_found() -> None:
    assert clock_calls("x = datetime.now(UTC)\ny = self.clock.monotonic()") == ["datetime.now", "self.clock.monotonic"]
    assert clock_calls("x = world.now - start") == []


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("text = open('/etc/hosts').read()", ["open"]),
        ("read = open", ["open"]),
        ("os = __import__('os')", ["__import__"]),
        ("import importlib\nimportlib.import_module('os')", ["importlib"]),
        ("import os\nos.environ['HOME']", ["os.environ", "os"]),
        ("import functools\nfunctools.os.getenv('HOME')", ["functools.os.getenv", "functools.os"]),
        ("from datetime import datetime\ndef f(now=datetime.now): pass", ["datetime.now"]),
        ("from datetime import datetime as at\nclock = at.utcnow", ["at.utcnow"]),
        ("import datetime\nclock: object = field(default_factory=datetime.date.today)", ["datetime.date.today"]),
        ("import time as t\nseconds = t.time", ["t.time"]),
        ("import time\ndef f(clock=time.monotonic): pass", ["time.monotonic"]),
        ("from datetime import datetime\nread = getattr(datetime, 'now')", ["getattr(datetime, 'now')"]),
        ("exec('import os')", ["exec"]),
        ("now = world.now; since = self.now - start; view.open; re.compile('x'); book.sys_time", []),
        ("from datetime import time\nnoon = time.min; open_ones = [i for i in found if i.open]", []),
    ],
)
def test_a_planted_way_out_is_found(source: str, found: list[str]) -> None:
    assert ways_out(source) == found


def loaded_by(module: str) -> set[str]:
    """Top-level packages outside the standard library that importing a module loads, in a fresh interpreter."""
    code = f"import sys, {module}; print('\\n'.join({{m.partition('.')[0] for m in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    plain = subprocess.run(
        [sys.executable, "-c", code.replace(f", {module}", "")], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split()) - set(plain.stdout.split()) - sys.stdlib_module_names


@pytest.mark.slow
def test_a_node_needs_few_packages() -> None:
    """The agent's import closure; the NVML binding is loaded late, in the child that may hang."""
    loaded = loaded_by("holdfast.agent.main, holdfast.agent.agent")
    assert loaded - URLLIB3_OPTIONAL - OURS <= NODE_PACKAGES
    assert "holdfast" in loaded


@pytest.mark.slow
def test_the_process_with_rights_has_no_web_server() -> None:
    assert not loaded_by("holdfast.head.actor_main") & {"fastapi", "starlette", "uvicorn", "h11", "httptools"}


def test_the_jobs_library_needs_the_standard_library_alone() -> None:
    names = {name for path in CHECKPOINT.rglob("*.py") for name in imported(path.read_text())}
    outside = {name for name in names if name.split(".")[0] not in sys.stdlib_module_names}
    assert {name for name in outside if name.split(".")[0] != "holdfast_checkpoint"} == set()
