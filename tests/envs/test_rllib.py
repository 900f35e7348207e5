"""Which place an env runner of RLlib's gets; its EnvContext is played by a dict of the same attributes."""

from __future__ import annotations

import sys
from typing import Any

import gymnasium
import numpy as np
import pytest

from ospbridge.envs import rllib
from ospbridge.envs.rllib import Place, SpacesOnly, env_creator, place_of, register, spaces
from ospbridge.errors import AgentTaken, ConfigurationError, UsageError

HUBS = ["unix:/run/a.sock", "unix:/run/b.sock"]
SPACES: dict[str, Any] = {
    "observation_space": gymnasium.spaces.Box(-1, 1, (4,), np.float32),
    "action_space": gymnasium.spaces.Discrete(2),
}


class Context(dict[str, Any]):
    """RLlib's EnvContext: a dict that knows who asks."""

    def __init__(self, worker: int | None, workers: int, vector_index: int = 0, **config: Any) -> None:
        super().__init__(config)
        self.worker_index = worker
        self.num_workers = workers
        self.vector_index = vector_index


class Nothing(gymnasium.Env[Any, Any]):
    """An environment that attaches to nothing."""

    observation_space = SPACES["observation_space"]
    action_space = SPACES["action_space"]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The arguments of what would have been attached."""
    calls: list[dict[str, Any]] = []

    def make(env_id: str, **kwargs: Any) -> Nothing:
        calls.append({"env_id": env_id, **kwargs})
        return Nothing()

    monkeypatch.setattr(gymnasium, "make", make)
    return calls


FOUR: dict[str, Any] = {"simulators": ["a:1", "b:1"], "agents": ["left", "right"]}


@pytest.mark.parametrize(
    "config, place",
    [
        (Context(1, 2, bridges=HUBS), Place(bridge=HUBS[0])),
        (Context(2, 2, bridges=HUBS), Place(bridge=HUBS[1])),
        (Context(0, 0, bridges=HUBS), Place(bridge=HUBS[0])),
        ({"simulators": "127.0.0.1:45454"}, Place(simulator="127.0.0.1:45454")),
        ({"bridges": ["tls://robots:45500"]}, Place(bridge="tls://robots:45500")),
        (Context(1, 1), Place()),
        (Context(1, 4, **FOUR), Place(simulator="a:1", agent="left")),
        (Context(2, 4, **FOUR), Place(simulator="b:1", agent="left")),
        (Context(3, 4, **FOUR), Place(simulator="a:1", agent="right")),
        (Context(4, 4, **FOUR), Place(simulator="b:1", agent="right")),
    ],
    ids=["first", "second", "no runners", "plain dict", "over TLS", "default hub", *"1234"],
)
def test_places_are_dealt_out_over_the_simulators_first(config: Any, place: Place) -> None:
    assert place_of(config) == place


@pytest.mark.parametrize("worker", [1, 3])
def test_more_env_runners_than_places_name_both_numbers_and_the_way_out(worker: int) -> None:
    with pytest.raises(
        ConfigurationError, match=r"3 env runners .* 2 \(bridges: 2, agents for each: 1\)"
    ) as told:
        place_of(Context(worker, 3, bridges=HUBS))
    assert "num_env_runners=2" in told.value.hint


def test_the_environments_of_one_runner_take_places_that_no_other_runner_has(
    made: list[dict[str, Any]],
) -> None:
    config: dict[str, Any] = {"simulators": ["a:1", "b:1", "c:1", "d:1"]}
    held = [env_creator(Context(worker, 2, **config)) for worker in (2, 2)]
    assert [call["simulator"] for call in made] == ["b:1", "d:1"]
    for env in held:
        env.close()


def test_a_closed_environment_gives_its_place_to_the_next(made: list[dict[str, Any]]) -> None:
    for _ in range(2):
        env_creator(Context(1, 2, bridges=HUBS)).close()
    assert [call["bridge"] for call in made] == [HUBS[0], HUBS[0]]


def test_two_agents_of_one_simulator_are_not_stepped_by_one_runner(made: list[dict[str, Any]]) -> None:
    config: dict[str, Any] = {"bridges": HUBS[:1], "agents": ["left", "right"]}
    env = env_creator(Context(1, 1, **config))
    with pytest.raises(ConfigurationError, match="would wait for the first for ever"):
        env_creator(Context(1, 1, **config))
    env.close()


def test_options_and_the_id_reach_the_environment(made: list[dict[str, Any]]) -> None:
    env_creator(
        Context(1, 1, bridges=HUBS, agents="cart*", env_id="ospbridge/CartPole-v0", wait=5.0, **SPACES)
    ).close()
    (call,) = made
    assert call["env_id"] == "ospbridge/CartPole-v0"
    assert (call["bridge"], call["agent"], call["wait"]) == (HUBS[0], "cart*", 5.0)
    assert "observation_space" not in call


def test_the_local_worker_beside_env_runners_attaches_to_nothing(made: list[dict[str, Any]]) -> None:
    env = env_creator(Context(0, 2, bridges=HUBS, **SPACES))
    assert isinstance(env, SpacesOnly)
    assert (env.observation_space, env.action_space) == tuple(SPACES.values())
    assert not made
    with pytest.raises(UsageError, match="spaces only"):
        env.reset()
    with pytest.raises(UsageError, match="spaces only"):
        env.step(0)


def test_the_local_worker_that_comes_too_late_is_told_of_spaces(monkeypatch: pytest.MonkeyPatch) -> None:
    def taken(*_: object, **__: object) -> None:
        raise AgentTaken("agent 'cart' is taken")

    monkeypatch.setattr(gymnasium, "make", taken)
    with pytest.raises(ConfigurationError, match=r"spaces\(env_config\)"):
        env_creator(Context(0, 2, bridges=HUBS))


def test_spaces_are_those_of_the_first_place(made: list[dict[str, Any]]) -> None:
    assert spaces({"bridges": HUBS}) == SPACES
    assert [call["bridge"] for call in made] == HUBS[:1]
    assert not rllib._open


@pytest.mark.parametrize(
    "config, told",
    [
        ({"bridge": "unix:/a"}, "unknown key 'bridge'.*did you mean 'bridges'"),
        ({"simulator": "a:1"}, "did you mean 'simulators'"),
        ({"step_timeot": 1.0}, "did you mean 'step_timeout'"),
        ({"xyzzy": 1}, "unknown key 'xyzzy'.*the keys are bridges, simulators, agents"),
        ({"env_id": "ospbridge/Cartpole-v0"}, "unknown env_id.*did you mean 'ospbridge/CartPole-v0'"),
        ({"bridges": HUBS, "simulators": ["a:1"]}, "both bridges and simulators"),
        ({"bridges": ["/run/a.sock"]}, "is not a hub's address"),
        ({"simulators": ["a:port"]}, "is not a simulator's address"),
        ({"launch": True, "simulators": ["127.0.0.1:45454"]}, "both launch and simulators"),
        ({"launch": True, "agents": ["a", "b"]}, "launch and 2 agents"),
        ({"bridges": []}, "name at least one"),
        ({"agents": [1]}, "not a list of texts"),
        ({"bridges": HUBS[:1] * 2}, "more than once.*told apart by agents"),
        ({"num_envs": 2}, "vector_entry_point"),
    ],
)
def test_a_mistake_in_env_config_is_named_with_the_way_out(config: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        env_creator(Context(1, 1, **config))


def test_environments_in_processes_of_their_own_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    process = type("Process", (), {"name": "Worker<AsyncVectorEnv>-1"})
    monkeypatch.setattr("multiprocessing.current_process", process)
    with pytest.raises(ConfigurationError, match="gym_env_vectorize_mode at SYNC"):
        env_creator(Context(1, 1, bridges=HUBS))


def test_without_ray_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray.tune.registry", None)
    with pytest.raises(ConfigurationError, match=r"ospbridge\[rllib\]"):
        register()
