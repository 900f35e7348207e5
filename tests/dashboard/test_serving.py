"""The dashboard at real sockets: what it serves, to whom, and that nobody who looks on costs the daemon anything."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from urllib.parse import quote

import pytest
import trio
from structlog.testing import capture_logs

from ospbridge.dashboard.assets import page_files
from ospbridge.hub.status import AgentStatus, StatusReply
from ospbridge.observe.recent import Warned
from ospbridge.observe.sparing import Sparing
from ospbridge.text import identifier
from tests.dashboard.synthetic import SyntheticSource, description, opened, status, upstream
from tests.dashboard.visitors import WITHIN, Answer, ask, listening_to

pytest.importorskip("starlette", reason="needs the extra: pip install 'ospbridge[dashboard]'")
pytest.importorskip("hypercorn", reason="needs the extra: pip install 'ospbridge[dashboard]'")


from ospbridge.dashboard import app, connections, door, serving

pytestmark = [pytest.mark.loopback, pytest.mark.trio]


@pytest.fixture
def source() -> SyntheticSource:
    return SyntheticSource()


async def until(holds: Callable[[], bool]) -> None:
    with trio.fail_after(WITHIN):
        while not holds():
            await trio.sleep(0.01)


# --- events -------------------------------------------------------------------------------------------------------


async def test_a_stream_begins_with_all_and_goes_on_with_what_changes(source: SyntheticSource) -> None:
    source.warned.append(Warned(1, "2026-01-01T00:00:00Z", "warning", "slow"))
    async with opened(source) as dashboard, listening_to(dashboard.port) as events:
        assert events.status == 200
        first = await events.next("changed")
        kinds = {"daemon", "simulator", "agent", "history", "upstream", "warning"}
        assert {kind for kind, _, _ in first} == kinds
        source.told = [status(upstreams=[upstream("connection refused")])]
        assert (await events.part("upstream"))["status"]["trouble"] == "connection refused"
        source.told = [status(ready=False, connection="waiting for the simulator")]
        assert (await events.part("simulator"))["ready"] is False


@pytest.mark.parametrize("name", ["robot", "A" * 40_000], ids=["short", "very long"])
async def test_an_agent_that_is_not_there_is_told_and_found_when_it_comes(
    source: SyntheticSource, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ospbridge.dashboard.streaming.WATCH_AGAIN_AFTER", 0.05)
    source.told = [status(agents=[])]
    query = f"?agent={quote(identifier(name))}"
    async with opened(source) as dashboard, listening_to(dashboard.port, query) as events:
        assert f"no agent '{name[:5]}" in await events.next("lost")
        source.told = [status(agents=[AgentStatus(name, "free")])]
        assert await events.next("curves")


async def test_nobody_looks_at_the_daemon_while_no_page_is_open(source: SyntheticSource) -> None:
    async with opened(source) as dashboard:
        async with listening_to(dashboard.port) as events:
            await events.next("changed")
        await until(lambda: source.watchers == 0)
        await ask(dashboard.port)
        looks = source.looks
        await trio.sleep(3 * app.LOOK_EVERY)
        # One that was under way when the page went away may still come.
        assert source.looks <= looks + 1


# --- bounds -------------------------------------------------------------------------------------------------------


async def test_only_so_many_pages_are_kept_up_to_date(
    source: SyntheticSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "MOST_STREAMS", 2)
    async with opened(source) as dashboard:
        async with listening_to(dashboard.port) as first, listening_to(dashboard.port):
            await first.next("changed")
            refused = await ask(dashboard.port, "/events")
            assert refused.status == 503
            assert refused.headers["retry-after"]
            assert (await ask(dashboard.port)).status == 200
        while True:
            async with listening_to(dashboard.port) as again:
                if again.status == 200:
                    break
            await trio.sleep(0.02)


async def test_a_host_that_takes_all_connections_gives_way_to_another(
    source: SyntheticSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "Door", partial(door.Door, most=2))
    async with opened(source) as dashboard:
        first, second = [
            await trio.open_tcp_stream("127.0.0.1", dashboard.port, local_address="127.0.0.2")
            for _ in range(2)
        ]
        async with first, second, listening_to(dashboard.port):
            assert await first.receive_some(1) == b""
            # That one is served still.
            await second.send_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert (await second.receive_some(12)).startswith(b"HTTP/1.1 200")


class Restless(SyntheticSource):
    """Very many agents, and with each look all of them have changed: some 400 kB."""

    def statuses(self) -> list[StatusReply]:
        self.looks += 1
        agents = [AgentStatus(f"robot {at}", "playing", "x" * 200, self.looks) for at in range(1600)]
        return [status(agents=[*agents, *status().agents])]


async def test_a_browser_that_reads_nothing_delays_no_other_one() -> None:
    # So much to tell that the buffers of a visitor who reads nothing are soon full.
    source = SyntheticSource(described=description(outputs=48, inputs=48), batch=64)
    async with (
        opened(source) as dashboard,
        listening_to(dashboard.port, "?agent=robot", buffer=2048),
        listening_to(dashboard.port, "?agent=robot") as reader,
    ):
        for _ in range(10):
            await reader.next("points")
        source.told = [status(steps=43)]
        assert (await reader.part("simulator"))["steps"] == 43


async def test_a_browser_that_reads_nothing_is_shown_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "Door", partial(door.Door, patience=0.3))
    source = Restless()
    async with opened(source) as dashboard, listening_to(dashboard.port, "?agent=robot", buffer=2048):
        await until(lambda: source.watchers == 1)
        await until(lambda: source.watchers == 0)


# --- its end ------------------------------------------------------------------------------------------------------


async def test_a_failure_in_it_is_a_warning_and_it_is_opened_again(
    source: SyntheticSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "AGAIN_AFTER", 0.05)
    statuses = source.statuses

    def failing() -> list[StatusReply]:
        found = statuses()
        if source.looks == 2:
            raise RuntimeError("a mistake")
        return found

    monkeypatch.setattr(source, "statuses", failing)
    with capture_logs() as logs:
        async with opened(source) as dashboard:
            while source.looks <= 2:
                with suppress(EOFError, trio.BrokenResourceError):
                    async with listening_to(dashboard.port) as again:
                        await again.next("changed")
                await trio.sleep(0.05)
    assert "the dashboard failed, and is opened again" in {entry["event"] for entry in logs}


@pytest.mark.parametrize(
    "said",
    [b"\0" * 100, b"GET / HTTP/1.1\r\n\r\n", b"GET /\xc3\xa4 HTTP/1.1\r\nHost: localhost\r\n\r\n"],
    ids=["zeros", "no host", "high bytes"],
)
async def test_what_is_no_http_is_answered_and_forgotten(source: SyntheticSource, said: bytes) -> None:
    async with opened(source) as dashboard:
        async with await trio.open_tcp_stream("127.0.0.1", dashboard.port) as stream:
            await stream.send_all(said)
            assert (await stream.receive_some(1000)).startswith(b"HTTP/1.1 4")
        assert (await ask(dashboard.port)).status == 200


SETTINGS_THAT_ARE_NONE = (
    b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\n"
    b"Upgrade: h2c\r\nHTTP2-Settings: x\r\n\r\n"
)


async def test_a_visitor_that_the_web_server_cannot_bear_costs_nobody_else_anything(
    source: SyntheticSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "sparing", Sparing())
    with capture_logs() as logs:
        async with opened(source) as dashboard, listening_to(dashboard.port) as events:
            await events.next("changed")
            for _ in range(2):
                async with await trio.open_tcp_stream("127.0.0.1", dashboard.port) as visitor:
                    await visitor.send_all(SETTINGS_THAT_ARE_NONE)
                    with suppress(trio.BrokenResourceError):
                        while await visitor.receive_some(1000):
                            pass
            source.told = [status(steps=43)]
            assert (await events.part("simulator"))["steps"] == 43
            assert (await ask(dashboard.port)).status == 200
    assert [entry["event"] for entry in logs] == ["dashboard open", "a visitor of the dashboard was cut off"]


# --- who may come in to the dashboard, and what a browser is told not to do with what it gets -----------------------


pytest.importorskip("starlette", reason="needs the extra: pip install 'ospbridge[dashboard]'")
pytest.importorskip("hypercorn", reason="needs the extra: pip install 'ospbridge[dashboard]'")


TOKEN = "a-token-of-some-length"
BROWSER = {"Accept": "text/html,*/*"}


async def assert_all_named_is_served(port: int, page: Answer) -> None:
    for path in re.findall(r'(?:src|href)="(/[^"]+)"', page.body.decode()):
        assert (await ask(port, path)).status == 200, path


async def test_the_page_and_all_that_it_names_are_served_and_nothing_else() -> None:
    async with opened(SyntheticSource()) as dashboard:
        page = await ask(dashboard.port)
        assert page.status == 200
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        await assert_all_named_is_served(dashboard.port, page)
        for path in ("/nowhere", "/page.html"):
            assert (await ask(dashboard.port, path)).status == 404
        assert (await ask(dashboard.port, method="POST")).status == 405


@pytest.mark.parametrize("path", ["/", "/main.js", "/nowhere", "/events?x", "/?token=wrong"])
async def test_every_answer_forbids_what_a_browser_need_not_do(path: str) -> None:
    async with opened(SyntheticSource(), token=TOKEN) as dashboard:
        headers = (await ask(dashboard.port, path)).headers
    assert headers["cache-control"] == "no-store"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "require-trusted-types-for 'script'" in policy
    assert "unsafe" not in policy
    assert "server" not in headers


@pytest.mark.parametrize(
    "status, headers",
    [
        (421, {"Host": "evil.example"}),
        (421, {"Host": "localhost.evil.example:8464"}),
        (200, {"Host": "lab.example"}),
        (403, {"Origin": "https://evil.example"}),
        (403, {"Origin": "null"}),
        (403, {"Origin": "http://["}),
        (403, {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "cors"}),
        (403, {"Sec_Fetch_Site": "same-site", "Sec_Fetch_Mode": "no-cors"}),
    ],
    ids=str,
)
async def test_hosts_that_are_not_ours_and_pages_of_other_sites_are_refused(
    status: int, headers: dict[str, str]
) -> None:
    async with opened(SyntheticSource(), names=("lab.example",)) as dashboard:
        assert (await ask(dashboard.port, **headers)).status == status


async def test_without_the_token_nothing_is_told() -> None:
    source = SyntheticSource()
    async with opened(source, token=TOKEN) as dashboard:
        for path in ("/", "/events", "/main.js", "/?token=wrong", "/nowhere"):
            answer = await ask(dashboard.port, path)
            assert answer.status == 401, path
            assert answer.headers["www-authenticate"].startswith("Bearer")
        for wrong in (f"Bearer {TOKEN}x", f"Basic {TOKEN}", TOKEN, "Bearer"):
            assert (await ask(dashboard.port, Authorization=wrong)).status == 401
        # It is exchanged for a cookie at the page alone.
        for path in ("//evil.example/", "/events", "/main.js"):
            answer = await ask(dashboard.port, f"{path}?token={TOKEN}")
            assert answer.status == 401
            assert "location" not in answer.headers
        assert not source.looks
        assert (await ask(dashboard.port, Authorization=f"Bearer {TOKEN}")).status == 200


async def test_a_browser_is_asked_for_the_token_and_told_where_it_shows_a_wrong_one() -> None:
    async with opened(SyntheticSource(), token=TOKEN) as dashboard:
        door = await ask(dashboard.port, **BROWSER)
        assert (door.status, door.body) == (401, page_files()["door.html"])
        await assert_all_named_is_served(dashboard.port, door)
        for path, told in (("/", False), ("/?token=", False), (f"/?token={TOKEN[:-1]}", True)):
            page = (await ask(dashboard.port, path, **BROWSER)).body.decode()
            (alert,) = re.findall(r'<p [^>]*role="alert"[^>]*>', page)
            assert ("hidden" not in alert) is told, path
            assert 'id="wrong"' in alert
            (field,) = re.findall(r"<input [^>]*>", page)
            assert ('aria-invalid="true" aria-describedby="wrong"' in field) is told, path


async def test_the_token_in_the_address_is_exchanged_for_a_cookie() -> None:
    async with opened(SyntheticSource(), token=TOKEN) as dashboard:
        answer = await ask(dashboard.port, f"/?token={TOKEN}")
        assert answer.status == 303
        assert answer.headers["location"] == "/"
        given, *rules = answer.headers["set-cookie"].split(";")
        assert TOKEN not in given
        assert {"httponly", "samesite=strict", "path=/"} <= {rule.strip().lower() for rule in rules}
        assert (await ask(dashboard.port, Cookie=given)).status == 200
        assert (await ask(dashboard.port, Cookie=given[:-1])).status == 401


async def test_a_wrong_token_is_a_warning_once_and_never_logged() -> None:
    with capture_logs() as logs:
        async with opened(SyntheticSource(), token=TOKEN) as dashboard:
            for _ in range(3):
                await ask(dashboard.port, "/?token=guessed-by-somebody")
    assert [entry["event"] for entry in logs if entry["log_level"] == "warning"] == [
        "a wrong token was shown to the dashboard"
    ]
    assert "guessed" not in str(logs)
    assert TOKEN not in str(logs)
