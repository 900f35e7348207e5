"""The daemon as a service of a real systemd, in a container: what its units promise.

Not collected with the other tests, since it needs root, debootstrap and systemd-nspawn, and some minutes:
``pytest tests/peers/systemd_service.py``. See ``systemd_container`` for the container.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.peers.systemd_container import PROGRAM, Container, Impossible, booted, until
from tests.policy import onnx_models

pytestmark = [pytest.mark.peer, pytest.mark.timeout(150, func_only=True)]

HUB: Final = "unix:/run/ospbridge/hub.sock"
PORTS: Final = {"document": 45454, "nerd": 45455}
UNIT: Final = "ospbridge.service"
LEAVES_WITHIN: Final = 3.0
SIMULATOR: Final = """\
[Service]
Type=exec
ExecStart={program} sim --env CartPole-v1 --copies 2 --profile {profile} --port {port}
DynamicUser=yes
"""
PLAYER: Final = """\
import sys
import gymnasium
import ospbridge
agent, steps, bridge = sys.argv[1], int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else None
env = gymnasium.make("ospbridge/Agent-v0", bridge=bridge, agent=agent)
env.reset(seed=1)
for _ in range(steps):
    *_, terminated, truncated, info = env.step(env.action_space.sample())
    if terminated or truncated:
        assert not info["reason"], info
        env.reset()
print("played", flush=True)
sys.stdin.readline()
env.close()
"""
HANGING: Final = """\
import time
from ospbridge.task.scenario_task import ScenarioTask

class Hangs(ScenarioTask):
    def judge(self, outcome):
        time.sleep(100_000)
"""


@pytest.fixture(scope="module")
def container() -> Iterator[Container]:
    # A time limit from outside shall end the container, too, and give back the memory that it is in.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with booted() as container:
            for user in ("member", "other"):
                container.run("useradd", "--create-home", user)
            container.write("/opt/play.py", PLAYER)
            for profile, port in PORTS.items():
                text = SIMULATOR.format(program=PROGRAM, profile=profile, port=port)
                container.unit(f"sim-{profile}.service", text)
                container.systemctl("start", f"sim-{profile}.service")
            container.run("ospbridge", "service", "install")
            container.run("usermod", "--append", "--groups", "ospbridge", "member")
            yield container
    except Impossible as error:
        pytest.skip(str(error))
    finally:
        signal.signal(signal.SIGTERM, before)


class Service:
    """The system service, and what is known of it."""

    def __init__(self, container: Container, unit: str = UNIT, hub: str = HUB) -> None:
        self.container = container
        self.unit = unit
        self.hub = hub
        # What the test before was told within this second is none of this one's.
        time.sleep(1.0 - time.time() % 1.0)
        self.since = container.run("date", "+@%s").stdout.strip()

    def configure(self, profile: str, *lines: str, daemon: str = "") -> None:
        address = f'address = "127.0.0.1:{PORTS[profile]}"'
        text = "\n".join([daemon, "[[simulator]]", address, *lines, ""])
        self.container.write("/etc/ospbridge/ospbridge.toml", text)

    def drop_in(self, *lines: str) -> None:
        self.container.unit(f"{self.unit}.d/test.conf", "\n".join(["[Service]", *lines, ""]))

    def start(self) -> int:
        """Its process, once it has joined."""
        self.container.systemctl("start", self.unit)
        self.ready()
        return self.pid

    def ready(self) -> None:
        self.container.run("ospbridge", "status", "--hub", self.hub, "--wait", "40")

    def status(self, code: int | None = 0) -> Any:
        return json.loads(
            self.container.run("ospbridge", "status", "--json", "--hub", self.hub, code=code).stdout
        )

    def shown(self, name: str) -> str:
        return self.container.shown(self.unit, name)

    @property
    def pid(self) -> int:
        return int(self.shown("MainPID"))

    def kill(self, pid: int) -> None:
        """Until systemd has started another process by itself, and that has joined."""
        self.container.run("kill", "-KILL", pid)
        self.restarted(pid)

    def restarted(self, before: int) -> None:
        until(lambda: self.shown("NRestarts") != "0", "a restart", within=60.0)
        until(lambda: self.pid not in (0, before), "another process", within=60.0)
        self.ready()

    def player(self, agent: str, steps: int, user: str = "member") -> subprocess.Popen[str]:
        return self.container.start("python3", "/opt/play.py", agent, steps, self.hub, user=user)

    def plays(self, agent: str) -> None:
        finish(played(self.player(agent, 30)))

    def said(self) -> list[dict[str, Any]]:
        """What the daemon has written since the test began."""
        return self.container.journal(f"_SYSTEMD_UNIT={self.unit}", f"--since={self.since}")

    def lines(self, event: str) -> list[dict[str, Any]]:
        """What it has logged of an event."""
        found = [json.loads(entry["MESSAGE"]) for entry in self.said() if "{" in entry["MESSAGE"]]
        return [line for line in found if line["event"] == event]


@pytest.fixture
def service(container: Container) -> Iterator[Service]:
    yield Service(container)
    container.systemctl("stop", UNIT, code=None)
    container.systemctl("reset-failed", UNIT, code=None)
    container.remove(f"/etc/systemd/system/{UNIT}.d")
    container.systemctl("daemon-reload")


def played(player: subprocess.Popen[str]) -> subprocess.Popen[str]:
    """Once it has, while it holds its agent."""
    assert player.stdout is not None
    line = player.stdout.readline()
    assert line == "played\n", (line, player.communicate("\n", timeout=30))
    return player


def finish(player: subprocess.Popen[str]) -> None:
    _, errors = player.communicate("\n", timeout=30)
    assert player.returncode == 0, errors


def free_agents(container: Container, profile: str) -> list[str]:
    printed = container.run("ospbridge", "agents", "--json", "--simulator", f"127.0.0.1:{PORTS[profile]}")
    return [agent["name"] for agent in json.loads(printed.stdout) if agent["available"]]


@pytest.mark.parametrize("profile", PORTS)
def test_its_group_plays_nobody_else_does_and_a_daemon_that_is_killed_comes_back_with_its_agents(
    service: Service, profile: str
) -> None:
    service.configure(profile)
    pid = service.start()
    assert [service.shown(name) for name in ("ActiveState", "Type")] == ["active", "notify"]
    until(lambda: "joined" in service.shown("StatusText"), "a status")
    refused = service.player("cart1", 1, user="other")
    _, errors = refused.communicate("", timeout=30)
    assert refused.returncode != 0
    assert "this user may not use the daemon's hub" in errors
    player = played(service.player("cart1", 50))
    service.kill(pid)
    player.kill()
    player.communicate(timeout=30)
    assert service.shown("NRestarts") == "1"
    (_, again) = service.lines("joined")
    assert again["agents"] == ["cart1", "cart2"]
    service.plays("cart2")


@pytest.mark.parametrize("where", ["in a step", "stopped"])
def test_a_daemon_that_hangs_is_started_again_by_the_watchdog(service: Service, where: str) -> None:
    service.container.write("/opt/tasks/hanging.py", HANGING)
    service.container.write(
        "/etc/ospbridge/hanging.toml", 'name = "hanging"\n[[agent]]\ntask = "hanging:Hangs"\n'
    )
    service.configure("nerd", 'scenario = "hanging.toml"')
    service.drop_in("WatchdogSec=4s", "Environment=PYTHONPATH=/opt/tasks")
    pid = service.start()
    if where == "stopped":
        service.container.run("kill", "-STOP", pid)
        service.restarted(pid)
    else:
        player = service.player("cart1", 1)
        service.restarted(pid)
        player.kill()
        player.communicate(timeout=30)
        told = [entry["MESSAGE"] for entry in service.said()]
        assert any("/opt/tasks/hanging.py" in line and "in judge" in line for line in told)
    by_systemd = service.container.journal(f"UNIT={UNIT}", f"--since={service.since}")
    assert any("Watchdog timeout" in entry["MESSAGE"] for entry in by_systemd)
    until(lambda: service.lines("joined")[-1]["agents"] == ["cart1", "cart2"], "its agents")


@pytest.mark.parametrize("profile", PORTS)
def test_a_stop_in_the_midst_of_playing_leaves_no_agent_taken(service: Service, profile: str) -> None:
    service.configure(profile)
    service.start()
    player = service.player("cart1", 1_000_000)
    until(lambda: "1 of 2 agents driven" in service.shown("StatusText"), "somebody who plays")
    began = time.monotonic()
    service.container.systemctl("stop", UNIT)
    took = time.monotonic() - began
    player.kill()
    # What it ran in the container goes on; in the midst of a reset it waits 30 s for another daemon.
    player.communicate(timeout=60)
    assert [service.shown(name) for name in ("Result", "ExecMainStatus")] == ["success", "0"]
    assert free_agents(service.container, profile) == ["cart1", "cart2"]
    assert took < LEAVES_WITHIN


def test_a_reload_takes_over_what_it_can_and_keeps_the_daemon(service: Service) -> None:
    """And in the journal is one JSON object a line, with its priority and without a time."""
    service.configure("document")
    pid = service.start()
    service.configure("document", "step_timeout = 5.0", daemon='[daemon]\nlog_level = "debug"')
    service.container.systemctl("reload", UNIT)
    (line,) = until(lambda: service.lines("configuration read again"), "a reload")
    assert line["taken_over"] == ["daemon.log_level"]
    assert line["needs_restart"] == ["simulator[0].step_timeout"]
    service.configure("document", "step_timout = 5.0")
    service.container.systemctl("reload", UNIT)
    until(lambda: service.lines("the old configuration stays"), "a refusal")
    assert service.shown("ActiveState") == "active"
    assert service.pid == pid
    priorities = {"debug": "7", "info": "6", "warning": "4", "error": "3", "critical": "2"}
    told = [(json.loads(entry["MESSAGE"]), entry["PRIORITY"]) for entry in service.said()]
    assert [priority for _, priority in told] == [priorities[line["level"]] for line, _ in told]
    assert {"info", "warning"} <= {line["level"] for line, _ in told} <= {"debug", "info", "warning"}
    assert not any("timestamp" in line for line, _ in told)


def test_what_it_records_and_spools_is_in_its_state_directory(service: Service) -> None:
    """And a sandbox that forbids something that this needs is noticed."""
    container = service.container
    container.unit(
        "sink.service",
        f"[Service]\nType=exec\nDynamicUser=yes\nStateDirectory=sink\nWorkingDirectory=%S/sink\n"
        f"ExecStart={PROGRAM} sink --listen 127.0.0.1:5555 --env-steps 50\n",
    )
    container.systemctl("start", "sink.service")
    upstream = '[[rllink]]\naddress = "127.0.0.1:5555"\nmode = "observe"\nunannotated = true'
    service.configure("document", 'record = "/var/lib/ospbridge/episodes"', 'scenario = "cartpole"', upstream)
    service.start()
    finish(played(service.player("cart1", 200)))
    until(lambda: service.status()["recording"]["recorded"] > 0, "a recorded episode")
    until(lambda: service.status()["upstreams"][0]["delivered"] > 0, "a delivered episode")
    assert container.run("ls", "/var/lib/ospbridge/episodes").stdout
    container.systemctl("stop", "sink.service")


def test_a_credential_reaches_the_daemon_that_only_root_may_read(service: Service) -> None:
    container = service.container
    container.write("/etc/ospbridge/secret", "not a key")
    container.run("chmod", "600", "/etc/ospbridge/secret")
    service.drop_in("LoadCredential=tls-key:/etc/ospbridge/secret")
    key = "/run/credentials/ospbridge.service/tls-key"
    keys = [f'{name} = "{key}"' for name in ("tls_cert", "tls_key", "tls_ca")]
    service.configure("document", 'listen = "127.0.0.1:45460"', *keys)
    container.systemctl("start", UNIT, code=1)
    told = " ".join(entry["MESSAGE"] for entry in service.said())
    # It was read, and found to be none.
    assert key in told
    assert "Permission denied" not in told
    assert "No such file" not in told


def like_the_service(container: Container, name: str, program: str, *words: str, type_: str) -> None:
    """Another unit with the same walls, and a program of its own."""
    text = (container.root / "etc/systemd/system" / UNIT).read_text()
    path = f"/opt/{name}.py"
    container.write(path, program)
    start = f"ExecStart=/opt/ospbridge/bin/python {' '.join((path, *words))}"
    text = re.sub(r"(?m)^ExecStart=.*", start, text)
    text = re.sub(r"(?m)^Type=.*", f"Type={type_}", text)
    text = re.sub(r"(?m)^(Restart|WatchdogSec|BindPaths|RuntimeDirectory|StateDirectory)=.*\n", "", text)
    container.unit(f"{name}.service", text)


SANDBOXED: Final = """\
import ctypes, sqlite3, ssl, sys
import gymnasium, msgspec, numpy as np, onnxruntime, orjson
np.linalg.svd(np.random.default_rng(1).random((200, 200), np.float32) @ np.ones((200, 200), np.float32))
assert orjson.loads(orjson.dumps({"a": [1.5]})) == msgspec.json.decode(b'{"a":[1.5]}')
session = onnxruntime.InferenceSession(sys.argv[1])
wanted = session.get_inputs()[0]
shape = [size if isinstance(size, int) else 1 for size in wanted.shape]
(out, *_) = session.run(None, {wanted.name: np.zeros(shape, np.float32)})
assert np.isfinite(out).all()
print("all of it works")
"""


def test_heavy_libraries_work_behind_the_walls(container: Container) -> None:
    (container.root / "opt/model.onnx").write_bytes(onnx_models.recorded("discrete"))
    like_the_service(container, "sandboxed", SANDBOXED, "/opt/model.onnx", type_="oneshot")
    container.systemctl("start", "sandboxed.service", code=None)
    told = " ".join(str(entry["MESSAGE"]) for entry in container.journal("_SYSTEMD_UNIT=sandboxed.service"))
    assert "all of it works" in told, told


def test_each_simulator_may_have_a_daemon_of_its_own(container: Container) -> None:
    def command(*words: str) -> None:
        container.run("ospbridge", "service", *words)

    command("uninstall")
    instances = []
    for port, name in zip(PORTS.values(), ("left", "right"), strict=True):
        container.write(f"/etc/ospbridge/{name}.toml", f'[[simulator]]\naddress = "127.0.0.1:{port}"\n')
        command("install", "--instance", name, "--now")
        hub = f"unix:/run/ospbridge/{name}/hub.sock"
        instances.append(Service(container, f"ospbridge@{name}.service", hub))
        instances[-1].ready()
        instances[-1].plays("cart1")
    left, right = instances
    right.kill(right.pid)
    command("uninstall", "--instance", "left")
    right.ready()
    assert free_agents(container, "document") == ["cart1", "cart2"]
    command("uninstall", "--instance", "right")
    assert free_agents(container, "nerd") == ["cart1", "cart2"]
    assert not (container.root / "etc/systemd/system/ospbridge@.service").exists()
    assert left.shown("ActiveState") == "inactive"
    # As the other tests expect it.
    command("install")


def test_a_user_has_a_service_of_their_own(container: Container) -> None:
    container.systemctl("start", "systemd-logind")
    refused = container.run("ospbridge", "service", "install", "--user", user="other", code=69)
    assert "loginctl enable-linger" in refused.stderr
    container.run("loginctl", "enable-linger", "member")
    number = container.run("id", "-u", "member").stdout.strip()
    who: Any = {"user": "member", "XDG_RUNTIME_DIR": f"/run/user/{number}"}

    def run(*words: str) -> str:
        return container.run(*words, **who).stdout.strip()

    def shown(name: str) -> str:
        return run("systemctl", "--user", "show", UNIT, f"--property={name}", "--value")

    private = f"{who['XDG_RUNTIME_DIR']}/systemd/private"
    until(lambda: container.run("test", "-S", private, code=None).returncode == 0, "the user's systemd")
    run("ospbridge", "service", "install", "--user", "--now")
    run("ospbridge", "status", "--wait", "40")
    finish(played(container.start("python3", "/opt/play.py", "cart1", "20", **who)))
    container.run("kill", "-KILL", shown("MainPID"))
    until(lambda: shown("NRestarts") == "1", "a restart")
    run("ospbridge", "status", "--wait", "40")
    assert json.loads(run("ospbridge", "service", "status", "--user", "--json"))["restarts"] == 1
    run("ospbridge", "service", "uninstall", "--user")
    assert free_agents(container, "document") == ["cart1", "cart2"]
    container.run("loginctl", "disable-linger", "member")


def test_the_service_launches_a_simulator_that_survives_being_killed_and_outlives_no_daemon(
    service: Service,
) -> None:
    container = service.container
    container.write(
        "/etc/ospbridge/ospbridge.toml",
        '[[simulator]]\nscenario = "cartpole"\n[simulator.launch]\ncommand = "scenario"\npin = 0\n',
    )

    def launched() -> dict[str, Any]:
        found = service.status(code=None)
        return {**found["launched"], "ready": found["ready"]} if found["launched"] else {}

    def runs(pid: int) -> bool:
        return container.run("test", "-d", f"/proc/{pid}", code=None).returncode == 0

    # Without the drop-in it runs as anything does, and that is told.
    service.start()
    refused = {line["option"]: line["reason"] for line in service.lines("launch_option_refused")}
    assert refused == {"batch": "Operation not permitted", "pin": "Operation not permitted"}
    container.systemctl("stop", UNIT)
    # With it, it runs at full speed.
    folder = container.run("find", "/opt/ospbridge/lib", "-path", "*/ospbridge/systemd").stdout.strip()
    service.drop_in(*container.run("cat", f"{folder}/examples/launch.conf").stdout.splitlines())
    daemon = service.start()
    first = launched()
    assert (first["batch"], first["core"]) == (True, 0)
    assert container.run("taskset", "-p", first["pid"]).stdout.endswith("mask: 1\n")
    assert "SCHED_BATCH" in container.run("chrt", "-p", first["pid"]).stdout
    assert first["log"].startswith("/var/lib/ospbridge/launch/")
    assert container.run("cat", first["log"]).stdout
    done = container.run("systemd-analyze", "security", "--threshold=20", "--no-pager", UNIT)
    assert "Overall exposure level" in done.stdout
    service.plays("cart")
    container.run("kill", "-KILL", first["pid"])
    until(lambda: (found := launched()).get("restarts") == 1 and found["ready"], "another simulator")
    second = launched()
    service.plays("cart")
    container.run("kill", "-KILL", daemon)
    until(lambda: not runs(second["pid"]), "the end of a simulator that nobody has any more")
    service.restarted(daemon)
    third = launched()
    service.plays("cart")
    container.systemctl("stop", UNIT)
    assert not runs(third["pid"])


def test_the_command_installs_once_tells_how_the_service_is_and_leaves_what_is_the_users(
    service: Service,
) -> None:
    container = service.container

    def command(*words: str, code: int = 0) -> str:
        return container.run("ospbridge", "service", *words, code=code).stdout

    service.configure("document")
    command("install", "--now")
    pid = service.pid
    assert "write" not in command("install", "--now")
    assert service.pid == pid
    service.ready()
    found = json.loads(command("status", "--json"))
    assert (found["state"], found["detail"], found["pid"]) == ("active", "running", pid)
    assert (found["enabled"], found["watchdog"]) == ("enabled", "30s")
    assert found["heard"]
    # Also until it has its agents again: they would stay taken if it were stopped before.
    service.kill(pid)
    assert json.loads(command("status", "--json"))["restarts"] == 1
    command("uninstall")
    assert not (container.root / "etc/systemd/system" / UNIT).exists()
    assert free_agents(container, "document") == ["cart1", "cart2"]
    assert (container.root / "etc/ospbridge/ospbridge.toml").exists()
    container.run("getent", "group", "ospbridge")
    command("status", code=69)
