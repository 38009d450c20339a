"""The project's own linters, which are programs in ``.ci`` and in no package, as modules."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

_FOLDER = Path(__file__).parents[2] / ".ci"


def load(name: str) -> ModuleType:
    """``.ci/NAME.py``."""
    spec = importlib.util.spec_from_file_location(f"house_{name}", _FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
