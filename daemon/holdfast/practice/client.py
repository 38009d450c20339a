"""A reader of the site's own API, as its operator."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

from holdfast.model.errors import Unavailable

if TYPE_CHECKING:
    from holdfast.practice.site import Site


def get(site: Site, path: str) -> Any:
    """The JSON at a path of the API. Raises Unavailable."""
    token = (site.folder / "etc" / "token.operator").read_text().strip()
    request = urllib.request.Request(  # noqa: S310 - the site's own loopback address
        site.practice.controller_url + path, headers={"Authorization": f"Bearer {token}"}
    )
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:  # noqa: S310
            return json.load(answer)
    except (urllib.error.URLError, ConnectionError, TimeoutError) as error:
        raise Unavailable(f"the controller does not answer: {error}") from error
