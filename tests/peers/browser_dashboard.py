"""The dashboard in a real browser: Chromium, driven by selenium, beside a daemon, a simulator and an environment.

Needs the extra `dashboard`, selenium, and Debian's packages chromium and chromium-driver.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from ospbridge.hub.status import AgentStatus
from tests.cli.programs import started
from tests.daemon.running import Daemon, SinkProcess
from tests.dashboard.synthetic import SyntheticSource, opened, status
from tests.in_threads import in_thread

webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium: pip install selenium")
exceptions = pytest.importorskip("selenium.common.exceptions")
CHROMIUM, CHROMEDRIVER = shutil.which("chromium"), shutil.which("chromedriver")

pytestmark = [
    pytest.mark.peer,
    pytest.mark.timeout(180),
    pytest.mark.skipif(
        not (CHROMIUM and CHROMEDRIVER), reason="needs a browser: apt-get install chromium chromium-driver"
    ),
]

WITHIN = 30.0
RED_WITHIN = 2.0
FLAGS = ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--hide-scrollbars")
NOTHING = "\N{EN DASH}"
DESK, PHONE = (1360, 900), (390, 844)
PLAYER = """
import numpy as np, time
from ospbridge.envs.hub import AgentHandle
from ospbridge.session.hub_client import HubClient
seat = AgentHandle.attach(HubClient.connect(), "robot1")
generator = np.random.default_rng(1)
while True:
    seat.reset(1)
    for _ in range(60):
        if seat.step(generator.uniform(-1, 1, len(seat.interface.inputs)).astype("f4")).truncated:
            break
        time.sleep(0.01)
    print("played", flush=True)
"""


class Browser:
    """A page, and what can be seen on it."""

    def __init__(self) -> None:
        options = webdriver.ChromeOptions()
        options.binary_location = CHROMIUM
        for argument in FLAGS:
            options.add_argument(argument)
        self.driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(CHROMEDRIVER))
        self.size(*DESK)

    def size(self, width: int, height: int) -> None:
        self.driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600},
        )

    def prefer(self, **features: str) -> None:
        told = [
            {"name": f"prefers-{name.replace('_', '-')}", "value": value} for name, value in features.items()
        ]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": told})

    def run(self, script: str, *values: object) -> Any:
        return self.driver.execute_script(script, *values)

    def find(self, selector: str) -> list[Any]:
        return list(self.driver.find_elements("css selector", selector))

    def text(self, selector: str) -> str:
        return str(self.run("return document.querySelector(arguments[0])?.textContent ?? ''", selector))

    def until(self, holds: Callable[[], object], seconds: float = WITHIN) -> None:
        give_up = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < give_up, self.text("body")
            time.sleep(0.02)

    def state(self, lane: str) -> str:
        script = "return document.querySelector(arguments[0])?.dataset.state ?? ''"
        return str(self.run(script, f"#{lane} .node"))

    def choose(self, agent: str) -> None:
        self.until(lambda: agent in self.text("#agents"))
        next(button for button in self.find("#agents button") if agent in button.text).click()
        self.until(lambda: self.find("#sensors canvas"))

    def nameless(self) -> list[str] | None:
        """What has no name for those who cannot see it; None where it was drawn anew while it was asked."""
        seen = self.find("button, a, canvas, svg[role=img], section, [role=status]")
        try:
            return [str(each.get_attribute("outerHTML")) for each in seen if not each.accessible_name]
        except exceptions.StaleElementReferenceException:
            return None

    @contextmanager
    def shown(self, source: SyntheticSource, at: str = "", *, token: str = "") -> Iterator[None]:
        """The dashboard of what a test makes up, which runs in a thread of its own."""
        with in_thread(opened(source, token=token)) as dashboard:
            self.driver.get(dashboard.url + at)
            yield

    def complaints(self) -> list[str]:
        """What the browser found wrong, such as a breach of the page's own policy."""
        return [entry["message"] for entry in self.driver.get_log("browser")]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    browser = Browser()
    yield browser
    browser.driver.quit()


@pytest.fixture
def browser(chromium: Browser) -> Iterator[Browser]:
    chromium.size(*DESK)
    chromium.prefer(color_scheme="light")
    chromium.complaints()
    yield chromium
    chromium.driver.get("about:blank")


@contextmanager
def bridge(directory: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], Daemon, str]]:
    """A simulator, a daemon whose agent somebody plays, and the address of its dashboard."""
    with (
        started("sim", "--arena", "--robots", 2, "--port", 0) as (simulator, address),
        Daemon(address, "--dashboard", "127.0.0.1:0", *options, directory=directory) as daemon,
        started(code=PLAYER),
    ):
        (entry,) = daemon.lines("dashboard open")
        yield simulator, daemon, str(entry["url"])


# --- with a real daemon -------------------------------------------------------------------------------------------


def test_values_move_and_a_click_on_an_agent_shows_its_curves(tmp_path: Path, browser: Browser) -> None:
    with bridge(tmp_path) as (_, daemon, url):
        browser.driver.get(url)
        browser.until(lambda: browser.text("#link-text") == "live")
        browser.until(lambda: browser.state("simulators") == "good")
        browser.until(lambda: "playing" in browser.text("#agents"))
        steps = browser.text("#figure-steps")
        browser.until(lambda: browser.text("#figure-steps") != steps)
        assert browser.find("#wires path")
        assert not browser.find("#sensors canvas")
        browser.choose("robot1")
        browser.until(lambda: browser.find("#actions canvas"))
        value = browser.text("#sensors .value")
        browser.until(lambda: browser.text("#sensors .value") not in (NOTHING, value))
        drawn = "const c = document.querySelector('#sensors canvas'); return c.toDataURL()"
        before = browser.run(drawn)
        browser.until(lambda: browser.run(drawn) != before)
        browser.until(lambda: browser.find("#returns circle"))
        browser.until(lambda: browser.find("#times rect.some"))
        assert browser.find("button[aria-pressed=true]")
        assert not browser.complaints()
        # A page that is loaded again shows the same agent.
        browser.driver.refresh()
        browser.until(lambda: browser.find("#sensors canvas"))
        assert daemon.end(signal.SIGTERM) == 0
        browser.until(lambda: browser.text("#link-text") != "live")


def test_whatever_dies_is_not_shown_as_alive(tmp_path: Path, browser: Browser) -> None:
    sink = SinkProcess(tmp_path / "recorded")
    upstream = ("--rllink", sink.address, "--rllink-mode", "observe", "--rllink-unannotated")
    with sink, bridge(tmp_path, *upstream) as (simulator, daemon, url):
        browser.driver.get(url)
        took = RED_WITHIN
        # A machine that is busy with something else may miss it once.
        for _ in range(3):
            browser.until(lambda: browser.state("upstreams") == "good")
            sink.kill()
            killed = time.monotonic()
            browser.until(lambda: browser.state("upstreams") == "bad")
            if (took := time.monotonic() - killed) < RED_WITHIN:
                break
            sink.start()
        assert took < RED_WITHIN
        assert "not connected" in browser.text("#relay")
        browser.until(lambda: "playing" in browser.text("#agents"))
        simulator.kill()
        browser.until(lambda: browser.state("simulators") == "bad", RED_WITHIN + 8.0)
        browser.until(lambda: browser.text("#warnings .event"))
        daemon.process.kill()
        browser.until(lambda: browser.find("#link[data-state=bad]"))
        assert browser.find("body.stale")


# --- with what a test makes up ------------------------------------------------------------------------------------


def test_what_a_simulator_says_is_text_and_nothing_else(browser: Browser) -> None:
    name = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
    source = SyntheticSource(
        [status(agents=[AgentStatus(name, "playing", name)], connection=name, ready=False)]
    )
    with browser.shown(source):
        browser.until(lambda: name in browser.text("#agents"))
        assert not browser.find("main img, main script")
        assert "owned" not in browser.driver.title
        assert not browser.complaints()


def test_the_keyboard_reaches_an_agent(browser: Browser) -> None:
    with browser.shown(SyntheticSource()):
        browser.until(lambda: browser.find("#agents button"))
        body = browser.find("body")[0]
        body.send_keys("\ue004")
        for _ in range(10):
            if browser.run("return document.activeElement.matches('#agents button')"):
                break
            browser.driver.switch_to.active_element.send_keys("\ue004")
        focused = browser.driver.switch_to.active_element
        assert "robot" in focused.text
        assert browser.run("return getComputedStyle(arguments[0]).outlineStyle", focused) == "solid"
        focused.send_keys("\ue007")
        browser.until(lambda: browser.find("#sensors canvas"))
        # What comes all the time does not take the focus away.
        assert browser.run("return document.activeElement.matches('#agents button[aria-pressed=true]')")
        before = browser.driver.current_url
        browser.run("document.querySelector('#skip').focus()")
        browser.driver.switch_to.active_element.send_keys("\ue007")
        assert browser.run("return document.activeElement.id") == "agent-panel"
        assert browser.driver.current_url == before


def test_the_colours_are_those_of_the_system_unless_one_chooses(browser: Browser) -> None:
    ground = "return getComputedStyle(document.documentElement).backgroundColor"

    def button() -> Any:
        """Whoever speaks to the page says what is seen on it (WCAG 2.5.3)."""
        (found,) = browser.find("#theme")
        assert browser.text("#theme-text") in found.accessible_name
        return found

    with browser.shown(SyntheticSource()):
        light = browser.run(ground)
        browser.prefer(color_scheme="dark")
        browser.until(lambda: browser.run(ground) != light)
        dark = browser.run(ground)
        button().click()
        browser.until(lambda: browser.run(ground) == light)
        assert button().accessible_name == "Light colours"
        browser.driver.refresh()
        assert browser.run(ground) == light
        button().click()
        browser.prefer(color_scheme="light")
        browser.until(lambda: browser.run(ground) == dark)
        button()
        browser.run("localStorage.clear()")


def test_on_a_phone_nothing_lies_beside_the_page(browser: Browser) -> None:
    browser.size(*PHONE)
    agents = [
        AgentStatus(f"a robot with a very long name indeed {at}", "playing", "python (pid 1)")
        for at in range(60)
    ]
    with browser.shown(SyntheticSource([status(agents=agents)])):
        browser.choose("indeed 7")
        assert browser.run("return document.documentElement.scrollWidth") <= PHONE[0]


def test_a_person_is_asked_for_the_token_and_told_where_it_is_wrong(browser: Browser) -> None:
    token = "a-token-of-some-length"

    def alerts() -> list[Any]:
        return [each for each in browser.find("[role=alert]") if each.is_displayed()]

    def give(text: str) -> None:
        field = browser.find("input[name=token]")[0]
        field.send_keys(text)
        field.submit()

    with browser.shown(SyntheticSource(), token=token):
        assert not alerts()
        give(token[:-1])
        browser.until(alerts)
        give(f" {token} ")
        browser.until(lambda: browser.text("#link-text") == "live")
        assert urlsplit(browser.driver.current_url).query == ""
        assert browser.run("return document.cookie") == ""


def test_a_page_that_is_refused_says_so_until_it_is_let_in(
    browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    responses = pytest.importorskip("starlette.responses")
    monkeypatch.setattr("ospbridge.dashboard.app.MOST_STREAMS", 0)
    with browser.shown(SyntheticSource()):
        browser.until(lambda: "refused" in browser.text("#link-text"))
        said = "window.said = new Set(); const node = document.querySelector('#link-text');"
        browser.run(said + "setInterval(() => window.said.add(node.textContent), 20)")
        # It has asked again meanwhile, and has heard nothing for longer than a page that was let in may.
        time.sleep(5.0)
        assert browser.run("return [...window.said]") == ["refused: too many pages, or another token"]
        browser.size(*PHONE)
        assert browser.run("return document.documentElement.scrollWidth") <= PHONE[0]
        # A proxy without a daemon behind it is no refusal.
        answer = responses.PlainTextResponse("nobody is there\n", 502)
        with monkeypatch.context() as patch:
            patch.setattr("ospbridge.dashboard.guard.Guard._refusal", lambda *_: answer)
            browser.until(lambda: browser.text("#link-text") == "no answer")
        monkeypatch.setattr("ospbridge.dashboard.app.MOST_STREAMS", 1)
        browser.until(lambda: browser.text("#link-text") == "live")
        assert not browser.find("body.stale")


def test_the_page_follows_its_address(browser: Browser) -> None:
    source = SyntheticSource([status(agents=[AgentStatus(name, "playing", "x") for name in ("one", "two")])])
    with browser.shown(source, "#simulator=&agent=one"):
        browser.until(lambda: browser.text("#agent-title") == "one" and browser.find("#sensors canvas"))
        browser.run("location.hash = 'simulator=&agent=two'")
        browser.until(lambda: browser.text("#agent-title") == "two" and browser.find("#sensors canvas"))
        assert len(browser.find("button[aria-pressed=true]")) == 1
        browser.driver.back()
        browser.until(lambda: browser.text("#agent-title") == "one")
        browser.run("location.hash = ''")
        browser.until(lambda: browser.text("#agent-title") == "Agent")
        browser.until(lambda: source.watchers == 0)


def test_everything_on_the_page_has_a_name_for_those_who_cannot_see_it(browser: Browser) -> None:
    with browser.shown(SyntheticSource()):
        browser.choose("robot")
        # What is drawn anew meanwhile is asked for again.
        browser.until(lambda: browser.nameless() == [])
