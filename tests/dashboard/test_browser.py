"""The dashboard in Debian's chromium, as a person uses it. Skipped where there is no chromium (Ubuntu has none as a package)."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import resources
from typing import Any

import pytest
from playwright.sync_api import Browser as Chromium
from playwright.sync_api import Page as Tab
from playwright.sync_api import expect, sync_playwright

from dashboard.conftest import Browser
from holdfast.api.transport.connections import Bounds
from holdfast_checks.result import Remedy
from support.serving import running
from support.simulated.site import Site

PROGRAM = shutil.which("chromium")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(PROGRAM is None, reason="no chromium on this machine")]
MakeBrowser = Callable[..., Browser]
expect.set_options(timeout=30_000)  # the machine may be busy


@pytest.fixture(scope="module")
def chromium() -> Iterator[Chromium]:
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=PROGRAM, args=["--no-sandbox"])
        yield started
        started.close()


class Moving:
    """A site that continues while it is looked at; its clock is the machine's from now on."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.lock = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._go)

    def _go(self) -> None:
        while not self._over.wait(0.2):
            with self.lock:
                self.site.run(0.2, step_s=0.2)

    @contextmanager
    def going(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._over.set()
            self._thread.join(20)


class Machines:
    """A clock that passes although no one moves the site's."""

    def __init__(self, site: Site) -> None:
        self._clock = site.clock

    def now(self) -> Any:
        return self._clock.now()

    def monotonic_s(self) -> float:
        return time.monotonic()


@contextmanager
def opened(chromium: Chromium, browser: Browser, width: int = 1280, theme: Any = "light") -> Iterator[tuple[Tab, str]]:
    """A tab that has signed in by the form, and the address. No script of it failed, and nothing was refused by the page's policy."""
    api = browser.served.app.state.api
    api.deps.clock, api.deps.loop_turned_at = Machines(browser.site), time.monotonic
    wrong: list[str] = []
    with running(browser.served.app, Bounds(200, 200)) as server:
        base = f"http://127.0.0.1:{server.port}"
        context = chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=theme)
        tab = context.new_page()
        tab.on("pageerror", lambda error: wrong.append(str(error)))
        tab.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
        tab.goto(f"{base}/")
        tab.get_by_label("Code or token").fill("token-op")
        tab.get_by_role("button", name="Sign in").click()
        expect(tab.locator("#now h1")).to_be_visible()
        yield tab, base
        context.close()
    assert wrong == []


def human(site: Site) -> None:
    site.fault("n3", remedy=Remedy.HUMAN)
    site.run(5)


def test_find_what_is_wrong_read_why_and_order(chromium: Chromium, make_browser: MakeBrowser) -> None:
    browser = make_browser(before=human)
    incident = browser.site.incident("n3")
    with opened(chromium, browser) as (tab, base):
        expect(tab.locator("#now h1")).to_contain_text("1 thing needs you")
        tab.locator("#incidents").get_by_role("link", name="n3").click()
        expect(tab.get_by_role("heading", level=1)).to_contain_text("GPU has fallen off the bus")
        expect(tab.get_by_role("heading", name="Evidence")).to_be_visible()
        tab.get_by_text("Take it over").first.click()
        tab.get_by_label("Why").nth(1).fill("mine")
        tab.get_by_role("button", name="Take it over").click()
        expect(tab.locator("#answer")).to_contain_text("It is yours")
        tab.goto(f"{base}/ui/audit")
        expect(tab.locator(".records")).to_contain_text(f"acknowledge {incident.id} by op: mine")
        tab.get_by_role("button", name="Sign out").click()
        expect(tab.get_by_role("heading", name="Holdfast")).to_be_visible()
        tab.goto(f"{base}/")
        expect(tab.get_by_label("Code or token")).to_be_visible()


def test_what_happens_is_on_the_screen_without_a_reload(chromium: Chromium, make_browser: MakeBrowser) -> None:
    browser = make_browser()
    moving = Moving(browser.site)
    with moving.going(), opened(chromium, browser) as (tab, _base):
        expect(tab.locator("#now h1")).to_contain_text("Nothing needs you")
        with moving.lock:
            browser.site.fault("n2", remedy=Remedy.HUMAN)
        expect(tab.locator("#incidents")).to_contain_text("GPU has fallen off the bus")
        expect(tab.locator("#nodes a[aria-label^='n2']")).to_have_count(1)
        expect(tab.locator("#connection")).to_be_hidden()


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_every_page_is_accessible_and_fits(
    chromium: Chromium, make_browser: MakeBrowser, width: int, theme: str
) -> None:
    """axe finds nothing serious, and no page is wider than the screen."""
    browser = make_browser(before=human)
    pages = (
        "/",
        "/ui/incidents",
        f"/ui/incident/{browser.site.incident('n3').id}",
        "/ui/node/n3",
        "/ui/jobs",
        "/ui/fleet",
        "/ui/settings",
        "/ui/audit",
        "/ui/sign-in",
    )
    axe = resources.files("axe_playwright_python").joinpath("axe.min.js").read_text()
    found: list[str] = []
    with opened(chromium, browser, width, theme) as (tab, base):
        for page in pages:
            tab.goto(base + page)
            tab.evaluate(axe)
            report = tab.evaluate("axe.run()")
            grave = [v for v in report["violations"] if v["impact"] in ("serious", "critical")]
            found += [f"{page}: {v['id']}: {json.dumps([n['html'][:160] for n in v['nodes'][:3]])}" for v in grave]
            wide = tab.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            if wide > 0:
                found.append(f"{page}: {wide} px wider than the screen")
    assert found == []
