"""The API over a simulated site's store, in this process: calls with a role's token, an agent's client, the command line's client."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

import anyio
import httpx

from holdfast.agent.sending.client import ControllerAnswer, ControllerClient
from holdfast.api.app import create_app
from holdfast.api.callers.auth import hash_token
from holdfast.api.deps import ApiDeps
from holdfast.store import SqlStore
from support.simulated.site import Site


class ServedSite:
    """``call`` sends requests with a token of any role; the API asks the site's loop and agents."""

    def __init__(self, site: Site, store: SqlStore) -> None:
        self.site, self.store = site, store
        self._known = {row.hash for row in store.tokens()}
        deps = ApiDeps(
            store=store,
            agents=site.agents.registry,
            clock=site.clock,
            wake=lambda: None,
            world=lambda: site.loop.world,
            orders=site.loop.hub,
            loop_turned_at=site.clock.monotonic_s,
        )
        self.app = create_app(deps)

    def call(
        self, method: str, path: str, role: str = "operator", subject: str = "op", **kwargs: Any
    ) -> httpx.Response:
        """One request with a token of that role."""
        return anyio.run(lambda: self._call(method, path, self._token(role, subject), kwargs))

    async def _call(self, method: str, path: str, token: str, kwargs: Mapping[str, Any]) -> httpx.Response:
        transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
        headers = {"Authorization": f"Bearer {token}"}
        async with httpx.AsyncClient(transport=transport, base_url="http://controller", headers=headers) as client:
            return await client.request(method, path, **kwargs)

    def _token(self, role: str, subject: str) -> str:
        token = f"token-{role}-{subject}"
        if hash_token(token) not in self._known:
            self._known.add(hash_token(token))
            self.store.add_token(role, subject, hash_token(token), self.site.clock.now())
        return token


class AgentsClient(ControllerClient):
    """The client of a node's agent, over a served site."""

    def __init__(self, served: ServedSite, node: str) -> None:
        self._served, self._node = served, node
        self.answers: list[ControllerAnswer] = []

    def post(self, path: str, body: Mapping[str, Any]) -> ControllerAnswer:
        return self._answered(self._served.call("POST", path, "agent", self._node, content=json.dumps(body)))

    def get(self, path: str, query: Mapping[str, str], read_timeout_s: float) -> ControllerAnswer:
        return self._answered(self._served.call("GET", path, "agent", self._node, params={**query, "wait_s": "0"}))

    def _answered(self, response: httpx.Response) -> ControllerAnswer:
        answer = ControllerAnswer(response.status_code, cast(Mapping[str, Any], response.json()))
        self.answers.append(answer)
        return answer

    def close(self) -> None:
        pass
