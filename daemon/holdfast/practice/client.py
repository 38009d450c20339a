"""A reader of the site's own API, as its operator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.api.client import Client
from holdfast.model.errors import HoldfastError, Unavailable

if TYPE_CHECKING:
    from holdfast.practice.site import Site

_TIMEOUT_S = 5.0


def get(site: Site, path: str) -> Any:
    """The JSON at a path of the API. Raises Unavailable."""
    token = (site.folder / "etc" / "token.operator").read_text().strip()
    try:
        return Client(site.practice.controller_url, {"HOLDFAST_TOKEN": token}, timeout_s=_TIMEOUT_S).get(path)
    except HoldfastError as error:
        raise Unavailable(str(error)) from error
