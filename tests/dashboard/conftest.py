"""The dashboard over a simulated site with a fault, asked as a browser asks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from holdfast.api.callers.auth import hash_token
from holdfast.config.sections import DashboardSection
from holdfast.dashboard.attach import attach
from holdfast.dashboard.proxied import ProxyTrust
from holdfast.store import open_store
from support.served_site import ServedSite
from support.simulated.site import Site

ORIGIN = "https://head.example"
SAME_SITE = {"Origin": ORIGIN, "Sec-Fetch-Site": "same-origin"}


class Browser:
    """Keeps cookies, and sends what a page of ours makes a browser send."""

    def __init__(self, site: Site, served: ServedSite) -> None:
        self.site = site
        self.served = served
        self.cookies = httpx.Cookies()

    def ask(self, method: str, path: str, headers: dict[str, str] | None = None, **given: Any) -> httpx.Response:
        async def one() -> httpx.Response:
            transport = httpx.ASGITransport(self.served.app, raise_app_exceptions=False)
            own = SAME_SITE if headers is None else headers
            async with httpx.AsyncClient(
                transport=transport, base_url=ORIGIN, headers=own, cookies=self.cookies
            ) as client:
                answer = await client.request(method, path, **given)
                self.cookies = client.cookies
                return answer

        return anyio.run(one)

    def get(self, path: str) -> httpx.Response:
        return self.ask("GET", path)

    def post(self, path: str, **fields: str) -> httpx.Response:
        return self.ask("POST", path, data=fields)

    def sign_in(self, who: str = "op", **fields: str) -> httpx.Response:
        return self.post("/ui/sign-in", token=f"token-{who}", **fields)


@pytest.fixture
def make_browser(tmp_path: Path) -> Iterator[Callable[..., Browser]]:
    """A browser at a site of this many nodes; ``before`` is done to the site first."""
    with closing(open_store(f"sqlite:///{tmp_path / 'h.db'}")) as store:

        def made(
            nodes: int = 4,
            before: Callable[[Site], None] = lambda _site: None,
            proxy: ProxyTrust | None = None,
            sign_out: str = "",
        ) -> Browser:
            site = Site(nodes, store=store)
            site.run(2)
            before(site)
            served = ServedSite(site, store)
            for role, who in (("operator", "op"), ("viewer", "eve"), ("user", "1000"), ("agent", "n1")):
                store.add_token(role, who, hash_token(f"token-{who}"), site.clock.now())
            attach(served.app, DashboardSection(hosts=("head.example",), proxy_sign_out=sign_out), proxy)
            return Browser(site, served)

        yield made
