"""Read the site's API as an operator."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from holdfast.api.client import ApiClient
from holdfast.model.errors import HoldfastError, Unavailable
from holdfast.practice.cluster.cluster import Practice

_TIMEOUT_S = 5.0


class _Site(Protocol):
    """The part of a site that is needed to call its API."""

    @property
    def folder(self) -> Path: ...
    @property
    def practice(self) -> Practice: ...


def get(site: _Site, path: str) -> Any:
    """The JSON at a path of the API. Raises Unavailable."""
    token = (site.folder / "etc" / "token.operator").read_text().strip()
    try:
        return ApiClient(site.practice.controller_url, {"HOLDFAST_TOKEN": token}, timeout_s=_TIMEOUT_S).get(path)
    except HoldfastError as error:
        raise Unavailable(str(error)) from error
