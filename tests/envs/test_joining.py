"""How environments of all kinds find their agents: what contradicts itself, or cannot count, is told at once."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING, Any

import pytest

from ospbridge.errors import AgentNotFound, ConfigurationError, HubNotFound, OspBridgeError, UsageError
from ospbridge.session import rebuild
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.envs.kinds import EVERY_KIND, parallel, single, step, vector

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


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
@pytest.mark.loopback
def test_a_reset_says_that_it_waits_for_a_simulator_that_is_gone(
    made: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rebuild, "SAID_AFTER", 0.1)
    with UdpSimulator(SyntheticWorld(2, 3), port=0) as simulator:
        env = made(simulator=str(simulator.address), connect_timeout=0.5)
        env.reset(seed=1)
    step(env)
    with (
        pytest.warns(UserWarning, match=r"still waiting, for \d s at most: nothing listens"),
        pytest.raises(OspBridgeError, match="nothing listens"),
    ):
        env.reset(seed=2)
    env.close()


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


@pytest.mark.timeout(60)
def test_a_name_that_no_agent_has_is_told_at_once_where_there_are_agents() -> None:
    with (
        UdpSimulator(SyntheticWorld(2, 3), port=0) as simulator,
        pytest.raises(AgentNotFound, match="no agent 'robot'"),
    ):
        single(simulator=str(simulator.address), agent="robot", wait=3600.0)
