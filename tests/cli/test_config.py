"""What `ospbridge connect` would do, as `config show` tells it, and what both refuse beforehand."""

from __future__ import annotations

import socket
import tomllib
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from ospbridge.cli.configured import configuration
from ospbridge.cli.connect import connect
from ospbridge.cli.server_options import LONGEST
from ospbridge.cli.upstream import upstream_from, upstream_options
from ospbridge.daemon.relay.link import Upstream
from ospbridge.daemon.settings import Settings
from ospbridge.observe.runtime import default_hub
from ospbridge.rllink.framing import LARGEST_BODY, LARGEST_TAKEN
from tests.cli.programs import invoke

TWO = """\
[[simulator]]
name = "left"
scenario = "cartpole"
[[simulator]]
name = "right"
address = "127.0.0.1:45455"
step_timeout = 5
trace = "right.jsonl"

[[rllink]]
address = "127.0.0.1:5556"
simulators = ["left"]
[[rllink]]
address = "127.0.0.1:5557"
simulators = ["right"]
mode = "observe"
spool_limit = "10M"
"""


def show(*arguments: str, **variables: str) -> Any:
    return tomllib.loads(invoke("config", "show", *arguments, env=variables).stdout)


@pytest.fixture
def two(tmp_path: Path) -> str:
    file = tmp_path / "osp.toml"
    file.write_text(TWO)
    return str(file)


def test_without_a_file_it_shows_what_the_flags_say() -> None:
    found = show("--agent", "a*", "--agent", "b", "--rllink", "127.0.0.1:5555", "--no-spin")
    (simulator,) = found["simulator"]
    assert simulator["address"] == "127.0.0.1:45454"
    assert simulator["agents"] == ["a*", "b"]
    assert simulator["hub"] == f"unix:{default_hub()}"
    assert simulator["spin"] is False
    (server,) = found["rllink"]
    assert (server["address"], server["mode"], server["timeout"]) == ("127.0.0.1:5555", "drive", 600.0)


def test_each_named_simulator_has_a_hub_of_its_own(two: str) -> None:
    found = show("--config", two)
    assert [each["hub"] for each in found["simulator"]] == [
        f"unix:{default_hub(name)}" for name in ("left", "right")
    ]
    assert default_hub("left").name == "hub-left.sock"


def test_what_is_shown_is_a_file_that_shows_the_same(two: str, tmp_path: Path) -> None:
    again = tmp_path / "again.toml"
    again.write_text(invoke("config", "show", "--config", two, "--origin").stdout)
    assert show("--config", str(again)) == show("--config", two)


def test_flags_come_before_variables_and_those_before_the_file(two: str) -> None:
    def timeouts(*flags: str, **variables: str) -> list[float]:
        return [each["step_timeout"] for each in show("--config", two, *flags, **variables)["simulator"]]

    assert timeouts() == [30.0, 5.0]
    assert timeouts(OSPBRIDGE_CONNECT_STEP_TIMEOUT="7") == [7.0, 7.0]
    assert timeouts("--step-timeout", "8", OSPBRIDGE_CONNECT_STEP_TIMEOUT="7") == [8.0, 8.0]


def test_origins_are_told_if_asked_for(two: str) -> None:
    shown = invoke(
        "config", "show", "--config", two, "--origin", env={"OSPBRIDGE_CONNECT_QUORUM": "2"}
    ).stdout
    assert 'address = "127.0.0.1:45454"  # default\n' in shown
    assert f'address = "127.0.0.1:45455"  # {two}:6\n' in shown
    assert "quorum = 2  # OSPBRIDGE_CONNECT_QUORUM\n" in shown


LAUNCHING = """\
[[simulator]]
name = "left"
[simulator.launch]
command = ["./NerdSim", "-p", "{port}"]
cwd = "nerd"
log = "logs/{port}.log"
env = { DISPLAY = ":0" }
pin = 0
[[simulator]]
name = "right"
address = "127.0.0.1:45470"
scenario = "cartpole"
launch = "scenario"
"""


@pytest.fixture
def launching(tmp_path: Path) -> Path:
    (tmp_path / "nerd").mkdir()
    program = tmp_path / "nerd" / "NerdSim"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    file = tmp_path / "osp.toml"
    file.write_text(LAUNCHING)
    return file


def settings_of(*arguments: str) -> list[Settings]:
    with connect.make_context("connect", list(arguments)) as context:
        return configuration(context, context.params["config"]).settings()


def test_a_file_says_how_simulators_are_launched_with_paths_from_its_directory(
    launching: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = launching.parent
    monkeypatch.chdir("/")
    left, right = settings_of("--config", str(launching))
    assert left.launch is not None
    assert left.launch.command == (str(folder / "nerd" / "NerdSim"), "-p", "{port}")
    assert (left.launch.cwd, left.launch.log) == (folder / "nerd", folder / "logs" / "{port}.log")
    assert (left.launch.env, left.launch.pin, left.launch.batch) == ({"DISPLAY": ":0"}, 0, True)
    assert right.launch is not None
    assert (right.launch.name, right.launch.cwd) == ("cartpole", folder)


def test_one_that_is_launched_has_the_address_that_is_said_or_a_free_port(launching: Path) -> None:
    left, right = settings_of("--config", str(launching))
    assert (str(left.simulator), str(right.simulator)) == ("127.0.0.1:0", "127.0.0.1:45470")
    (alone,) = settings_of("--launch", "true {port}", "--simulator", "localhost:45471")
    assert str(alone.simulator) == "127.0.0.1:45471"
    # Two of them are no two that want the same address.
    both = LAUNCHING.replace('address = "127.0.0.1:45470"\n', "")
    launching.write_text(both)
    assert [each.simulator.port for each in settings_of("--config", str(launching))] == [0, 0]


def test_how_one_is_launched_is_shown_as_a_file_has_it(launching: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.toml"
    again.write_text(invoke("config", "show", "--config", str(launching), "--origin").stdout)
    assert show("--config", str(again)) == show("--config", str(launching))
    assert show("--launch", "true {port}")["simulator"][0]["launch"] == "true {port}"


@pytest.mark.parametrize(
    "before, after, why",
    [
        ("45455", "what", "line 6: simulator[1].address: '127.0.0.1:what' is not a simulator's address"),
        ('"10M"', '"10 apples"', "line 17: rllink[1].spool_limit: "),
        ('"left"\n', '"a/b"\n', "line 2: simulator[0].name: 'a/b' is no name"),
        ('"cartpole"', '"cartpol"', "line 3: simulator[0].scenario: no scenario is called 'cartpol' (did you mean"),
        ('mode = "observe"', "env_steps = 5", "rllink[1]: --rllink-spool-limit means nothing in the mode drive"),
        ('address = "127.0.0.1:5556"', "", "rllink[0]: has no address"),
        ('trace = "right.jsonl"', 'tls_cert = "a.pem"', "simulator[1]: certificates were given, but no --listen"),
        ("cwd", "cwt", "line 5: simulator[0].launch.cwt: unknown key (did you mean 'cwd'?)"),
        ('launch = "scenario"', "launch = 3", "simulator[1].launch: expected a text, a list of texts, or a table"),
        ("./NerdSim", "./Nerd", "simulator[0]: there is no program ./Nerd to launch"),
        ('{port}"]', '45"]', "simulator[0]: launch says nowhere which port the simulator listens at"),
        ("pin = 0", "pin = true", "simulator[0]: pin is 'auto', the number of a core, or False, got True"),
        ('scenario = "cartpole"\nlaunch', "launch", "simulator[1]: launch is 'scenario', and no scenario was given"),
        ("127.0.0.1:45470", "10.0.0.1:45470", "simulator[1]: a simulator cannot be launched at 10.0.0.1:45470"),
    ],
)  # fmt: skip
def test_mistakes_of_a_file_are_told_with_their_place(
    before: str, after: str, why: str, launching: Path
) -> None:
    text = TWO if before in TWO else LAUNCHING
    assert before in text
    launching.write_text(text.replace(before, after, 1))
    for command in (("config", "show"), ("connect",)):
        told = invoke(*command, "--config", str(launching), exit_code=78).stderr
        assert why in told
        assert str(launching) in told
        assert "Hint: " in told


def test_several_mistakes_of_a_file_stand_on_a_line_each(tmp_path: Path) -> None:
    file = tmp_path / "osp.toml"
    file.write_text('[[simulator]]\nquorum = 0\nscenario = "cartpol"\n[[rllink]]\nenv_step = 5\n')
    error, *told, hint = invoke("config", "show", "--config", str(file), exit_code=78).stderr.splitlines()
    assert error == f"Error: {file} has 3 mistakes:"
    assert told == [
        "  line 2: simulator[0].quorum: expected a whole number from 1 to 10000, got 0",
        "  line 3: simulator[0].scenario: no scenario is called 'cartpol' (did you mean 'cartpole'?)",
        "  line 5: rllink[0].env_step: unknown key (did you mean 'env_steps'?)",
    ]
    assert hint.startswith("Hint: ")


@pytest.mark.parametrize("said", ["9464:", ":1", "a:b"])
def test_what_is_no_address_to_listen_at_is_told(said: str, tmp_path: Path) -> None:
    file = tmp_path / "osp.toml"
    file.write_text(f'[daemon]\nmetrics = "{said}"\n')
    assert "daemon.metrics" in invoke("config", "show", "--config", str(file), exit_code=78).stderr
    assert "is not an address to listen at" in invoke("connect", "--metrics", said, exit_code=2).stderr
    assert (
        f"{said!r} is not an address to listen at" in invoke("connect", "--listen", said, exit_code=78).stderr
    )


TLS = """[[simulator]]
listen = "0.0.0.0:45460"
tls_cert = "{files}/a.pem"
tls_key = "{files}/a.key"
tls_ca = "{files}/ca.pem"
"""


def test_certificates_that_are_not_there_are_told_as_when_the_daemon_starts(tmp_path: Path) -> None:
    file = tmp_path / "osp.toml"
    file.write_text(TLS.format(files=tmp_path))
    told = invoke("config", "show", "--config", str(file), exit_code=78).stderr
    assert f"cannot read {tmp_path}/a.pem: No such file" in told
    assert "osp.toml" in told
    file.write_text(f'[[rllink]]\naddress = "tls://trainer:5555"\ntls_ca = "{tmp_path}/ca.pem"\n')
    told = invoke("config", "show", "--config", str(file), exit_code=78).stderr
    assert f"cannot read {tmp_path}/ca.pem: No such file" in told


def test_credentials_are_there_only_while_the_service_runs(tmp_path: Path) -> None:
    file = tmp_path / "osp.toml"
    file.write_text(TLS.format(files="/run/credentials/ospbridge.service"))
    invoke("config", "show", "--config", str(file))


# --- what is refused before a simulator is contacted -----------------------------------------------------------------


@pytest.mark.loopback
@pytest.mark.parametrize("wrong", ["a file", "below a file"])
def test_a_directory_that_cannot_be_recorded_in_is_refused_before_the_simulator_is_contacted(
    wrong: str, tmp_path: Path
) -> None:
    directory = tmp_path / "out"
    directory.touch()
    if wrong == "below a file":
        directory /= "below"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as simulator:
        simulator.bind(("127.0.0.1", 0))
        address = "{}:{}".format(*simulator.getsockname())
        variables = {"OSPBRIDGE_CONNECT_RECORD": str(directory)}
        told = invoke("connect", "--simulator", address, exit_code=78, env=variables).stderr
        simulator.setblocking(False)
        with pytest.raises(BlockingIOError):
            simulator.recv(1)
    assert f"episodes cannot be recorded in {directory}" in told
    assert "Hint: name a directory" in told
    assert not default_hub().exists()


# --- what is said of an RLlink server --------------------------------------------------------------------------------


def said(*options: str) -> Upstream:
    found: list[Upstream | None] = []

    @click.command()
    @upstream_options
    def command(**given: Any) -> None:
        found.append(upstream_from(given))

    result = CliRunner().invoke(command, ["--rllink", "127.0.0.1:5555", *options], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    (upstream,) = found
    assert upstream is not None
    return upstream


def test_what_no_server_tells_can_be_said() -> None:
    nothing = said()
    assert (nothing.activation, nothing.head_activation) == (None, None)
    assert (nothing.normalize_actions, nothing.clip_actions) == (None, None)
    words = ["--rllink-activation", "elu", "--rllink-head-activation", "silu"]
    upstream = said(*words, "--no-rllink-normalize-actions", "--rllink-clip-actions")
    assert (upstream.activation, upstream.head_activation) == ("elu", "silu")
    assert (upstream.normalize_actions, upstream.clip_actions) == (False, True)


def test_messages_of_a_server_are_as_large_as_is_said_and_no_larger_than_can_be_announced() -> None:
    assert said().largest_message == LARGEST_TAKEN
    assert said("--rllink-largest-message", "99999999").largest_message == LARGEST_BODY == LONGEST
    with pytest.raises(AssertionError, match="99,999,999 bytes that a message can have"):
        said("--rllink-largest-message", "1G")


def test_what_is_said_of_a_server_needs_one() -> None:
    for option in ("--insecure", "--rllink-greedy"):
        assert f"{option} was given, but no server" in invoke("config", "show", option, exit_code=2).stderr
