"""The verb that signs a browser in."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.api.client import ApiClient
from holdfast.cli.common.answers import read
from holdfast.cli.common.options import Url
from holdfast.cli.common.show import line


def login(
    read_only: Annotated[
        bool, typer.Option("--read-only", help="The browser may change nothing, whatever your token may.")
    ] = False,
    url: Url = None,
) -> None:
    """Print an address that signs a browser in to the dashboard, once and within two minutes, with no more rights than your token."""
    client = ApiClient(url)
    from holdfast.api.answers.login_shapes import LoginShape  # noqa: PLC0415

    got = read(LoginShape, client.post("/v1/logins", {"read_only": read_only}))
    line(f"{client.url}/ui/sign-in#{got.code}")
    line(f"It works once, within {got.expires_s:.0f} s. To enter by hand: {got.code}")
