"""Who may come in to the dashboard, and what a browser is told not to do with what it gets."""

from __future__ import annotations

import re

import pytest
from structlog.testing import capture_logs

from ospbridge.dashboard.assets import page_files
from tests.dashboard.synthetic import SyntheticSource, opened
from tests.dashboard.visitors import Answer, ask

pytest.importorskip("starlette", reason="needs the extra: pip install 'ospbridge[dashboard]'")
pytest.importorskip("hypercorn", reason="needs the extra: pip install 'ospbridge[dashboard]'")


pytestmark = [pytest.mark.loopback, pytest.mark.trio]

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
