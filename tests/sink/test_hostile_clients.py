"""The sink under clients that no client of ours is like: whatever one of them does, the others are served."""

from __future__ import annotations

import socket
import struct
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
import pytest
import trio
from structlog.testing import capture_logs

from ospbridge.errors import ConfigurationError
from ospbridge.record.reading import read_recording
from ospbridge.rllink.exchanges import deliver
from ospbridge.rllink.fragments import EpisodeFragment
from ospbridge.rllink.framing import header
from ospbridge.rllink.messages import Episodes
from ospbridge.rllink.server import ServerMachine
from ospbridge.sink.serving import Sink
from ospbridge.sink.store import Store
from ospbridge.transport.streams import parse_stream
from tests.kept import uncollected
from tests.sink.test_sink import WITHIN, fragment, linked, recorded, sink

if TYPE_CHECKING:
    from pathlib import Path

PING = {"type": "PING"}


def said(*messages: dict[str, Any]) -> bytes:
    """In the dialect json."""
    bodies = [orjson.dumps(message) for message in messages]
    return b"".join(header(len(body)) + body for body in bodies)


def episodes(actions: list[Any], **more: Any) -> dict[str, Any]:
    """A message with one episode of as many steps."""
    steps = len(actions)
    one = {
        "obs": [[float(at)] for at in range(steps + 1)],
        "actions": actions,
        "rewards": [1.0] * steps,
        "is_terminated": True,
        "is_truncated": False,
    }
    return {"type": "EPISODES", "episodes": [one | more]}


async def heard_until_dismissed(port: int, data: bytes) -> None:
    """Send, and read until the sink closes the connection."""
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    async with stream:
        with trio.fail_after(WITHIN):
            await stream.send_all(data)
            while await stream.receive_some(1000):
                pass


# --- what they send ----------------------------------------------------------------------------------------------


@pytest.mark.loopback
@pytest.mark.trio
@pytest.mark.parametrize(
    "actions, why",
    [
        ([0.5, 0.25], "a row of numbers for each action"),
        ([-5, -5], "actions that no recording can hold"),
        ([[0, 1], [1, 0]], "actions that no recording can hold"),
    ],
    ids=str,
)
async def test_actions_of_an_odd_form_end_their_client_with_the_reason_and_no_other(
    tmp_path: Path, actions: list[Any], why: str
) -> None:
    async with sink(Store(tmp_path / "in")) as address, linked(address) as other:
        with capture_logs() as logs:
            await heard_until_dismissed(address.endpoint.port, said(PING, episodes(actions)))
            await other.perform(partial(deliver, messages=[Episodes((fragment("a"),))]))
        (told,) = [line for line in logs if line["event"] == "a client is dismissed"]
        assert why in told["reason"]
        assert told["hint"]
    assert recorded(tmp_path / "in") == [(5, 5.0, "terminated")]


@pytest.mark.parametrize(
    "actions", [np.full(3, -5), np.zeros((3, 2), np.int64), np.array([0, -1, 2])], ids=str
)
def test_the_store_refuses_choices_that_no_recording_can_hold_and_goes_on(
    tmp_path: Path, actions: np.ndarray[Any, Any]
) -> None:
    store = Store(tmp_path)
    bad = EpisodeFragment("bad", np.zeros((4, 2), np.float32), actions, np.zeros(3, np.float32))
    with pytest.raises(ConfigurationError, match="'bad' has actions that no recording can hold"):
        store.add([bad], client="c")
    store.add([fragment("good")], client="c")
    assert [episode.id for episode in read_recording(tmp_path)] == ["good"]
    assert (store.written, store.again) == (1, 0)


@pytest.mark.loopback
@pytest.mark.trio
async def test_a_fault_of_the_sinks_own_ends_its_client_only_and_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path / "in")
    add = store.add

    def faulty(fragments: tuple[EpisodeFragment, ...], *, client: str) -> None:
        if any(each.id == "unlucky" for each in fragments):
            raise ZeroDivisionError("nobody thought of it")
        add(fragments, client=client)

    monkeypatch.setattr(store, "add", faulty)
    async with sink(store) as address, linked(address) as other:
        with capture_logs() as logs:
            await heard_until_dismissed(address.endpoint.port, said(PING, episodes([0, 1], id_="unlucky")))
            await other.perform(partial(deliver, messages=[Episodes((fragment("a"),))]))
        (told,) = [line for line in logs if line["event"] == "a client is dismissed"]
        assert told["reason"] == "ZeroDivisionError: nobody thought of it"
        assert told["log_level"] == "error"
    assert recorded(tmp_path / "in") == [(5, 5.0, "terminated")]


@pytest.mark.loopback
@pytest.mark.trio
@pytest.mark.parametrize("refused", [header(2) + b"{}", b"nonsense", header(5) + b"12345"], ids=str)
async def test_of_a_client_that_is_refused_nothing_is_kept(tmp_path: Path, refused: bytes) -> None:
    with uncollected(ServerMachine) as machines:
        async with sink(Store(tmp_path / "in")) as address:
            await heard_until_dismissed(address.endpoint.port, said(PING) + refused)
            with trio.fail_after(WITHIN):
                while machines():
                    await trio.sleep(0.01)


# --- how they go -------------------------------------------------------------------------------------------------


@pytest.mark.loopback
@pytest.mark.trio
async def test_who_has_reset_its_connection_before_it_was_heard_ends_no_other() -> None:
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    host, port = listener.socket.getsockname()[:2]
    for _ in range(5):
        with socket.create_connection((host, port), WITHIN) as gone:
            gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    served = Sink(None, None, env_steps=10)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(served.serve, [listener], None)
        async with linked(parse_stream(f"{host}:{port}")) as other:
            await other.perform(partial(deliver, messages=[Episodes((fragment("a"),))]))
            assert (served.clients, served.fragments) == (1, 1)
        nursery.cancel_scope.cancel()


@pytest.mark.loopback
@pytest.mark.trio
async def test_a_client_whose_host_vanished_gives_its_place_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing on one host vanishes without a word; what the kernel is told to do about it can be seen."""
    accept = trio.SocketListener.accept
    taken: list[trio.SocketStream] = []

    async def watched(listener: trio.SocketListener) -> trio.SocketStream:
        taken.append(await accept(listener))
        return taken[-1]

    monkeypatch.setattr(trio.SocketListener, "accept", watched)
    async with sink() as address, linked(address):
        (stream,) = taken
        assert stream.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        options = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        idle, every, probes = (int(stream.getsockopt(socket.IPPROTO_TCP, each)) for each in options)
        assert idle + every * probes <= 60
