"""Who may come in to the dashboard, and what a browser is told not to do with what it gets."""

from __future__ import annotations

import re

import pytest
from structlog.testing import capture_logs

from ospbridge.dashboard.assets import page_files
from tests.dashboard.synthetic import SyntheticSource, opened
from tests.dashboard.visitors import ask

pytest.importorskip("starlette", reason="needs the extra: pip install 'ospbridge[dashboard]'")
pytest.importorskip("hypercorn", reason="needs the extra: pip install 'ospbridge[dashboard]'")

pytestmark = [pytest.mark.loopback, pytest.mark.trio]

TOKEN = "a-token-of-some-length"
PAGE = page_files()


@pytest.fixture
def source() -> SyntheticSource:
    return SyntheticSource()


async def test_the_page_and_all_that_it_names_are_served(source: SyntheticSource) -> None:
    async with opened(source) as dashboard:
        page = await ask(dashboard.port)
        assert page.status == 200
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        for path in re.findall(r'(?:src|href)="(/[^"]+)"', page.body.decode()):
            assert (await ask(dashboard.port, path)).status == 200, path
        assert (await ask(dashboard.port, "/nowhere")).status == 404
        assert (await ask(dashboard.port, "/page.html")).status == 404
        assert (await ask(dashboard.port, method="POST")).status == 405


@pytest.mark.parametrize("path", ["/", "/main.js", "/nowhere", "/events?x", "/?token=wrong"])
async def test_every_answer_forbids_what_a_browser_need_not_do(source: SyntheticSource, path: str) -> None:
    async with opened(source, token=TOKEN) as dashboard:
        headers = (await ask(dashboard.port, path)).headers
    assert headers["cache-control"] == "no-store"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "require-trusted-types-for 'script'" in policy
    assert "unsafe" not in policy
    assert "server" not in headers


# --- who may come in ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example:8464"])
async def test_a_host_that_is_not_ours_is_refused(source: SyntheticSource, host: str) -> None:
    async with opened(source) as dashboard:
        assert (await ask(dashboard.port, Host=host)).status == 421


async def test_a_name_that_the_user_added_is_served(source: SyntheticSource) -> None:
    async with opened(source, names=("lab.example",)) as dashboard:
        assert (await ask(dashboard.port, Host="lab.example")).status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://["},
        {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "cors"},
        {"Sec_Fetch_Site": "same-site", "Sec_Fetch_Mode": "no-cors"},
    ],
)
async def test_pages_of_other_sites_are_refused(source: SyntheticSource, headers: dict[str, str]) -> None:
    async with opened(source) as dashboard:
        assert (await ask(dashboard.port, **headers)).status == 403


async def test_without_the_token_nothing_is_told(source: SyntheticSource) -> None:
    async with opened(source, token=TOKEN) as dashboard:
        for path in ("/", "/events", "/main.js", "/?token=wrong", "/nowhere"):
            answer = await ask(dashboard.port, path)
            assert answer.status == 401, path
            assert answer.headers["www-authenticate"].startswith("Bearer")
        for wrong in (f"Bearer {TOKEN}x", f"Basic {TOKEN}", TOKEN, "Bearer"):
            assert (await ask(dashboard.port, Authorization=wrong)).status == 401
    assert not source.looks


async def test_a_browser_is_asked_for_the_token(source: SyntheticSource) -> None:
    async with opened(source, token=TOKEN) as dashboard:
        answer = await ask(dashboard.port, Accept="text/html,*/*")
        assert answer.status == 401
        assert answer.body == PAGE["door.html"]
        for path in re.findall(r'(?:src|href)="(/[^"]+)"', answer.body.decode()):
            assert (await ask(dashboard.port, path)).status == 200, path


async def test_a_browser_that_shows_a_wrong_token_is_told(source: SyntheticSource) -> None:
    async with opened(source, token=TOKEN) as dashboard:
        for path, told in (("/", False), ("/?token=", False), (f"/?token={TOKEN[:-1]}", True)):
            answer = await ask(dashboard.port, path, Accept="text/html,*/*")
            (alert,) = re.findall(r'<p [^>]*role="alert"[^>]*>', answer.body.decode())
            assert ("hidden" not in alert) is told, path
            assert 'id="wrong"' in alert
            (field,) = re.findall(r"<input [^>]*>", answer.body.decode())
            assert ('aria-invalid="true" aria-describedby="wrong"' in field) is told, path


async def test_the_token_is_taken_as_bearer(source: SyntheticSource) -> None:
    async with opened(source, token=TOKEN) as dashboard:
        assert (await ask(dashboard.port, Authorization=f"Bearer {TOKEN}")).status == 200


async def test_the_token_in_the_address_is_exchanged_for_a_cookie(source: SyntheticSource) -> None:
    async with opened(source, token=TOKEN) as dashboard:
        answer = await ask(dashboard.port, f"/?token={TOKEN}")
        assert answer.status == 303
        assert answer.headers["location"] == "/"
        cookie = answer.headers["set-cookie"]
        assert TOKEN not in cookie
        assert {"httponly", "samesite=strict", "path=/"} <= {
            part.strip().lower() for part in cookie.split(";")
        }
        given = cookie.partition(";")[0]
        assert (await ask(dashboard.port, Cookie=given)).status == 200
        assert (await ask(dashboard.port, Cookie=given[:-1])).status == 401


@pytest.mark.parametrize("path", ["//evil.example/", "/events", "/main.js"])
async def test_the_token_is_exchanged_at_the_page_alone(source: SyntheticSource, path: str) -> None:
    async with opened(source, token=TOKEN) as dashboard:
        answer = await ask(dashboard.port, f"{path}?token={TOKEN}")
    assert answer.status == 401
    assert "location" not in answer.headers


async def test_a_wrong_token_is_a_warning_once_and_never_logged(source: SyntheticSource) -> None:
    with capture_logs() as logs:
        async with opened(source, token=TOKEN) as dashboard:
            for _ in range(3):
                await ask(dashboard.port, "/?token=guessed-by-somebody")
    assert [entry["event"] for entry in logs if entry["log_level"] == "warning"] == [
        "a wrong token was shown to the dashboard"
    ]
    assert "guessed" not in str(logs)
    assert TOKEN not in str(logs)
