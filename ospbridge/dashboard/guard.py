"""What stands before every request: is it meant for us, may it come in, and what must a browser not do with the answer.

Refusals say what to do, to people in words; nothing of a request is ever repeated in them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.requests import cookie_parser
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from ospbridge.observe import logs
from ospbridge.observe.sparing import Sparing

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from ospbridge.dashboard.address import Access

__all__ = ["HEADERS", "Guard"]

log = logs.get(__name__)
HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""Of every answer."""
COOKIE: Final = "ospbridge-dashboard"
LOOKS: Final = frozenset({"/style.css", "/theme.js", "/icon.svg"})
"""What the page that asks for the token needs: it tells nothing."""


class Guard:
    """Before ``app``. ``door``: the page for people who come without a token."""

    def __init__(self, app: ASGIApp, access: Access, *, port: int, door: bytes) -> None:
        self._app = app
        self._access = access
        self._door = door
        # Who listens to the page hears of it with the field that has the focus: an alert of a new page is not told.
        self._wrong_token = door.replace(b'role="alert" hidden', b'role="alert"').replace(
            b"autofocus", b'autofocus aria-invalid="true" aria-describedby="wrong"'
        )
        # Browsers send a cookie to all ports of a host: another daemon's must not replace ours.
        self._cookie = f"{COOKIE}-{port}"
        self._sparing = Sparing()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def armed(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
            await send(message)

        try:
            refused = self._refusal(scope)
        except UnicodeError:
            refused = PlainTextResponse("a request that is none\n", 400)
        await (refused or self._app)(scope, receive, armed)

    def _refusal(self, scope: Scope) -> Response | None:
        """What is answered instead of what was asked for; None where nothing speaks against that."""
        headers = Headers(scope=scope)
        if len(headers.getlist("host")) != 1 or not self._access.knows(headers["host"]):
            return PlainTextResponse(
                "This host is not known by that name here. Call it by its IP address, or have the daemon run with\n"
                "--dashboard-host NAME.\n",
                421,
            )
        origin = headers.get("origin")
        if origin is not None and not self._access.came_from_us(origin):
            return PlainTextResponse("Pages of other sites are not answered.\n", 403)
        elsewhere = headers.get("sec-fetch-site") in ("cross-site", "same-site")
        # A link may lead here from anywhere, but no other site's page may load anything by itself.
        if elsewhere and headers.get("sec-fetch-mode") != "navigate":
            return PlainTextResponse("Pages of other sites are not answered.\n", 403)
        return self._not_admitted(scope, headers)

    def _not_admitted(self, scope: Scope, headers: Headers) -> Response | None:
        if not self._access.token:
            return None
        path: str = scope["path"]
        shown = QueryParams(scope["query_string"]).get("token", "").strip()
        if shown and path == "/" and self._access.admits(token=shown):
            return self._exchange()
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        bearer = bearer.strip() if scheme.lower() == "bearer" else ""
        cookie = cookie_parser(headers.get("cookie", "")).get(self._cookie, "")
        if path in LOOKS or self._access.admits(token=bearer, cookie=cookie):
            return None
        if (shown or bearer) and self._sparing.due():
            log.warning("a wrong token was shown to the dashboard")
        challenge = {"WWW-Authenticate": 'Bearer realm="ospbridge"'}
        if path == "/" and "text/html" in headers.get("accept", ""):
            door = self._wrong_token if shown else self._door
            return Response(door, 401, challenge, "text/html; charset=utf-8")
        return PlainTextResponse(
            "A token is needed: send it as `Authorization: Bearer TOKEN`, or open the page with ?token=TOKEN.\n",
            401,
            challenge,
        )

    def _exchange(self) -> Response:
        """The token leaves the address bar, and a cookie that no script can read takes its place."""
        response = RedirectResponse("/", 303)
        response.set_cookie(self._cookie, self._access.cookie, httponly=True, samesite="strict", path="/")
        return response
