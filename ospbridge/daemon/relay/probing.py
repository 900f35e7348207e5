"""Finding out what an RLlink server speaks, needs and has, and leaving it as it was.

Only questions are asked that change nothing. A real server takes one client at a time, and nobody for 5 s after one
has left: so a probe may have to wait for the pause after another client, and causes one itself.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import trio

from ospbridge.daemon.relay.link import Link
from ospbridge.errors import (
    ConfigurationError,
    OspBridgeError,
    RemoteProtocolError,
    UpstreamNotFound,
)
from ospbridge.policy.describing import Description, describe
from ospbridge.rllink.connecting import RECYCLING, Limits
from ospbridge.rllink.exchanges import get_config, get_state, greet
from ospbridge.rllink.framing import LARGEST_TAKEN
from ospbridge.rllink.pickled_config import FoundConfig, config_in
from ospbridge.transport.streams import open_stream

if TYPE_CHECKING:
    from ospbridge.daemon.relay.link import Connection
    from ospbridge.rllink.dialects import Dialect
    from ospbridge.rllink.messages import SetConfig
    from ospbridge.transport.tls import StreamAddress

__all__ = ["Finding", "probe"]

PAUSE_IS_OVER: Final = RECYCLING + 1.0
"""Seconds after which a server that still refuses is not only between two clients."""
LOOK_FOR_TLS: Final = 2.0
PORTS: Final = (
    "RLlib listens on its own host only, at env_config's port, and with env runners at the ones behind it"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a server that was greeted told. None: it did not, and ``troubles`` says why."""

    address: StreamAddress
    dialect: Dialect
    waited: float
    """Seconds until it answered."""
    pong: float | None = None
    """Seconds from a PING to its PONG, on a connection that stands."""
    config: SetConfig | None = None
    read: FoundConfig | None = None
    """What its pickle told, where that was wanted."""
    weights_seq_no: int | None = None
    policy: Description | None = None
    troubles: tuple[str, ...] = ()


async def probe(
    address: StreamAddress,
    *,
    dialect: Dialect | None = None,
    within: float,
    read_pickle: bool = True,
    largest: int = LARGEST_TAKEN,
) -> Finding:
    """Ask a server. ``within``: seconds until it must have answered, and for each question after that.

    ``largest``: bytes of an answer.

    Raises UpstreamNotFound where no RLlink server answers, RemoteProtocolError where something else does,
    ConfigurationError for names and certificates that do not fit.
    """
    # Half of the time, so that silence is noticed before all of it has passed.
    limits = Limits(pong=min(Limits().pong, within / 2), config=within, answer=within)
    began = trio.current_time()
    news = trio.Event()
    wrong: OspBridgeError | None = None

    def look() -> None:
        error = link.error
        late = trio.current_time() > began + PAUSE_IS_OVER
        if (
            link.connected
            or isinstance(error, (RemoteProtocolError, ConfigurationError))
            or (isinstance(error, UpstreamNotFound) and late)
        ):
            news.set()

    async def run() -> None:
        nonlocal wrong
        try:
            await link.run()
        except ConfigurationError as error:
            wrong = error
            news.set()

    link = Link(address, dialect=dialect, limits=limits, largest=largest, on_change=look)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        with trio.move_on_after(within):
            await news.wait()
        waited = trio.current_time() - began
        connection = link.connected
        finding = None
        if connection is not None:
            finding = await _asked(connection, address, waited, read_pickle=read_pickle)
        nursery.cancel_scope.cancel()
    if finding is not None:
        return finding
    raise wrong or await _verdict(address, dialect, link.error, waited)


async def _asked(
    connection: Connection, address: StreamAddress, waited: float, *, read_pickle: bool
) -> Finding:
    """Each answer on its own: a server that keeps one back may give the others."""
    finding = Finding(address=address, dialect=connection.dialect, waited=waited)
    troubles = []
    try:
        asked_at = trio.current_time()
        await connection.perform(greet)
        finding = replace(finding, pong=trio.current_time() - asked_at)
    except OspBridgeError as error:
        troubles.append(f"PING: {error}")
    try:
        config = await connection.perform(get_config)
        finding = replace(finding, config=config)
        if read_pickle and config.pickled is not None:
            finding = replace(finding, read=(read := config_in(config.pickled)))
            troubles += [
                f"{name}: what the pickle says of it cannot be understood" for name in sorted(read.unread)
            ]
    except OspBridgeError as error:
        troubles.append(f"GET_CONFIG: {error}")
    try:
        weights = await connection.perform(get_state)
        finding = replace(finding, weights_seq_no=weights.seq_no)
        finding = replace(finding, policy=describe(weights.policy))
    except OspBridgeError as error:
        troubles.append(f"GET_STATE: {error}")
    return replace(finding, troubles=tuple(troubles))


async def _verdict(
    address: StreamAddress, dialect: Dialect | None, error: OspBridgeError | None, waited: float
) -> OspBridgeError:
    """Why nobody answered, and what to do next."""
    for_so_long = f"in {waited:.1f} s"
    if isinstance(error, UpstreamNotFound):
        own = error.hint if error.hint != UpstreamNotFound.default_hint else ""
        return UpstreamNotFound(
            f"{error.message} ({for_so_long})", hint=own or f"start it, or try `ospbridge sink`; {PORTS}"
        )
    if isinstance(error, ConfigurationError):
        return error
    if isinstance(error, RemoteProtocolError):
        if error.data.startswith(b"HTTP/"):
            error.hint = f"a web server answers there, Ray's dashboard for instance; {PORTS}"
        return error
    if address.tls is None and await _speaks_tls(address):
        return UpstreamNotFound(
            f"{address} speaks TLS, and was asked without",
            hint=f"write tls://{address}, and name its CA if it is one of your own",
        )
    told = f"{address} did not answer a PING" if error is None else error.message
    if address.tls is not None and "TLS handshake" in told:
        return UpstreamNotFound(
            f"{told} ({for_so_long})",
            hint="RLlib's own server speaks no TLS: leave out tls://, or put a TLS tunnel before it",
        )
    other = f", it speaks another dialect than {dialect.name}" if dialect is not None else ""
    return UpstreamNotFound(
        f"{told} ({for_so_long})",
        hint=f"it serves another client{other}, or is no RLlink server; stop that client, or wait with --timeout",
    )


async def _speaks_tls(address: StreamAddress) -> bool:
    """Whether what listens at an address that is written without TLS finishes a handshake, or fails at it in TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # Nothing is said to it, so nobody need be believed.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with trio.move_on_after(LOOK_FOR_TLS):
        try:
            plain = await open_stream(address, within=LOOK_FOR_TLS)
        except OspBridgeError:
            return False
        assert isinstance(plain, trio.SocketStream)
        secured = trio.SSLStream(plain, context, https_compatible=True)
        try:
            await secured.do_handshake()
        except trio.BrokenResourceError as error:
            return "ALERT" in (getattr(error.__cause__, "reason", None) or "")
        else:
            return True
        finally:
            await trio.aclose_forcefully(secured)
    return False
