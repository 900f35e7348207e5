"""What environments live through goes upstream: each episode as it was, once, whatever becomes of the upstream."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ospbridge.daemon.relay import uploader
from ospbridge.daemon.relay.compatibility import why_improbable
from ospbridge.errors import BarrierStuck, LocalProtocolError, StepUncertain, UsageError
from ospbridge.hub.requests import Note
from ospbridge.interface import BoxSpace
from ospbridge.policy.distributions import DiagGaussian
from ospbridge.record.reading import read_recording
from ospbridge.record.spool import Spool
from ospbridge.rllink.dialects import JSON, MSGPACK, Dialect, unpacked
from ospbridge.rllink.messages import EpisodeFragment, SetConfig
from tests.daemon.relay.driving import until
from tests.daemon.relay.observing import (
    Feed,
    alike,
    all_alike,
    all_arrived,
    listening,
    sink,
    status,
)
from tests.daemon.stage import ONE, TWO, FakeSession, Logs, conductor_of, inputs

pytestmark = [pytest.mark.loopback, pytest.mark.trio]


# --- what arrives ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", [JSON, MSGPACK])
async def test_every_episode_arrives_as_the_environment_saw_it(
    feed: Feed, dialect: Dialect, logs: Logs
) -> None:
    async with sink(feed.directory / "in") as port, feed.observed(dialect, port=port) as relay:
        player = feed.player()
        for weights in range(4):
            await player.play(weights=weights)
        await all_arrived(relay)
        assert (relay.status.delivered, relay.status.discarded, relay.status.trouble) == (20, 0, "")
        feed.conductor.leave([player.attachment])
    found = list(read_recording(feed.directory / "in"))
    assert len(found) == 4
    assert len({episode.id for episode in found}) == 4
    all_alike(player.episodes, found)
    for episode in found:
        assert (episode.agent, episode.simulator, episode.how) == ("a", "sim:1", "terminated")
    assert [episode.weights_seq_no for episode in found] == [0, 1, 2, 3]
    assert [entry["weights_seq_no"] for entry in logs if entry["event"] == "episode"] == [0, 1, 2, 3]


async def test_an_episode_goes_up_as_truncated_however_the_bridge_or_a_reset_ended_it(feed: Feed) -> None:
    session: Any = feed.conductor.supervisor.session
    async with feed.feeding() as relay:
        player = feed.player("b")
        await player.play(2)  # reset before its end
        await player.play(3)
        session.step_errors = [StepUncertain("who knows")]
        await player.step()  # cut by the bridge, which the environment saw as a truncated step
        feed.conductor.supervisor.loss = None
        await player.play(2)
        session.step_errors = [BarrierStuck("nobody moves")]
        with pytest.raises(BarrierStuck):
            await player.step()  # lost
        feed.conductor.supervisor.loss = None
        await player.play(1)
        feed.conductor.leave([player.attachment], "the connection to its environment ended")  # killed
        await all_arrived(relay)
    assert [fragment.steps for fragment in feed.server.arrived] == [2, 4, 2, 1]
    all_alike(player.episodes, feed.server.arrived)
    for fragment in feed.server.arrived:
        assert (fragment.terminated, fragment.truncated, fragment.t_started) == (False, True, 0)


async def test_what_is_under_way_when_the_daemon_stops_is_sent_by_the_next_one(feed: Feed) -> None:
    async with feed.observed() as relay:
        player = feed.player()
        await player.play()
        await player.play(3)
        await until(lambda: status(relay).entries == 1)
        assert relay.status.trouble
    async with feed.feeding(conductor=conductor_of(FakeSession("a"))):
        await until(lambda: len(feed.server.arrived) == 2)
    all_alike(player.episodes, feed.server.arrived)


async def test_an_upstream_that_comes_back_gets_all_in_order_under_the_same_ids(feed: Feed) -> None:
    async with listening(feed.server.serve) as port:
        pass
    async with feed.observed(port=port) as relay:
        player = feed.player()
        for _ in range(3):
            async with listening(feed.server.serve, port):
                await player.plays(2)
                await until(lambda: len(feed.server.arrived) >= len(player.episodes) - 2)
            await player.play()
        async with listening(feed.server.serve, port):
            await all_arrived(relay)
    first: dict[str, EpisodeFragment] = {}
    for fragment in feed.server.arrived:
        first.setdefault(fragment.id, fragment)
    assert len(first) == 9
    all_alike(player.episodes, first.values())


@pytest.mark.parametrize("rllib", [True, False])
async def test_what_rllib_may_have_read_already_comes_under_another_id_and_to_others_under_the_same(
    feed: Feed, rllib: bool
) -> None:
    if rllib:
        feed.server.config = SetConfig(pickled=pickle.dumps({}))
    feed.server.hangs_up = 2
    async with feed.feeding() as relay:
        player = feed.player()
        await player.play()
        await all_arrived(relay)
        await player.play()
        await all_arrived(relay)
    ids = [fragment.id for fragment in feed.server.arrived]
    assert len(ids) == 4
    assert len(set(ids[:3])) == (3 if rllib else 1)
    assert all(again.startswith(ids[0]) for again in ids[:3])
    assert not ids[3].startswith(ids[0])
    assert "-" not in ids[3]  # as its environment's daemon named it
    all_alike([player.episodes[0]] * 3 + [player.episodes[1]], feed.server.arrived)


async def test_what_a_daemon_before_may_have_sent_to_rllib_comes_under_another_id(feed: Feed) -> None:
    feed.server.config = SetConfig(pickled=pickle.dumps({}))
    async with feed.observed() as relay:
        player = feed.player()
        await player.play()
        await until(lambda: status(relay).entries == 1)
        feed.conductor.leave([player.attachment])
    with Spool(feed.directory / "s") as spool:
        (entry,) = spool.take(steps=1, size=1)
    async with feed.feeding() as relay:
        await feed.player().play()
        await all_arrived(relay)
    one, other = (fragment.id for fragment in feed.server.arrived)
    assert one != unpacked(entry.body).id
    assert one.startswith(unpacked(entry.body).id)
    assert "-" not in other


@pytest.mark.parametrize("dialect", [JSON, MSGPACK])
async def test_a_long_episode_comes_in_pieces(
    feed: Feed, dialect: Dialect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploader, "LONGEST", 4)
    async with feed.feeding(dialect) as relay:
        player = feed.player("b")
        await player.play(10)
        feed.conductor.leave([player.attachment])
        await all_arrived(relay)
    assert [(piece.t_started, piece.steps) for piece in feed.server.arrived] == [(0, 4), (4, 4), (8, 2)]
    assert len({piece.id for piece in feed.server.arrived}) == 1
    # A dialect that cannot continue an episode has it end with each piece.
    assert [piece.truncated for piece in feed.server.arrived] == [dialect is JSON, dialect is JSON, True]
    assert (
        feed.server.arrived[0].observations[-1].tobytes() == feed.server.arrived[1].observations[0].tobytes()
    )


# --- who is observed -------------------------------------------------------------------------------------------------


async def test_who_does_not_annotate_is_refused_with_both_ways_out(feed: Feed) -> None:
    async with feed.observed():
        with pytest.raises(UsageError, match=r"'a' is observed .* needs action_logp") as refused:
            feed.conductor.attach(["a"], ONE, annotates=False)
        assert "annotates=True" in refused.value.hint
        assert "--rllink-unannotated" in refused.value.hint
        assert feed.conductor.lockstep.attachments == []
        (attachment,) = feed.conductor.attach(["a"], TWO, annotates=True)
        assert attachment.held.attachments == [attachment]
        # Who only looks on is not asked.
        assert feed.conductor.observers.join("a", object())


@pytest.mark.parametrize("wanted, unwanted, patterns", [("a", "b", ("a*",)), ("a*", "ab", ("a*",))])
async def test_agents_of_other_names_are_nobodys_business(
    tmp_path: Path, wanted: str, unwanted: str, patterns: tuple[str, ...]
) -> None:
    session = FakeSession(wanted, unwanted)
    session.ending = {wanted: 5}
    feed = Feed(conductor_of(session), tmp_path)
    async with feed.feeding(agents=patterns) as relay:
        other = feed.player(unwanted, annotates=False)
        await other.play(3)
        feed.conductor.leave([other.attachment])
        player = feed.player(wanted)
        await player.play()
        await all_arrived(relay)
    assert [fragment.agent for fragment in feed.server.arrived] == [wanted]


async def test_a_driver_of_the_relay_is_no_environment(feed: Feed) -> None:
    async with feed.observed() as relay:
        (driver,) = feed.conductor.attach(["a"], ONE)
        await feed.conductor.reset([driver], 1, 1)
        for _ in range(5):
            await feed.conductor.step([(driver, inputs(0.5))])
        player = feed.player("b")
        await player.play(2)
        feed.conductor.leave([player.attachment])
        await until(lambda: status(relay).entries == 1)


async def test_without_annotations_episodes_go_where_none_are_needed(feed: Feed) -> None:
    async with feed.feeding(unannotated=True) as relay:
        plain, noted = feed.player(annotates=False), feed.player(annotates=True)
        await plain.play()
        await noted.play()
        await plain.play()
        await all_arrived(relay)
    first, second, third = feed.server.arrived
    assert alike(plain.episodes[0], first, noted=False)
    assert alike(noted.episodes[0], second)
    assert alike(plain.episodes[1], third, noted=False)


async def test_annotations_must_fit_the_action(feed: Feed) -> None:
    async with feed.observed():
        player = feed.player()
        for size in (0, 4, 7, 12):
            with pytest.raises(LocalProtocolError, match="'a' must have 2 numbers"):
                player.attachment.read_note(Note(bytes(size), 0.0))
        for size in (3, 8):
            with pytest.raises(LocalProtocolError, match="must have 1 number, as its actions do"):
                player.attachment.read_note(Note(bytes(8), 0.0, None, bytes(size)))


@pytest.mark.parametrize("drawn", [True, False], ids=["as it was drawn", "as it was given"])
async def test_an_action_that_was_limited_goes_up_as_it_was_drawn_or_it_is_told_that_it_is_not_that(
    feed: Feed, drawn: bool, logs: Logs
) -> None:
    policy = DiagGaussian(1)
    random = np.random.default_rng(3)
    inputs_of_it = np.array([0.5, 0.3], np.float32)
    actions = []
    async with feed.feeding() as relay:
        player = feed.player()
        await player.reset()
        for _ in range(5):
            action, logp = policy.draw_row(inputs_of_it, random)
            actions.append(action)
            whole = action.tobytes() if drawn else b""
            player.attachment.read_note(Note(inputs_of_it.tobytes(), logp, None, whole))
            given = float(np.clip(action, -0.1, 0.1)[0])
            await feed.conductor.step([(player.attachment, inputs(given))])
        await all_arrived(relay)
    (fragment,) = feed.server.arrived
    np.testing.assert_array_equal(
        fragment.actions, np.array(actions) if drawn else np.clip(actions, -0.1, 0.1)
    )
    told = [entry for entry in logs if entry["event"].startswith("annotations are not of the actions")]
    assert bool(told) != drawn
    if told:
        assert "step 0: action_logp is" in told[0]["reason"]
        assert "in 5 of 5 steps" in told[0]["reason"]
        assert "annotate(action=...)" in told[0]["hint"]


# --- whether annotations are of their actions -------------------------------------------------------------------------


SPACE = BoxSpace(np.full(1, -2, np.float32), np.full(1, 2, np.float32))
SQUASHED = (
    # Outputs of a module, the action, and its logarithm, as TorchSquashedGaussian of Ray 2.60.0 has them.
    ((0.5, -0.3), 0.75733745, 0.01465189),
    ((0.1, 0.2), 0.40199137, -0.9783063),
    ((-1.2, -1.0), -0.82660156, 1.2288659),
    ((2.0, 0.5), 0.99528956, 3.0552235),
    ((0.0, -2.0), -0.06108266, 0.9826900),
)


def why(spoilt: int | None = None, stretched: float = 1.0, actions: float | None = None) -> str:
    """An episode of a policy like SAC's; the logarithm of the row ``spoilt`` is another."""
    inputs, drawn, logp = (np.array(column, np.float32) for column in zip(*SQUASHED, strict=True))
    if spoilt is not None:
        logp[spoilt] = -3.0
    given = stretched * drawn if actions is None else np.full_like(drawn, actions)
    steps = len(SQUASHED)
    fragment = EpisodeFragment(
        "e",
        np.zeros((steps + 1, 3), np.float32),
        given.reshape(-1, 1),
        np.zeros(steps, np.float32),
        truncated=True,
        action_dist_inputs=inputs,
        action_logp=logp,
    )
    return why_improbable(fragment, SPACE)


async def test_actions_that_were_squashed_as_sac_does_are_believed() -> None:
    assert why() == ""


@pytest.mark.parametrize(
    "changes",
    [{"spoilt": 0}, {"spoilt": 4}, {"stretched": 2.0}, {"actions": 1.0}],
    ids=["the first row", "the last row", "stretched afterwards", "nothing but actions at the edge"],
)
async def test_a_squashed_action_with_the_probability_of_another_is_told(changes: dict[str, float]) -> None:
    assert "action_logp is" in why(**changes)  # type: ignore[arg-type]
