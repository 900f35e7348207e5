"""The vector environment: what gymnasium's own vector environments promise, and what OSP adds."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from queue import Queue
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from ospbridge.envs.vector import mode_named
from ospbridge.errors import (
    BarrierStuck,
    LocalProtocolError,
    SessionClosed,
    SimulatorNotFound,
    UsageError,
)
from ospbridge.observe.trace import read_trace
from ospbridge.osp.profile import Profile
from ospbridge.session.blocking import BlockingSession
from ospbridge.simulator.synthetic import SyntheticWorld, expected
from ospbridge.simulator.udp import UdpSimulator
from tests.envs.daemons import connected, hosted
from tests.envs.vectors import (
    HeldWorld,
    assert_same,
    cart_poles,
    fleet,
    trajectory,
)

pytestmark = pytest.mark.loopback


MODES = pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda m: m.value)


def carts(count: int) -> Any:
    return np.ones((count, 1), np.float32)


def await_within(name: str, thread: int) -> None:
    """Until that thread is in a function of that name."""
    give_up = time.monotonic() + 30
    while True:
        frame = sys._current_frames().get(thread)
        while frame is not None and frame.f_code.co_name != name:
            frame = frame.f_back
        if frame is not None:
            return
        assert time.monotonic() < give_up
        time.sleep(0.005)


def sync_of_singles(addresses: list[str], mode: AutoresetMode) -> VectorEnv[Any, Any, Any]:
    def maker(address: str) -> Any:
        return lambda: (
            gymnasium.make("ospbridge/Agent-v0", simulator=address, disable_env_checker=True).unwrapped
        )

    return SyncVectorEnv([maker(address) for address in addresses], autoreset_mode=mode)


def run_into_the_end(envs: Any) -> Any:
    """Steps with one choice until an episode ends; the result of that step."""
    for _ in range(100):
        result = envs.step(carts(envs.num_envs))
        if (result[2] | result[3]).any():
            return result
    raise AssertionError("no episode ended")


# --- trajectories --------------------------------------------------------------------------------------------------


@MODES
def test_a_fleet_returns_what_single_environments_side_by_side_return(
    profile: Profile, mode: AutoresetMode
) -> None:
    with cart_poles(3, profile=profile) as addresses:
        ours = trajectory(fleet(addresses, 3, autoreset_mode=mode), 60)
        its = trajectory(sync_of_singles(addresses, mode), 60)
    assert len(ours) > 60
    assert_same(ours, its)


def test_four_agents_of_one_simulator_get_their_own_observations(profile: Profile) -> None:
    with UdpSimulator(SyntheticWorld(2, 5, 1, agents=4), port=0, profile=profile) as simulator:
        envs: Any = fleet(str(simulator.address), 4, agents="agent*")
        assert envs.observation_space.shape == (4, 5)
        _, info = envs.reset(seed=np.int64(5))
        assert info["osp_seed"].tolist() == [5] * 4
        assert envs.np_random_seed == 5
        for number in range(20):
            actions = (np.arange(8).reshape(4, 2) / 16 + number / 64).astype(np.float32)
            observations, *_ = envs.step(actions)
            for at in range(4):
                np.testing.assert_array_equal(observations[at], expected(actions[at], number + 2, 5, seed=5))
        envs.close()


@contextmanager
def held() -> Iterator[tuple[Any, list[HeldWorld]]]:
    """A fleet of two simulators that keep its steps waiting once they are told to."""
    worlds = [HeldWorld(1, 3), HeldWorld(1, 3)]
    with UdpSimulator(worlds[0], port=0) as one, UdpSimulator(worlds[1], port=0) as other:
        envs = fleet([str(one.address), str(other.address)], 2)
        envs.reset(seed=1)
        try:
            yield envs, worlds
        finally:
            for world in worlds:
                world.go.set()
            envs.close()


def stepping(envs: Any) -> Future[Any]:
    """What a thread is told that waits for the answers to a step."""
    numbers: Queue[int] = Queue()

    def step() -> Any:
        numbers.put(threading.get_ident())
        return envs.step(carts(2))

    pool = ThreadPoolExecutor(1)
    told = pool.submit(step)
    pool.shutdown(wait=False)
    await_within("_complete", numbers.get(timeout=30))
    return told


def test_an_interrupted_step_ends_the_episodes_of_those_that_have_answered_too() -> None:
    with held() as (envs, (_, slow)), ThreadPoolExecutor(1) as pool:
        slow.hold()

        def press() -> None:
            assert slow.begun.wait(30)
            await_within("_complete", threading.main_thread().ident or 0)
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

        pressed = pool.submit(press)
        with pytest.raises(KeyboardInterrupt):
            envs.step(carts(2))
        pressed.result(30)
        slow.go.set()
        _, _, _, truncations, info = envs.step(carts(2))
        assert truncations.all()
        assert "interrupted" in info["reason"][0]
        envs.step(carts(2))
        _, _, _, truncations, _ = envs.step(carts(2))
        assert not truncations.any()


def test_of_two_threads_the_second_is_told_and_the_first_gets_what_its_step_brought() -> None:
    with held() as (envs, worlds):
        for world in worlds:
            world.hold()
        first = stepping(envs)
        with pytest.raises(
            LocalProtocolError, match="two threads used the connection to the agents of a vector"
        ):
            envs.step(carts(2))
        for world in worlds:
            world.go.set()
        _, _, _, truncations, _ = first.result(30)
        assert not truncations.any()
        _, info = envs.reset(seed=1)
        assert info["osp_seed"].tolist() == [1, 2]


def test_a_step_during_which_another_thread_closes_says_so() -> None:
    with held() as (envs, worlds), ThreadPoolExecutor(1) as pool:
        for world in worlds:
            world.hold()
        step = stepping(envs)
        closing = pool.submit(envs.close)
        with pytest.raises(SessionClosed, match="was closed"):
            step.result(30)
        for world in worlds:
            world.go.set()
        closing.result(30)


# --- autoreset -----------------------------------------------------------------------------------------------------


@MODES
def test_the_end_of_one_episode_ends_those_of_its_simulator_and_others_go_on(mode: AutoresetMode) -> None:
    with cart_poles(2, copies=2) as addresses:
        envs = fleet(addresses, 4, autoreset_mode=mode)
        _, info = envs.reset(seed=11)
        # A world is seeded as its first environment.
        assert info["osp_seed"].tolist() == [11, 11, 13, 13]
        observations, _, terminations, truncations, info = run_into_the_end(envs)
        told = info["final_info"] if mode is AutoresetMode.SAME_STEP else info
        ended = terminations | truncations
        assert ended[0] == ended[1] != ended[2] == ended[3]
        assert not (terminations & truncations).any()
        for cut in np.flatnonzero(truncations):
            assert "all agents of a simulator reset together" in told["reason"][cut]
        if mode is AutoresetMode.SAME_STEP:
            assert info["_final_obs"].tolist() == ended.tolist()
            at = int(ended.argmax())
            assert (info["final_obs"][at] != observations[at]).any()
        envs.close()


def test_disabled_waits_for_a_reset_of_those_that_ended() -> None:
    with cart_poles(2) as addresses:
        envs = fleet(addresses, 2, autoreset_mode="Disabled")
        envs.reset(seed=2)
        before, _, terminations, truncations, _ = run_into_the_end(envs)
        with pytest.raises(LocalProtocolError, match=r"environments \d are over.*reset_mask"):
            envs.step(carts(2))
        mask = terminations | truncations
        after, info = envs.reset(options={"reset_mask": mask})
        assert info["_osp_seed"].tolist() == mask.tolist()
        np.testing.assert_array_equal(after[~mask], before[~mask])
        assert (after[mask] != before[mask]).any()
        envs.step(carts(2))
        envs.close()


def test_a_mode_is_known_by_its_constant_its_name_and_its_value() -> None:
    for mode in AutoresetMode:
        assert mode_named(mode) is mode_named(mode.name) is mode_named(mode.value) is mode
    wrong: list[Any] = ["next_step", None]
    for given in wrong:
        with pytest.raises(UsageError, match=rf"NEXT_STEP, SAME_STEP, DISABLED, got {given!r}"):
            mode_named(given)


def test_a_mask_covers_a_simulator_wholly_or_not_at_all() -> None:
    with cart_poles(2, copies=2) as addresses:
        envs = fleet(addresses, 4, autoreset_mode="Disabled")
        envs.reset(seed=2)
        with pytest.raises(UsageError, match=r"a part of environments 2 to 3.*reset together: 2 left out"):
            envs.reset(options={"reset_mask": np.array([True, True, False, True])})
        _, info = envs.reset(seed=20, options={"reset_mask": np.array([False, False, True, True])})
        assert info["osp_seed"].tolist() == [0, 0, 22, 22]
        assert info["_osp_seed"].tolist() == [False, False, True, True]
        envs.step(carts(4))
        envs.close()


def test_a_mask_that_is_none_is_refused() -> None:
    with cart_poles(2) as addresses:
        envs = fleet(addresses, 2)
        for mask in ([True, False], np.ones(3, np.bool_), np.ones(2, np.int64), np.zeros(2, np.bool_)):
            with pytest.raises(UsageError, match="reset_mask"):
                envs.reset(options={"reset_mask": mask})
        envs.close()


# --- gymnasium -----------------------------------------------------------------------------------------------------


def test_without_copies_the_same_array_is_returned_again() -> None:
    with cart_poles(2) as addresses:
        envs = fleet(addresses, 2, copy=False)
        first, _ = envs.reset(seed=1)
        second, *_ = envs.step(carts(2))
        assert second is first
        envs.close()


def test_send_and_recv_are_the_halves_of_step() -> None:
    with cart_poles(2) as addresses:
        envs: Any = fleet(addresses, 2).unwrapped
        envs.reset(seed=1)
        with pytest.raises(LocalProtocolError, match="call send first"):
            envs.recv()
        envs.send(carts(2))
        with pytest.raises(LocalProtocolError, match="call recv first"):
            envs.send(carts(2))
        with pytest.raises(LocalProtocolError, match="call recv first"):
            envs.reset()
        # Longer than the patience: the answers are there, so nothing may be taken for silence.
        time.sleep(0.4)
        halves = envs.recv()
        assert not any(group.backend.shared.session.machine.notices for group in envs._fleet.groups)
        envs.reset(seed=1)
        assert_same(envs.step(carts(2)), halves)
        envs.send(carts(2))
        envs.close()


def test_a_wrong_action_is_told_before_anything_is_sent() -> None:
    with cart_poles(2) as addresses:
        envs = fleet(addresses, 2)
        envs.reset(seed=1)
        with pytest.raises(LocalProtocolError, match="actions of type NoneType for 2 environments"):
            envs.step(None)
        with pytest.raises(LocalProtocolError, match="actions of type dict for 2 environments"):
            envs.step({"cart1": [1.0], "cart2": [1.0]})
        with pytest.raises(UsageError, match="options are a dict, got a list"):
            envs.reset(options=["reset_mask"])  # type: ignore[arg-type]  # as below
        with pytest.raises(UsageError, match=r"seed is an int, or a list .*, got 3\.5"):
            envs.reset(seed=3.5)  # type: ignore[arg-type]  # what users without a type checker give
        with pytest.raises(LocalProtocolError, match="3 actions for 2 environments"):
            envs.step(carts(3))
        with pytest.raises(LocalProtocolError, match="nan"):
            envs.step(np.array([[1.0], [np.nan]], np.float32))
        ours, *_ = envs.step(carts(2))
        envs.reset(seed=1)
        its, *_ = envs.step(carts(2))
        np.testing.assert_array_equal(ours, its)
        envs.close()


# --- agents --------------------------------------------------------------------------------------------------------


def test_each_simulator_has_a_trace_of_its_own(tmp_path: Path) -> None:
    with cart_poles(2) as addresses:
        envs = fleet(addresses, 2, trace=str(tmp_path / "t.jsonl"))
        envs.reset(seed=1)
        envs.close()
    for name in ("t.jsonl", "t.1.jsonl"):
        notes = [record.note.partition(" ")[0] for record in read_trace(tmp_path / name)]
        assert (notes.count("RESET_SIMULATION"), notes.count("END_COMMUNICATION")) == (1, 1)


def test_another_number_of_agents_is_refused_and_all_are_given_back() -> None:
    with cart_poles(2, copies=2) as addresses:
        with pytest.raises(UsageError, match=r"num_envs is 3, but 4 agents were found.*num_envs=4"):
            fleet(addresses, 3)
        text: Any = "4"
        with pytest.raises(UsageError, match="num_envs is '4', but 4 agents were found"):
            fleet(addresses, text)
        with pytest.raises(UsageError, match="num_envs is 2, but 1 agent was found"):
            fleet(addresses[0], 2, agents="cart1")
        for address in addresses:
            with BlockingSession.connect(address, reclaim_stale=False) as session:
                assert all(entry.available for entry in session.agents())


def test_agents_with_other_spaces_are_refused() -> None:
    with (
        UdpSimulator(SyntheticWorld(2, 3), port=0) as one,
        UdpSimulator(SyntheticWorld(3, 3), port=0) as other,
        pytest.raises(UsageError, match="other spaces than agent 'agent'"),
    ):
        fleet([str(one.address), str(other.address)], 2)


# --- losses --------------------------------------------------------------------------------------------------------


def test_a_foreign_client_that_does_not_step_is_told_and_the_others_go_on() -> None:
    with cart_poles(1) as [free], cart_poles(1, copies=2) as [shared]:
        with BlockingSession.connect(shared) as other:
            (_, second) = [entry.name for entry in other.agents()]
            other.register(second)
            envs = fleet([free, shared], 2, agents="cart*", reset_timeout=0.6, step_timeout=0.6)
            with pytest.raises(BarrierStuck, match=second) as caught:
                envs.reset(seed=1)
            assert "ospbridge connect" in caught.value.hint
        _, info = envs.reset(seed=1)
        assert info["osp_seed"].tolist() == [1, 2]
        envs.step(carts(2))
        envs.close()


# --- simulators that die, stay away and come back, and the end of Python -------------------------------------------


class Simulators:
    """Some that may be killed, and started again at the same address."""

    def __init__(self, stack: ExitStack, count: int) -> None:
        self._stack = stack
        self._running = [UdpSimulator(SyntheticWorld(1, 1, 0), port=0).start() for _ in range(count)]
        self.addresses = [str(each.address) for each in self._running]
        stack.callback(self._stop)

    def _stop(self) -> None:
        for each in self._running:
            each.stop()

    def kill(self, at: int) -> None:
        self._running[at].stop()

    def restart(self, at: int) -> None:
        port = int(self.addresses[at].rpartition(":")[2])
        self._running[at] = UdpSimulator(SyntheticWorld(1, 1, 0), port=port).start()


def joined(stack: ExitStack, count: int, **options: Any) -> tuple[Any, Simulators]:
    simulators = Simulators(stack, count)
    envs: Any = fleet(simulators.addresses, count, query_timeout=0.5, **options)
    stack.callback(envs.close)
    envs.reset(seed=1)
    return envs, simulators


@contextmanager
def one_that_is_killed(
    way: str, hubs: Path
) -> Iterator[tuple[Any, Callable[[], object], Callable[[], object]]]:
    """Three environments; what kills the simulator or daemon of the second one, and what brings it back."""
    with ExitStack() as stack:
        if way == "direct":
            envs, simulators = joined(stack, 3)
            yield envs, partial(simulators.kill, 1), partial(simulators.restart, 1)
            return
        addresses = Simulators(stack, 3).addresses
        places = [hubs / str(at) for at in range(3)]
        for at in (0, 2):
            stack.enter_context(hosted(addresses[at], places[at]))
        daemon = stack.enter_context(connected(addresses[1], places[1]))
        envs = gymnasium.make_vec("ospbridge/Agent-v0", 3, bridge=[f"unix:{place}" for place in places])
        envs.reset(seed=1)

        def kill() -> None:
            daemon.kill()
            daemon.wait()

        yield envs, kill, lambda: stack.enter_context(hosted(addresses[1], places[1]))
        envs.close()


@pytest.mark.parametrize("way, told", [("direct", "connection refused"), ("hub", "the daemon at .* is lost")])
def test_whoever_is_killed_truncates_its_own_environments_only_and_is_joined_again_when_it_is_back(
    way: str, told: str, runtime_directory: Path
) -> None:
    with one_that_is_killed(way, runtime_directory) as (envs, kill, bring_back):
        actions = np.zeros((3, 1), np.float32)
        before, *_ = envs.step(actions)
        kill()
        last, _, terminations, truncations, info = envs.step(actions)
        assert truncations.tolist() == [False, True, False]
        assert not terminations.any()
        assert [bool(reason) for reason in info["reason"]] == [False, True, False]
        assert re.search(told, info["reason"][1])
        np.testing.assert_array_equal(last[1], before[1])
        bring_back()
        for _ in range(2):
            _, _, _, truncations, info = envs.step(actions)
            assert not truncations.any()
            assert info["reason"].tolist() == ["", "", ""]


@pytest.mark.parametrize("mode", ["NextStep", "SameStep", "Disabled"])
def test_a_simulator_that_stays_away_is_an_error_after_the_limit_and_a_reset_goes_on(mode: str) -> None:
    with ExitStack() as stack:
        envs, simulators = joined(stack, 2, connect_timeout=0.3, autoreset_mode=mode)
        actions = np.zeros((2, 1), np.float32)
        simulators.kill(0)
        if mode != "SameStep":
            _, _, _, truncations, _ = envs.step(actions)
            assert truncations.tolist() == [True, False]
        again = partial(envs.reset, options={"reset_mask": np.array([True, False])})
        with pytest.raises(SimulatorNotFound, match="nothing listens"):
            again() if mode == "Disabled" else envs.step(actions)
        simulators.restart(0)
        if mode == "NextStep":
            envs.step(actions)
        else:
            # The other world goes on where it was.
            again()
        _, _, _, truncations, info = envs.step(actions)
        assert not truncations.any()
        assert info["reason"].tolist() == ["", ""]


def test_environments_alive_at_the_interpreters_exit_give_their_agents_back() -> None:
    with ExitStack() as stack:
        addresses = Simulators(stack, 3).addresses
        code = (
            "import sys, gymnasium, ospbridge\n"
            "env = gymnasium.make('ospbridge/Agent-v0', simulator=sys.argv[1])\n"
            "envs = gymnasium.make_vec('ospbridge/Agent-v0', num_envs=2, simulator=sys.argv[2:])\n"
            "env.reset(seed=1)\nenvs.reset(seed=1)\n"
        )
        command = [sys.executable, "-W", "error", "-c", code, *addresses]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        for address in addresses:
            with BlockingSession.connect(address, reclaim_stale=False) as session:
                assert all(entry.available for entry in session.agents())
