"""The client machine, mostly wired to the server machine: connecting, exchanges, stale weights, silence, leaving."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from ospbridge.errors import LocalProtocolError, RemoteProtocolError, UpstreamLost
from ospbridge.rllink.batches import split
from ospbridge.rllink.client import ClientMachine, Exchange, Notice, StateArrived
from ospbridge.rllink.connecting import (
    LONGEST_PAUSE,
    LONGEST_REFUSED,
    RECYCLING,
    Attempt,
    ConnectPlan,
    End,
    Limits,
)
from ospbridge.rllink.dialects import JSON, MSGPACK, Dialect
from ospbridge.rllink.exchanges import deliver, get_config, get_state, greet, learn, newer_state
from ospbridge.rllink.messages import (
    Episodes,
    EpisodesAndGetState,
    ModuleWeights,
    Pong,
    SetState,
)
from ospbridge.rllink.server import EpisodesArrived
from tests.rllink.episodes import assert_equal, episode
from tests.rllink.pair import CONFIG, LATENCY, Pair, weights


def greeted(dialect: Dialect = MSGPACK, **options: Any) -> Pair:
    pair = Pair(dialect, **options)
    pair.do(greet(pair.client))
    return pair


def batch(steps: int = 10, *, seed: int = 0) -> list[Episodes]:
    return split([episode(steps, seed=seed)], MSGPACK, await_weights=True, least_steps=steps)


def seq_of(message: Any) -> int:
    assert isinstance(message, ModuleWeights)
    return message.seq_no


# --- the way it should go ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("piece", [1, 7, 1 << 30])
def test_a_whole_session_runs_however_its_bytes_are_cut(dialect: Dialect, piece: int) -> None:
    pair = greeted(dialect, piece=piece)
    assert pair.client.connected
    assert pair.server.dialect is dialect
    assert pair.do(get_config(pair.client)) == CONFIG
    assert seq_of(pair.do(get_state(pair.client))) == 0
    first = episode(10)
    learned = pair.do(learn(pair.client, split([first], dialect, await_weights=True, least_steps=10)))
    assert isinstance(learned, ModuleWeights)
    assert learned.arrays["layer.weight"].tolist() == [[1, 1], [1, 1]]
    pair.do(deliver(pair.client, split([episode(4, seed=1)], dialect, await_weights=False)))
    assert not pair.client.events
    assert pair.steps == 14
    arrived = next(event for event in pair.seen if isinstance(event, EpisodesArrived))
    assert_equal(arrived.fragments[0], first, named=dialect is MSGPACK)
    assert pair.client.may_close


def test_nothing_is_sent_before_the_pong() -> None:
    pair = Pair(MSGPACK)
    for exchange in (
        get_config(pair.client),
        get_state(pair.client),
        deliver(pair.client, [Episodes((episode(),))]),
        learn(pair.client, batch()),
    ):
        assert isinstance(pair.error(exchange), LocalProtocolError)
    assert not pair.to_server
    assert pair.do(greet(pair.client)) is None


@pytest.mark.parametrize("messages", [[Episodes((episode(),))], [EpisodesAndGetState((episode(),))] * 2])
def test_only_the_last_message_of_a_batch_asks_for_weights(messages: list[Episodes]) -> None:
    pair = greeted()
    assert "must ask for weights" in pair.error(learn(pair.client, messages)).message


def test_what_is_delivered_without_waiting_does_not_ask_for_weights() -> None:
    pair = greeted()
    assert isinstance(pair.error(deliver(pair.client, batch())), LocalProtocolError)


def test_a_batch_of_which_one_message_cannot_be_written_is_not_sent_at_all() -> None:
    pair = greeted(JSON)
    sent = len(pair.to_server)
    bad = episode(3, rewards=np.array([0, np.nan, 0]))
    pair.error(learn(pair.client, [Episodes((episode(3),)), EpisodesAndGetState((bad,))]))
    assert len(pair.to_server) == sent
    assert pair.client.may_close


# --- weights -------------------------------------------------------------------------------------------------------


def test_new_weights_are_asked_for_every_20_ms() -> None:
    pair = greeted(stale=1, learns=1.0)
    pair.do(get_state(pair.client))
    pair.do(learn(pair.client, batch()))
    polls = np.diff(pair.times[2:])
    assert len(polls) > 40
    assert np.allclose(polls, 0.02 + 2 * LATENCY, atol=1e-6)


@pytest.mark.parametrize("stale", [0, 5])
def test_a_learner_that_is_restored_goes_on_from_a_lower_number(stale: int) -> None:
    pair = greeted(learns=0.1)
    pair.seq_no = 7
    pair.do(get_state(pair.client))
    pair.seq_no, pair.stale = 3, stale
    # Where it is stale its first answer has what it was restored to, and it learns behind that.
    numbers = [seq_of(pair.do(learn(pair.client, batch(seed=number)))) for number in range(6)]
    assert numbers == ([4, 5, 6, 7, 8, 9] if not stale else [3, 5, 6, 7, 8, 9])
    assert pair.client.seq_no == 9


def test_weights_that_never_become_new_are_given_up_at_the_limit() -> None:
    pair = greeted(stale=1, learns=1e9, limits=Limits(state=3.0))
    pair.do(get_state(pair.client))
    began = pair.now
    error = pair.error(learn(pair.client, batch()))
    assert isinstance(error, UpstreamLost)
    assert "still has the weights number 0" in error.message
    assert "batch" in error.hint
    assert 3.0 <= pair.now - began < 3.1


def test_a_flood_of_weights_keeps_the_latest_only() -> None:
    pair = greeted()
    for number in range(200):
        pair.client.receive(MSGPACK.encode(SetState(weights(number))), pair.now)
    (last,) = pair.client.events
    assert isinstance(last, StateArrived)
    assert last.weights.seq_no == 199


@pytest.mark.parametrize("learns", [1.0, 400.0])
def test_weights_that_came_before_the_real_answer_are_asked_for_again_until_they_are_new(
    learns: float,
) -> None:
    pair = greeted(learns=learns)
    pair.do(get_state(pair.client))
    pair.push(MSGPACK.encode(SetState(weights(0))), after=0.1)
    assert seq_of(pair.do(learn(pair.client, batch()))) == 1


def test_a_message_of_a_later_release_is_noticed_and_skipped() -> None:
    pair = greeted()
    pair.push(b"00000013" + b"\x81\xa4type\xa6NOTIFY"[:13])
    pair.settle(1.0)
    (event,) = pair.client.events
    assert isinstance(event, Notice)
    assert "NOTIFY" in event.text
    assert pair.do(get_config(pair.client)) == CONFIG


# --- silence -------------------------------------------------------------------------------------------------------


def asked(name: str, machine: ClientMachine) -> Exchange[Any]:
    made: dict[str, Any] = {
        "pong": greet,
        "config": get_config,
        "answer": get_state,
        "state": lambda client: learn(client, batch()),
        "proof": lambda client: deliver(client, [Episodes((episode(),))]),
    }
    exchange: Exchange[Any] = made[name](machine)
    return exchange


@pytest.mark.parametrize(
    "name, limit", [("pong", 5), ("config", 10), ("answer", 30), ("state", 600), ("proof", 60)]
)
def test_silence_ends_at_the_limit_with_what_was_awaited_and_what_to_do(name: str, limit: float) -> None:
    pair = greeted()
    pair.deaf = True
    began = pair.now
    error = pair.error(asked(name, pair.client))
    assert isinstance(error, UpstreamLost)
    assert f"did not send {'SET_' if name in ('config', 'answer', 'state') else 'PONG'}" in error.message
    assert f"within {limit:.1f} s" in error.message
    assert error.hint
    assert pair.now - began == pytest.approx(limit)


def test_a_limit_counts_from_the_latest_that_left() -> None:
    client = greeted().client
    client.begin(deliver(client, [Episodes((episode(5),))]), 1000.0)
    assert client.data_to_send()
    for now in (1050.0, 1100.0, 1150.0):
        client.sent(now)
        assert client.next_deadline() == now + 60.0
        client.handle_timer(now + 59.0)
        assert not client.finished
    client.handle_timer(1210.0)
    with pytest.raises(UpstreamLost, match="did not send PONG"):
        client.result()


def test_a_server_that_learns_for_somebody_who_left_is_not_taken_for_a_dead_one() -> None:
    pair = greeted(learns=40.0)
    pair.client.begin(learn(pair.client, batch()), pair.now)
    pair.flush()
    pair.settle(1.0)
    pair.client.interrupt(RuntimeError("the caller was cancelled"))
    with pytest.raises(RuntimeError):
        pair.client.result()
    assert pair.do(get_config(pair.client)) == CONFIG
    (event,) = pair.client.events
    assert isinstance(event, StateArrived)
    assert event.weights.seq_no == 1


def test_a_server_that_never_stops_talking_cannot_stop_the_time() -> None:
    machine = ClientMachine(MSGPACK)
    machine.begin(greet(machine), 0.0)
    notice = MSGPACK.encode(SetState(weights(1)))
    for tenth in range(100):
        if machine.finished:
            break
        machine.receive(notice, tenth / 10)
    with pytest.raises(UpstreamLost, match=r"did not send PONG within 5\.0 s"):
        machine.result()


# --- the end -------------------------------------------------------------------------------------------------------


def test_a_connection_that_ends_in_mid_message_tells_how_much_was_there() -> None:
    pair = greeted()
    pair.deaf = True
    pair.push(b"00001000" + b"x" * 30, after=0.1)
    pair.hang_up(after=0.2)
    error = pair.error(get_state(pair.client))
    assert "30 of 1000 bytes of a message" in error.message
    assert pair.client.lost is error


def test_a_server_that_speaks_no_rllink_is_left_and_heard_no_more() -> None:
    pair = greeted()
    pair.deaf = True
    pair.push(b"nonsense", after=0.1)
    error = pair.error(get_state(pair.client))
    assert isinstance(error, RemoteProtocolError)
    pair.client.receive(MSGPACK.encode(SetState(weights(1))), pair.now)
    pair.client.eof(pair.now)
    assert pair.client.lost is error
    assert not pair.client.events


def test_leaving_is_safe_but_while_weights_are_learned() -> None:
    pair = greeted(learns=3.0)
    assert pair.client.may_close
    pair.client.begin(get_state(pair.client), pair.now)
    assert pair.client.may_close
    pair.until(lambda: pair.client.finished)
    pair.client.begin(learn(pair.client, batch()), pair.now)
    assert not pair.client.may_close
    pair.flush()
    pair.settle(1.0)
    pair.client.interrupt(RuntimeError("closing"))
    assert not pair.client.may_close
    pair.until(lambda: pair.client.may_close)
    assert pair.seq_no == 1


def test_newer_weights_are_asked_for_until_the_time_that_was_given() -> None:
    pair = greeted()
    until = pair.now + 1.5
    error = pair.error(newer_state(pair.client, 0, until=until))
    assert isinstance(error, UpstreamLost)
    assert pair.now == pytest.approx(until, abs=0.05)


def test_newer_weights_are_asked_for_until_the_limit_of_learning_and_the_questions_are_counted() -> None:
    pair = greeted(limits=Limits(answer=1.0, state=1.0))
    began = pair.now
    error = pair.error(newer_state(pair.client, 0))
    assert isinstance(error, UpstreamLost)
    (asked,) = re.findall(r"after (\d+) questions", error.message)
    assert int(asked) >= 20
    assert pair.now - began == pytest.approx(1.0, abs=0.1)


def test_a_connection_that_ends_says_which_reply_was_due() -> None:
    client = ClientMachine(MSGPACK)
    client.eof(0.0)
    assert "with a reply" not in str(client.lost)
    client = ClientMachine(MSGPACK)
    client.begin(greet(client), 0.0)
    client.eof(0.0)
    assert "with a reply to Ping due" in str(client.lost)


def test_silence_over_the_settings_is_explained_by_what_servers_of_that_dialect_do(dialect: Dialect) -> None:
    client = ClientMachine(dialect)
    client.begin(greet(client), 0.0)
    client.take(Pong(), 0.0)
    for exchange, awaited in ((get_config, "SET_CONFIG"), (get_state, "SET_STATE")):
        client.begin(exchange(client), 0.0)
        client.handle_timer(1e6)
        with pytest.raises(UpstreamLost, match=awaited) as caught:
            client.result()
        assert "see the learner's log" in caught.value.hint
        assert ("pickle" in caught.value.hint) == (dialect is MSGPACK and exchange is get_config)


# --- when to connect again, and in which dialect -------------------------------------------------------------------


def plan(dialect: Dialect | None = None, jitter: float = 0.0) -> ConnectPlan:
    return ConnectPlan(dialect, jitter=lambda: jitter)


def test_a_server_that_closes_before_the_pong_is_tried_in_the_other_dialect_when_it_listens_again() -> None:
    attempts = plan()
    attempts.ended(End.CLOSED)
    assert attempts.next_attempt() == Attempt(RECYCLING, JSON)
    attempts.greeted()
    assert attempts.dialect is JSON


def test_a_dialect_that_was_proven_is_remembered(dialect: Dialect) -> None:
    attempts = plan()
    if dialect is JSON:
        attempts.ended(End.CLOSED)
    attempts.greeted()
    attempts.ended(End.CLOSED)
    assert attempts.next_attempt() == Attempt(RECYCLING, dialect)
    attempts.ended(End.CLOSED)
    assert attempts.next_attempt().dialect is dialect


def test_a_reset_says_nothing_of_the_dialect_unless_it_comes_again() -> None:
    attempts = plan()
    tried = []
    for how in (End.REFUSED, End.RESET, End.RESET, End.RESET, End.CLOSED):
        tried.append(attempts.next_attempt().dialect)
        attempts.ended(how)
    assert tried == [MSGPACK, MSGPACK, MSGPACK, JSON, MSGPACK]
    assert attempts.next_attempt().dialect is JSON


@pytest.mark.parametrize(
    "how, first, longest",
    [
        (End.REFUSED, 1.0, LONGEST_REFUSED),
        (End.CLOSED, RECYCLING, LONGEST_PAUSE),
        (End.RESET, RECYCLING, LONGEST_PAUSE),
        (End.SILENT, RECYCLING, LONGEST_PAUSE),
    ],
)
def test_pauses_double_up_to_a_limit(how: End, first: float, longest: float) -> None:
    attempts = plan()
    pauses = []
    for _ in range(12):
        attempts.ended(how)
        pauses.append(attempts.next_attempt().pause)
    assert pauses[0] == first
    assert pauses[1] == 2 * first
    assert pauses == sorted(pauses)
    assert pauses[-1] == longest


def test_a_pong_starts_the_count_anew() -> None:
    attempts = plan()
    for _ in range(8):
        attempts.ended(End.REFUSED)
    assert attempts.in_vain == 8
    attempts.greeted()
    assert attempts.in_vain == 0
    attempts.ended(End.CLOSED)
    assert attempts.next_attempt().pause == RECYCLING
    assert attempts.in_vain == 0


def test_jitter_only_lengthens() -> None:
    early, late = plan(jitter=0.0), plan(jitter=0.999)
    for attempts in (early, late):
        attempts.ended(End.CLOSED)
    assert RECYCLING == early.next_attempt().pause < late.next_attempt().pause < 1.2 * RECYCLING
