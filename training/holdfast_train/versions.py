"""The versions that this library was tested with; torchft's interfaces change between releases."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version

from holdfast_train.errors import Unusable

TORCHFT = "0.2.0"
_HINT = "pip install 'WHEEL[train]', with the path of Holdfast's wheel or checkout"


def check(installed: Callable[[str], str] = version) -> None:
    """Raise Unusable where torch is missing, or torchft is missing or of another version."""
    found: dict[str, str] = {}
    for name in ("torch", "torchft"):
        try:
            found[name] = installed(name)
        except PackageNotFoundError as error:
            raise Unusable(f"{name} is not installed: {_HINT}") from error
    if found["torchft"] != TORCHFT:
        raise Unusable(f"torchft {found['torchft']} is installed, and only {TORCHFT} is known to work: {_HINT}")
