"""The environment's end of the hub, against a daemon of a few lines, and against the real one."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

import numpy as np
import pytest
from msgspec.structs import replace

from ospbridge.envs.hub import AgentHandle
from ospbridge.errors import (
    AgentNotFound,
    BarrierStuck,
    HubError,
    HubLost,
    HubNotFound,
    LocalProtocolError,
    OspBridgeError,
    SessionClosed,
    SessionLost,
    SimulatorNotFound,
    UsageError,
)
from ospbridge.hub.descriptions import AgentDescription
from ospbridge.hub.framing import encode
from ospbridge.hub.replies import (
    AgentFeedback,
    Attached,
    Feedbacks,
    Held,
    Refusal,
)
from ospbridge.hub.requests import Again, Attach, Detach, Hello, HubRequest, Reset, Step
from ospbridge.observe.runtime import default_hub
from ospbridge.session.hub_client import HubClient
from ospbridge.session.hub_exchange import HubExchange
from tests.session.servers import wait_for
from tests.session.tiny_daemon import CART, TinyDaemon, daemon, feedback, numbers, usual

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ospbridge.interface import Feedback
    from tests.session.tiny_daemon import Replies


pytestmark = pytest.mark.loopback


def taken(*, timeout: float = 10.0, wait: float = 0.0) -> AgentHandle:
    return AgentHandle.attach(HubClient.connect(timeout=timeout, wait=wait), "cart")


@contextmanager
def seated(*, timeout: float = 10.0, wait: float = 0.0) -> Iterator[AgentHandle]:
    seat = taken(timeout=timeout, wait=wait)
    try:
        yield seat
    finally:
        seat.close()


@contextmanager
def playing(answer: Callable[[HubRequest], Replies] = usual) -> Iterator[tuple[TinyDaemon, AgentHandle]]:
    """A daemon, and its agent behind a reset."""
    with daemon(answer) as tiny, seated() as seat:
        seat.reset(1)
        yield tiny, seat


def steps_bring(*replies: Replies) -> Callable[[HubRequest], Replies]:
    """What a daemon answers to the first steps that name their agent, and then usually."""
    left = list(replies)
    return lambda request: left.pop(0) if isinstance(request, Step) and left else usual(request)


INPUTS = np.array([0.25, 0.5], np.float32)


# --- the usual way -------------------------------------------------------------------------------------------------


def test_the_former_way_to_take_an_agent_names_the_present_one() -> None:
    with (
        daemon(usual),
        HubClient.connect() as client,
        pytest.raises(UsageError, match=r"AgentHandle\.attach"),
    ):
        client.attach("cart")


def test_the_name_is_said_once_in_each_episode() -> None:
    with daemon() as tiny, seated() as seat:
        for _ in range(2):
            seat.reset(1)
            told = [seat.step(INPUTS) for _ in range(3)]
            assert [type(request) for request in tiny.requests[-4:]] == [Reset, Step, Again, Again]
            assert [each.observation.tolist() for each in told] == [[0.75]] * 3
            assert [each.reward for each in told] == [0.25] * 3
            assert told[0].info["events"] == ("/episode/ended",)
            nothing = {"events": (), "values": {}, "restored": False, "reason": ""}
            assert told[1].info == {"osp_seed": 1, "infos": {"/episode/reward": 0.25}, **nothing}
            assert list(told[1].info) == list(told[0].info)


@pytest.mark.parametrize("failed", [True, False], ids=["was refused", "has no answer of its own"])
def test_the_name_is_said_again_where_the_step_that_said_it(failed: bool) -> None:
    def answer(request: HubRequest) -> Replies:
        steps.append(request) if isinstance(request, (Step, Again)) else None
        if isinstance(request, Step) and len(steps) == 1:
            return Refusal("HubError", "not now") if failed else numbers(0.5)
        return usual(request)

    steps: list[HubRequest] = []
    with playing(answer) as (_, seat):
        with pytest.raises(HubError, match="not now") if failed else nullcontext():
            seat.step(INPUTS)
        seat.step(INPUTS)
        seat.step(INPUTS)
        assert [type(step) for step in steps] == [Step, Step, Again]


@pytest.mark.parametrize(
    "wrong",
    [np.zeros(3, np.float32), np.array([0, np.nan]), "x"],
)
def test_inputs_that_cannot_be_sent_are_refused_before_they_are(wrong: object) -> None:
    with playing() as (tiny, seat):
        sent = len(tiny.requests)
        with pytest.raises(LocalProtocolError):
            seat.step(wrong)
        assert len(tiny.requests) == sent
        assert seat.step(INPUTS).observation.tolist() == [0.75]


@pytest.mark.parametrize("pause", [0.0, 0.3])
def test_a_notice_that_the_world_is_held_suspends_the_deadline(
    pause: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ospbridge.envs.hub.MARGIN", -0.3)  # a step limit of 0.1 s

    held: Replies = [Held(20.0, "waits for weights"), pause, Held(20.0, "still"), pause, feedback(0.75)]
    with playing(steps_bring(held)) as (_, seat):
        assert seat.step(INPUTS).observation.tolist() == [0.75]
        assert seat.step(INPUTS).observation.tolist() == [0.75]


def test_a_second_thread_is_told_so_and_the_first_one_gets_its_answer() -> None:
    asked, answering = threading.Event(), threading.Event()

    def answer(request: HubRequest) -> Replies:
        if isinstance(request, Step):
            asked.set()
            assert answering.wait(20)
        return usual(request)

    told: list[Feedback] = []
    with playing(answer) as (_, seat):
        seat.backend._limits = (30.0, 30.0)
        first = threading.Thread(target=lambda: told.append(seat.step(INPUTS)))
        first.start()
        assert asked.wait(20)
        with pytest.raises(LocalProtocolError, match="two threads used the connection to the daemon"):
            seat.step(INPUTS)
        with pytest.raises(LocalProtocolError, match="two threads used the connection to the daemon"):
            seat.reset(2)
        answering.set()
        first.join(20)
        assert [each.observation.tolist() for each in told] == [[0.75]]
        assert seat.step(INPUTS).observation.tolist() == [0.75]


def test_behind_ctrl_c_at_the_end_of_an_exchange_its_thread_is_no_second_one() -> None:
    with daemon() as hub, seated() as seat:
        seat.reset(1)
        # The answer was there, and the mark of who waits for it was not removed any more.
        seat.backend._client.in_use._owner = threading.get_ident()
        assert seat.step(INPUTS).observation.tolist() == [0.75]
        seat.backend._client.in_use._owner = threading.get_ident()
        seat.close()
        wait_for(lambda: any(isinstance(request, Detach) for request in hub.requests))


def test_a_refusal_is_raised_as_the_error_it_names_and_the_connection_stays() -> None:
    refusals = Refusal("BarrierStuck", "others do not vote", "vote"), Refusal("NewerError", "something")
    with playing(steps_bring(*refusals)) as (_, seat):
        with pytest.raises(BarrierStuck, match="others do not vote") as caught:
            seat.step(INPUTS)
        assert caught.value.hint == "vote"
        with pytest.raises(HubError, match="something"):
            seat.step(INPUTS)
        assert seat.step(INPUTS).observation.tolist() == [0.75]


def test_closing_gives_the_agent_back_and_may_be_repeated() -> None:
    with daemon() as tiny:
        with seated() as seat:
            seat.reset(1)
        seat.close()
        wait_for(lambda: tiny.ends == 1)
        assert isinstance(tiny.requests[-1], Detach)
        with pytest.raises(SessionClosed):
            seat.step(INPUTS)
        with pytest.raises(SessionClosed):
            seat.reset(1)


@pytest.mark.parametrize("stands_still", [False, True], ids=["a daemon that waits", "one that stands still"])
def test_whoever_waits_for_an_answer_is_woken_when_another_thread_closes(
    stands_still: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ospbridge.session.hub_client.LEAVE", 0.2)
    asked, goes_on = threading.Event(), threading.Event()

    def answer(request: HubRequest) -> Replies:
        if not isinstance(request, Step):
            return usual(request)
        asked.set()
        assert not stands_still or goes_on.wait(20)
        return None

    ended: list[OspBridgeError] = []
    with playing(answer) as (tiny, seat):
        seat.backend._limits = (30.0, 30.0)

        def step() -> None:
            try:
                seat.step(INPUTS)
            except OspBridgeError as error:
                ended.append(error)

        thread = threading.Thread(target=step)
        thread.start()
        assert asked.wait(20)
        seat.close()
        thread.join(20)
        assert [type(error) for error in ended] == [SessionClosed]
        assert tiny.ends == (0 if stands_still else 1)
        goes_on.set()


def test_closing_in_a_handler_of_signals_ends_the_step_beneath() -> None:
    def answer(request: HubRequest) -> Replies:
        if isinstance(request, Step):
            os.kill(os.getpid(), signal.SIGUSR1)
            return None
        return usual(request)

    before = signal.signal(signal.SIGUSR1, lambda *_: seat.close())
    try:
        with daemon(answer), seated() as seat:
            seat.reset(1)
            seat.backend._limits = (30.0, 30.0)
            with pytest.raises(SessionClosed):
                seat.step(INPUTS)
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_reset_that_waits_for_a_daemon_ends_when_another_thread_closes() -> None:
    with daemon():
        seat = taken(timeout=30.0)
        seat.reset(1)
    with pytest.raises(HubLost):
        seat.step(INPUTS)
    timer = threading.Timer(0.2, seat.close)
    timer.start()
    with pytest.raises(SessionClosed):
        seat.reset(2)
    timer.join()


# --- no daemon -----------------------------------------------------------------------------------------------------


def test_without_a_daemon_the_error_names_the_path_and_what_to_start() -> None:
    with pytest.raises(HubNotFound, match=str(default_hub())) as caught:
        HubClient.connect()
    assert "ospbridge connect" in caught.value.hint


def test_a_dead_daemon_of_several_simulators_is_to_be_started_again_and_no_other_simulators_hub_named() -> (
    None
):
    left, right = default_hub("left"), default_hub("right")
    left.parent.mkdir(parents=True, exist_ok=True)
    for path in (left, right):
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(path))
    with pytest.raises(HubNotFound, match="hub-left") as caught:
        HubClient.connect(f"unix:{left}")
    assert "ospbridge connect" in caught.value.hint
    assert "hub-right" not in caught.value.hint
    with pytest.raises(HubNotFound) as caught:
        HubClient.connect()
    assert f"unix:{left}, unix:{right}" in caught.value.hint


def test_a_daemon_that_comes_later_is_waited_for() -> None:
    timer = threading.Timer(0.3, lambda: running.append(TinyDaemon()))
    running: list[TinyDaemon] = []
    timer.start()
    with seated(wait=10.0) as seat:
        seat.reset(1)
    timer.join()
    running[0].stop()


def test_a_daemon_without_a_simulator_is_waited_for_as_long_as_asked() -> None:
    not_yet = [Refusal("SimulatorNotFound", "not joined")] * 3

    def answer(request: HubRequest) -> Replies:
        return not_yet.pop() if isinstance(request, Attach) and not_yet else usual(request)

    with daemon(answer):
        with pytest.raises(SimulatorNotFound), seated():
            pass
        with seated(wait=10.0) as seat:
            seat.reset(1)


@pytest.mark.parametrize("ended", [Hello, Attach])
def test_a_daemon_that_ends_while_an_environment_waits_at_it_is_waited_for_as_well(
    ended: type[HubRequest],
) -> None:
    def answer(request: HubRequest) -> Replies:
        return b"" if isinstance(request, ended) else usual(request)

    started: list[AgentHandle] = []
    waiting = threading.Thread(target=lambda: started.append(taken(wait=30.0)))
    with daemon(answer) as tiny:
        with pytest.raises(HubLost) as caught, seated():
            pass
        assert "the daemon has just ended" in caught.value.hint or ended is Attach
        wait_for(lambda: tiny.ends == 1)
        waiting.start()
        wait_for(lambda: tiny.ends > 1)
    with daemon():
        waiting.join(30)
        (seat,) = started
        assert seat.reset(1).info["osp_seed"] == 1
        seat.close()


def test_a_glob_that_fits_several_agents_takes_none_of_them() -> None:
    def answer(request: HubRequest) -> Replies:
        both = Attached([CART, replace(CART, name="cart2")], 0.2, 0.3)
        return both if isinstance(request, Attach) else usual(request)

    with daemon(answer) as tiny:
        with pytest.raises(
            AgentNotFound, match=r"'cart\*' fits more than one agent .*: cart, cart2 .*agent='cart'"
        ):
            AgentHandle.attach(HubClient.connect(timeout=10.0), "cart*")
        wait_for(lambda: tiny.ends == 1)


# --- a daemon that goes --------------------------------------------------------------------------------------------


def test_a_daemon_that_restarts_is_waited_for_by_the_next_reset() -> None:
    with daemon():
        seat = taken()
        seat.reset(1)
    with pytest.raises(HubLost):
        seat.step(INPUTS)
    running: list[TinyDaemon] = []
    timer = threading.Timer(0.3, lambda: running.append(TinyDaemon()))
    timer.start()
    assert seat.reset(3).info["osp_seed"] == 3
    seat.close()
    timer.join()
    running[0].stop()


def test_an_agent_that_comes_back_with_another_interface_is_refused() -> None:
    other = AgentDescription(
        "cart", "Agent", CART.inputs[:1], CART.outputs, CART.infos, CART.observation, CART.action
    )
    first = True

    def answer(request: HubRequest) -> Replies:
        nonlocal first
        if isinstance(request, Attach) and not first:
            return Attached([other], 1.0, 1.0)
        first = first and not isinstance(request, Attach)
        return usual(request)

    with playing(answer) as (tiny, seat):
        tiny.hang_up()
        with pytest.raises(HubLost):
            seat.step(INPUTS)
        with pytest.raises(SessionLost, match="another interface"):
            seat.reset(2)


def test_an_agent_that_is_not_there_yet_when_the_daemon_returns_is_attached_when_it_is() -> None:
    attached = 0

    def answer(request: HubRequest) -> Replies:
        nonlocal attached
        if isinstance(request, Attach):
            attached += 1
            if attached == 2:
                return Refusal("AgentNotFound", "no agent")
        return usual(request)

    with playing(answer) as (tiny, seat):
        tiny.hang_up()
        with pytest.raises(HubLost):
            seat.step(INPUTS)
        with pytest.raises(AgentNotFound):
            seat.reset(2)
        seat.reset(3)
        assert attached == 3


@pytest.mark.parametrize(
    "replies, why",
    [
        (b"\xff\xff\xff\xff", "sent what is no reply"),
        (b"\x03\x00\x00\x00abc", "sent what is no reply"),
        (b"\x01", "the stream ended"),
        (b"", "the stream ended"),
        (None, r"no reply within 0\.5 s"),
        ([Held(0.05, "waits for weights")], r"no reply within 0\.5 s"),
    ],
    ids=["oversize", "no reply", "a piece", "nothing", "silence", "silence behind a hold"],
)
def test_garbage_and_silence_of_the_daemon_are_hub_lost(
    replies: Replies, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ospbridge.envs.hub.MARGIN", 0.1)
    with playing(steps_bring(replies)) as (_, seat), pytest.raises(HubLost, match=why):
        seat.step(INPUTS)


@pytest.mark.parametrize(
    "wrong, why",
    [
        (lambda _: [], "of 0 agents instead of 1"),
        (lambda told: [replace(told, agent="pole")], "of agent 'pole' instead of 'cart'"),
        (lambda told: [replace(told, observation=bytearray(8))], "with 8 bytes of observation"),
        (lambda told: [replace(told, infos=bytes(8))], "and 8 of infos"),
    ],
    ids=["no agent", "another", "two floats", "more infos"],
)
@pytest.mark.parametrize("asked", [Reset, Step])
def test_feedback_that_does_not_fit_the_agent_is_hub_lost(
    wrong: Callable[[AgentFeedback], list[AgentFeedback]], why: str, asked: type
) -> None:
    def answer(request: HubRequest) -> Replies:
        reply = usual(request)
        if mended or not isinstance(request, asked):
            return reply
        assert isinstance(reply, Feedbacks)
        return Feedbacks(wrong(reply.agents[0]))

    def play(seed: int) -> Feedback:
        seat.reset(seed)
        return seat.step(INPUTS)

    mended = False
    with daemon(answer), seated() as seat:
        with pytest.raises(HubLost, match=f"not asked for: Feedbacks, .*{why}"):
            play(1)
        assert seat.backend._client.lost
        mended = True
        assert play(4).observation.tolist() == [0.75]


def test_an_interrupted_wait_costs_the_connection_so_that_no_late_reply_is_taken_for_another() -> None:
    def answer(request: HubRequest) -> Replies:
        if isinstance(request, Step):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.1)
            return feedback(99.0)
        return usual(request)

    with playing(answer) as (tiny, seat):
        with pytest.raises(KeyboardInterrupt):
            seat.step(INPUTS)
        tiny.answer = usual
        with pytest.raises(HubLost):
            seat.step(INPUTS)
        assert seat.reset(2).observation.tolist() == [0.0]


# --- forks ---------------------------------------------------------------------------------------------------------

FORK = """
import os, sys
import numpy as np
from ospbridge.errors import SessionClosed
from ospbridge.envs.hub import AgentHandle
from ospbridge.session.hub_client import HubClient

seat = AgentHandle.attach(HubClient.connect(), "cart")
seat.reset(1)
child = os.fork()
if child == 0:
    for use in (lambda: seat.step(np.zeros(2, np.float32)), lambda: seat.reset(2)):
        try:
            use()
        except SessionClosed as error:
            assert "parent process" in str(error)
        else:
            os._exit(1)
    seat.close()
    sys.stdin.readline()
    os._exit(0)
print(seat.step(np.ones(2, np.float32)).observation.tolist(), flush=True)
os._exit(0)
"""


def test_a_forked_child_cannot_use_the_connection_and_does_not_keep_it_open() -> None:
    with daemon() as tiny:
        parent = subprocess.Popen(
            [sys.executable, "-c", FORK], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert parent.stdout is not None
        assert parent.stdout.readline().strip() == "[2.0]"
        # The parent is gone, the child waits: the stream must have ended all the same.
        wait_for(lambda: tiny.ends == 1)
        parent.communicate("\n", timeout=10)
        assert parent.returncode == 0


def test_who_is_turned_away_before_it_could_ask_is_told_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = bytearray()
    encode(Refusal("HubError", "the daemon is full", "come later"), said)
    gone = threading.Event()

    def turn_away() -> None:
        sock, _ = listener.accept()
        sock.sendall(said)
        sock.close()
        gone.set()

    send = HubExchange.send

    def late(self: HubExchange, frame: bytearray, limit: float) -> None:
        assert gone.wait(10)
        send(self, frame, limit)

    monkeypatch.setattr(HubExchange, "send", late)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "hub"))
        listener.listen()
        thread = threading.Thread(target=turn_away)
        thread.start()
        with pytest.raises(HubError, match="the daemon is full"):
            HubClient.connect(f"unix:{tmp_path / 'hub'}")
        thread.join(10)
