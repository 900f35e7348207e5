"""How environments find their agents and take options: what contradicts itself, or cannot count, is told at once."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium
import numpy as np
import pytest

from ospbridge.envs import agent_env, options
from ospbridge.envs import vector as vector_env
from ospbridge.envs.rllib import env_creator
from ospbridge.errors import AgentNotFound, ConfigurationError, HubNotFound, OspBridgeError, UsageError
from ospbridge.observe.trace import read_trace
from ospbridge.osp.world import World
from ospbridge.record.episode import read_episode
from ospbridge.record.reading import read_recording
from ospbridge.session import rebuild
from ospbridge.simulator.gym_world import GymWorld
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.envs.daemons import reached
from tests.envs.kinds import EVERY_KIND, parallel, rest, single, vector

pytestmark = pytest.mark.loopback


@pytest.fixture
def nobody(runtime_directory: Path) -> str:
    """A hub that is not there: whoever comes so far has been content with the options."""
    return f"unix:{runtime_directory / 'nobody'}"


@EVERY_KIND
def test_an_address_that_is_no_text_is_told_with_an_example(made: Callable[..., Any]) -> None:
    for name, given in (("simulator", 45454), ("simulator", [("127.0.0.1", 45454)]), ("bridge", 1)):
        with pytest.raises(UsageError, match=f"{name} is a text, or a list of them, got") as caught:
            made(**{name: given})
        assert caught.value.hint.startswith(f"for instance {name}=")
    if made is single:
        with pytest.raises(UsageError, match="agent is a text, got") as caught:
            made("127.0.0.1:1", agent=["cart1", "cart2"])
        assert caught.value.hint == "for instance agent='robot1'"


@EVERY_KIND
def test_an_argument_that_is_none_is_told_with_what_was_meant(made: Callable[..., Any]) -> None:
    for name, meant in (("simulatorr", "simulator"), ("step_timout", "step_timeout"), ("agentss", "agent")):
        with pytest.raises(UsageError, match=f"got an unexpected keyword argument '{name}'") as caught:
            made(**{name: "127.0.0.1:1"})
        # gymnasium.make tells it in a new error of the same kind, whose hint is in the message.
        assert f"did you mean '{meant}" in str(caught.value)
    # Some, as TorchRL's GymEnv, only try, and see by Python's own error that it is not taken.
    with pytest.raises(TypeError, match="unexpected keyword argument 'xyzzy'") as refused:
        made(simulator="127.0.0.1:1", xyzzy=1)
    assert re.search(r"\(it has .*scenario", str(refused.value))


@pytest.mark.parametrize(
    "made, name, told",
    [
        (vector, "max_episode_steps", r"max_steps = N in \[agent.episode\]"),
        (parallel, "max_episode_steps", r"max_steps = N in \[agent.episode\]"),
        (vector, "disable_env_checker", "leave it out"),
        (single, "num_envs", "gymnasium.make_vec"),
    ],
)
def test_what_gymnasium_takes_elsewhere_is_told_with_where_to_say_it(
    made: Callable[..., Any], name: str, told: str
) -> None:
    with pytest.raises(UsageError, match=f"argument '{name}'") as caught:
        made(simulator="127.0.0.1:1", **{name: 1})
    assert re.search(told, str(caught.value))


@pytest.mark.parametrize("made", [single, parallel])
def test_several_addresses_are_for_vector_environments(made: Callable[..., Any], nobody: str) -> None:
    for name, given in (("simulator", ["127.0.0.1:1", "127.0.0.1:2"]), ("bridge", [nobody, nobody])):
        with pytest.raises(UsageError, match=f"{name} names 2 addresses") as caught:
            made(**{name: given})
        assert "make_vec" in caught.value.hint


@EVERY_KIND
def test_limits_and_profiles_that_cannot_be_are_refused_whichever_the_way(
    made: Callable[..., Any], nobody: str
) -> None:
    for way in ({"simulator": "127.0.0.1:1"}, {"bridge": nobody}):
        with pytest.raises(UsageError, match="query limit must be a positive number"):
            made(query_timeout=-1.0, **way)
        with pytest.raises(UsageError, match=r"step limit must .* got 'soon'.*that is step_timeout"):
            made(step_timeout="soon", **way)
        with pytest.raises(UsageError, match=r"reset limit must be a positive number"):
            made(reset_timeout=10**400, **way)
        for memory in (0, -1, 1.5, True, "16", float("nan")):
            with pytest.raises(UsageError, match="memory_limit must be a whole number of MiB, 1 or more"):
                made(memory_limit=memory, **way)
        for wait in (-1.0, "long", float("nan"), 10**400):
            with pytest.raises(UsageError, match="wait must be a number of seconds, 0 or more"):
                made(wait=wait, **way)
        with pytest.raises(ConfigurationError, match="unknown profile 'nerdy'"):
            made(profile="nerdy", **way)
    with pytest.raises(UsageError, match="both simulator and bridge"):
        made(simulator="127.0.0.1:1", bridge=nobody)


@EVERY_KIND
def test_options_that_do_not_count_at_a_daemon_are_named_in_a_warning(
    made: Callable[..., Any], nobody: str
) -> None:
    with (
        pytest.warns(
            UserWarning, match=r"=3, memory_limit=1, profile='nerd'.* daemon.* --step-timeout"
        ) as told,
        pytest.raises(HubNotFound),
    ):
        made(bridge=nobody, step_timeout=3.0, memory_limit=1, profile="nerd", connect_timeout=0.1)
    assert len([each for each in told if "not heeded" in str(each.message)]) == 1
    # What counts there too is no cause for a warning, which would be an error.
    with pytest.raises(HubNotFound):
        made(bridge=nobody, connect_timeout=0.1, spin=False, wait=0.1)


@EVERY_KIND
def test_a_trace_that_a_daemon_would_have_to_write_is_refused_with_the_way_out(
    made: Callable[..., Any], nobody: str, tmp_path: Path
) -> None:
    for way in ({"bridge": nobody}, {}):
        with pytest.raises(UsageError, match=r"episodes\.jsonl' was given, but .* a daemon") as told:
            made(trace=str(tmp_path / "episodes.jsonl"), **way)
        assert "ospbridge connect --trace FILE" in told.value.hint
    assert not list(tmp_path.glob("*.jsonl"))


@pytest.mark.loopback
def test_who_is_not_there_is_said_to_be_waited_for_and_in_the_end_for_how_long(
    nobody: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rebuild, "SAID_AFTER", 0.1)
    for way in ({"simulator": "127.0.0.1:1"}, {"bridge": nobody}):
        with (
            pytest.warns(UserWarning, match=r"still waiting, for \d s at most: no.* listens at") as told,
            pytest.raises(OspBridgeError, match=r"listens at .*, still so after \d\.\d s"),
        ):
            single(wait=2.0, **way)
        assert len(told) == 1


@EVERY_KIND
def test_a_simulator_without_agents_is_waited_for_until_its_scene_is_loaded(made: Callable[..., Any]) -> None:
    with UdpSimulator(SyntheticWorld(2, 3), port=0) as simulator:
        scene, simulator.machine.controls = simulator.machine.controls, []
        address = str(simulator.address)
        with pytest.raises(AgentNotFound, match="offers no agents at all") as told:
            made(simulator=address)
        assert "load its scene" in told.value.hint
        loading = threading.Timer(0.3, setattr, (simulator.machine, "controls", scene))
        loading.start()
        env = made(simulator=address, wait=30.0)
        loading.join(5.0)
        env.reset(seed=1)
        env.close()


# --- options that all kinds have -----------------------------------------------------------------------------------


class Asked(dict[str, Any]):
    """Options that remember which of them were asked for."""

    def __init__(self, said: Any) -> None:
        super().__init__(said)
        self.names: set[str] = set()

    def __or__(self, other: Any) -> Any:
        self.update(other)
        return self

    def __getitem__(self, name: str) -> Any:
        self.names.add(name)
        return super().__getitem__(name)


def kinds() -> list[tuple[ModuleType, Any]]:
    """Those that can be had here: one needs an extra."""
    found: list[tuple[ModuleType, Any]] = [
        (agent_env, agent_env.AgentEnv),
        (vector_env, vector_env.OspVectorEnv),
    ]
    if find_spec("pettingzoo"):
        from ospbridge.envs import parallel

        found.append((parallel, parallel.AgentsParallelEnv))
    return found


@pytest.mark.loopback
def test_each_kind_lists_and_heeds_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, kind in kinds():
        parameters = inspect.signature(kind).parameters
        listed = {name: parameters[name] for name in options.Options.__annotations__}
        assert {name: each.default for name, each in listed.items()} == options.DEFAULTS
        assert not any(each.kind is each.VAR_KEYWORD for each in parameters.values())
        asked = Asked(options.DEFAULTS)
        with UdpSimulator(SyntheticWorld(1, 1), port=0) as simulator, monkeypatch.context() as patched:
            patched.setattr(module, "DEFAULTS", asked)
            kind(simulator=str(simulator.address)).close()
        assert asked.names == set(options.DEFAULTS)


def test_what_none_of_them_can_be_is_told_with_its_name() -> None:
    flags = [name for name, usual in options.DEFAULTS.items() if isinstance(usual, bool)]
    for _, kind in kinds():
        for name in options.DEFAULTS.keys() - flags - {"launch", "pin"}:  # see tests/launch
            with pytest.raises(UsageError, match=f"got \\['{name}'\\]") as caught:
                kind(simulator="127.0.0.1:1", **{name: [name]})
            assert name in f"{caught.value.message} {caught.value.hint}"


def rllib_env(simulator: str, **options: Any) -> Any:
    return env_creator({"simulators": [simulator], **options})


def sb3_env(**options: Any) -> Any:
    pytest.importorskip("stable_baselines3", reason="needs the extra: pip install 'ospbridge[sb3]'")
    from ospbridge.envs.sb3 import OspVecEnv

    return OspVecEnv.make(**options)


@pytest.mark.loopback
@pytest.mark.parametrize("made", [single, vector, parallel, sb3_env, rllib_env])
def test_files_stay_below_the_directory_in_which_the_environment_was_made(
    made: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    here.mkdir()
    elsewhere.mkdir()
    monkeypatch.chdir(here)
    with UdpSimulator(SyntheticWorld(1, 1), port=0) as simulator:
        env = made(simulator=str(simulator.address), record="episodes", trace="t.jsonl")
        monkeypatch.chdir(elsewhere)
        env.reset()
        env.step(np.zeros((1, 1), np.float32) if made is sb3_env else rest(env))
        env.close()
    assert len(list(read_recording(here / "episodes"))) == 1
    assert any(record.note.startswith("NEXT_SIMULATION_STEP") for record in read_trace(here / "t.jsonl"))
    assert list(elsewhere.iterdir()) == []


def test_a_relative_file_where_the_directory_is_gone_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    for name in ("record", "trace"):
        with pytest.raises(UsageError, match=f"{name}='x' is relative to a directory that is not there"):
            single("127.0.0.1:1", **{name: "x"})


@pytest.mark.parametrize(
    "module, package, extra",
    [("parallel", "pettingzoo", "pettingzoo"), ("sb3", "stable_baselines3", "sb3")],
)
def test_without_the_library_the_error_says_how_to_get_it(
    module: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith(f"{package}.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, f"ospbridge.envs.{module}", raising=False)
    with pytest.raises(ConfigurationError, match=re.escape(f"pip install 'ospbridge[{extra}]'")):
        importlib.import_module(f"ospbridge.envs.{module}")


# --- agents by name, glob, or the type that a scenario says --------------------------------------------------------


NAMES = ("ab", "robot1", "robot[1]", "a*", "M\xfcller", "\u673a\u5668\u4eba", "Kn\uf7f6chel")
"""Some look like globs that fit others, some are beyond ASCII, and one is no UTF-8: as a server that writes Latin-1
has it."""
HEATS = ["/Heat", "/Cold", "/Heat"]
TOLD = ["/Heat", "/Cold", "/Heat (2)"]


@pytest.fixture(scope="module", params=["direct", "hub"])
def reached_worlds(request: pytest.FixtureRequest, clean_environment: Path) -> Iterator[dict[str, Any]]:
    """Where environments find the agents of worlds, the same ones for all tests of the module."""
    worlds: dict[str, World] = {
        "named": SyntheticWorld(2, 3, HEATS, names=NAMES),
        "typed": GymWorld(["CartPole-v1", "Pendulum-v1", "CartPole-v1"]),
    }
    with ExitStack() as stack:
        found = {}
        for kind, world in worlds.items():
            simulator = stack.enter_context(UdpSimulator(world, port=0))
            hub = clean_environment / f"{kind}-{request.param}"
            found[kind] = stack.enter_context(reached(request.param, simulator.address, hub))
        yield found


@pytest.fixture
def named(reached_worlds: dict[str, Any]) -> Any:
    return reached_worlds["named"]


@pytest.fixture
def typed(reached_worlds: dict[str, Any]) -> Any:
    """Two carts, and a pendulum between them; a daemon has no scenario."""
    return reached_worlds["typed"]


@pytest.fixture
def of_type(tmp_path: Path) -> Any:
    """A scenario for the agents of a type, with the spaces of no scenario."""

    def written(kind: str) -> str:
        file = tmp_path / "typed.toml"
        file.write_text(f'name = "typed"\n[[agent]]\nmatch = {{ type = "{kind}" }}\n')
        return str(file)

    return written


def test_an_environment_takes_the_agent_that_is_called_so(named: dict[str, Any]) -> None:
    for name in NAMES:
        with closing(single(**named, agent=name)) as env:
            assert env.interface.name == name


def test_a_scenario_means_the_agent_that_is_called_so(named: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "named.toml"
    file.write_text('name = "named"\n[[agent]]\nmatch = { name = "robot[1]" }\n')
    for agent in (None, "robot*"):
        with closing(single(**named, scenario=str(file), agent=agent)) as env:
            assert env.interface.name == "robot[1]"


def test_a_single_environment_tells_all_infos_of_one_name_and_records_them(
    named: dict[str, Any], tmp_path: Path
) -> None:
    with closing(single(**named, agent="ab", record=tmp_path)) as env:
        env.reset(seed=1)
        *_, info = env.step(env.action_space.sample())
    assert list(info["infos"]) == TOLD
    assert len(set(info["infos"].values())) == 3, "each has its own number"
    (file,) = tmp_path.rglob("*.npz")
    assert list(read_episode(file).info_names) == TOLD


@pytest.mark.parametrize("agent", [None, "*"])
def test_a_single_environment_takes_the_only_agent_of_the_type(
    typed: dict[str, Any], of_type: Any, agent: str | None
) -> None:
    with closing(single(**typed, scenario=of_type("Pendulum*"), agent=agent)) as env:
        assert env.interface.name == "pendulum"
        env.reset(seed=1)


def test_a_vector_environment_takes_all_agents_of_the_type(typed: dict[str, Any], of_type: Any) -> None:
    made = gymnasium.make_vec("ospbridge/Agent-v0", num_envs=2, scenario=of_type("CartPole*"), **typed)
    with closing(made) as env:
        env.reset(seed=1)
        assert env.single_observation_space.shape == (4,)
