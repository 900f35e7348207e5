"""The daemon as a service of a real systemd, in a container: what its units promise.

Not collected with the other tests, since it needs root, debootstrap and systemd-nspawn, and some minutes:
``pytest tests/peers/systemd_service.py``. See ``systemd_container`` for the container.
"""

from __future__ import annotations

import json
import re
import signal
import time
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.peers.systemd_container import PROGRAM, Container, Impossible, booted, until
from tests.policy import onnx_models

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator

pytestmark = [pytest.mark.peer, pytest.mark.timeout(150, func_only=True)]

HUB: Final = "unix:/run/ospbridge/hub.sock"
PORTS: Final = {"document": 45454, "nerd": 45455}
UNIT: Final = "ospbridge.service"
DROP_IN: Final = f"/etc/systemd/system/{UNIT}.d/test.conf"
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


@pytest.fixture(scope="module", autouse=True)
def endable() -> Iterator[None]:
    """A time limit from outside shall end the container, too, and give back the memory that it is in."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture(scope="module")
def container(endable: None) -> Iterator[Container]:
    try:
        with booted() as container:
            container.run("useradd", "--create-home", "member")
            container.run("useradd", "--create-home", "other")
            container.write("/opt/play.py", PLAYER)
            for profile, port in PORTS.items():
                unit = f"sim-{profile}.service"
                text = SIMULATOR.format(program=PROGRAM, profile=profile, port=port)
                container.write(f"/etc/systemd/system/{unit}", text)
            container.systemctl("daemon-reload")
            container.systemctl("start", *(f"sim-{profile}" for profile in PORTS))
            container.run("ospbridge", "service", "install")
            container.run("usermod", "--append", "--groups", "ospbridge", "member")
            yield container
    except Impossible as error:
        pytest.skip(str(error))


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
        self.container.write(DROP_IN, "\n".join(["[Service]", *lines, ""]))
        self.container.systemctl("daemon-reload")

    def start(self) -> int:
        """Its process, once it has joined."""
        self.container.systemctl("start", self.unit)
        self.ready()
        return self.pid

    def ready(self) -> None:
        self.container.run("ospbridge", "status", "--hub", self.hub, "--wait", "40")

    def shown(self, name: str) -> str:
        return self.container.shown(self.unit, name)

    @property
    def pid(self) -> int:
        return int(self.shown("MainPID"))

    def restarted(self, before: int, within: float = 60.0) -> None:
        """Until systemd has started another process by itself, and that has joined."""
        until(lambda: self.shown("NRestarts") != "0", "a restart", within=within)
        until(lambda: self.pid not in (0, before), "another process", within=within)
        self.ready()

    def player(self, agent: str, steps: int, user: str = "member") -> subprocess.Popen[str]:
        return self.container.start("python3", "/opt/play.py", agent, steps, self.hub, user=user)

    def lines(self, event: str | None = None) -> list[dict[str, Any]]:
        """What the daemon has logged since the test began."""
        which = (f"_SYSTEMD_UNIT={self.unit}", f"--since={self.since}")
        found = [
            json.loads(entry["MESSAGE"])
            for entry in self.container.journal(*which)
            if "{" in entry["MESSAGE"]
        ]
        return [line for line in found if event in (None, line["event"])]

    def told_by_systemd(self) -> str:
        which = (f"UNIT={self.unit}", f"--since={self.since}")
        return "\n".join(entry["MESSAGE"] for entry in self.container.journal(*which))


@pytest.fixture
def service(container: Container) -> Iterator[Service]:
    yield Service(container)
    container.run("systemctl", "stop", UNIT, code=None)
    container.run("systemctl", "reset-failed", UNIT, code=None)
    container.remove(DROP_IN)
    container.systemctl("daemon-reload")


def played(player: subprocess.Popen[str]) -> None:
    """Await that it has, while it holds its agent."""
    assert player.stdout is not None
    line = player.stdout.readline()
    assert line == "played\n", (line, player.communicate("\n", timeout=30))


def finish(player: subprocess.Popen[str]) -> None:
    _, errors = player.communicate("\n", timeout=30)
    assert player.returncode == 0, errors


def free_agents(container: Container, profile: str) -> list[str]:
    printed = container.run("ospbridge", "agents", "--json", "--simulator", f"127.0.0.1:{PORTS[profile]}")
    return [agent["name"] for agent in json.loads(printed.stdout) if agent["available"]]


def test_systemd_finds_nothing_wrong_with_any_unit(container: Container) -> None:
    folder = container.run("find", "/opt/ospbridge/lib", "-path", "*/ospbridge/systemd").stdout.strip()
    for name in ("ospbridge.service", "ospbridge@.service"):
        # Here the program is where systemd looks for it.
        container.run("install", "-Dm644", f"{folder}/{name}", f"/usr/local/lib/units/{name}")
        container.run("install", "-Dm644", f"{folder}/user/{name}", f"/usr/local/lib/user-units/{name}")
    container.run("ln", "-sf", PROGRAM, "/usr/local/bin/ospbridge")
    container.run(
        *("install", "-Dm644", f"{folder}/examples/ip-filter.conf"),
        f"/usr/local/lib/units/{UNIT}.d/ip-filter.conf",
    )
    container.run(
        *("install", "-Dm644", f"{folder}/examples/launch.conf"),
        f"/usr/local/lib/units/{UNIT}.d/launch.conf",
    )
    for unit in (UNIT, "ospbridge@left.service"):
        done = container.run("systemd-analyze", "verify", "--man=no", f"/usr/local/lib/units/{unit}")
        assert done.stdout + done.stderr == ""
        done = container.run(
            *("systemd-analyze", "verify", "--man=no", "--user", f"/usr/local/lib/user-units/{unit}"),
            XDG_RUNTIME_DIR="/tmp",
        )
        assert done.stdout + done.stderr == ""


@pytest.mark.parametrize("unit", [UNIT, "ospbridge@left.service"])
def test_the_service_is_exposed_to_little(container: Container, unit: str) -> None:
    path = f"/usr/local/lib/units/{unit.replace('left', '')}"
    done = container.run(
        "systemd-analyze", "security", "--offline=true", "--threshold=15", "--no-pager", path
    )
    assert "Overall exposure level" in done.stdout


@pytest.mark.parametrize("profile", PORTS)
def test_a_member_of_the_group_plays_through_it_and_nobody_else_does(service: Service, profile: str) -> None:
    service.configure(profile)
    service.start()
    assert service.shown("ActiveState") == "active"
    assert service.shown("Type") == "notify"
    until(lambda: "joined" in service.shown("StatusText"), "a status")
    player = service.player("cart1", 50)
    played(player)
    finish(player)
    refused = service.player("cart1", 1, user="other")
    _, errors = refused.communicate("", timeout=30)
    assert refused.returncode != 0
    assert "this user may not use the daemon's hub" in errors
    assert service.shown("NRestarts") == "0"


@pytest.mark.parametrize("profile", PORTS)
def test_a_killed_daemon_is_started_again_and_frees_its_agents(service: Service, profile: str) -> None:
    service.configure(profile)
    pid = service.start()
    player = service.player("cart1", 20)
    played(player)
    service.container.run("kill", "-KILL", str(pid))
    service.restarted(pid)
    player.kill()
    player.communicate(timeout=30)
    assert service.shown("NRestarts") == "1"
    (_, again) = service.lines("joined")
    assert again["agents"] == ["cart1", "cart2"]
    player = service.player("cart2", 20)
    played(player)
    finish(player)


def hang_in_a_step(service: Service, pid: int) -> Callable[[], None]:
    player = service.player("cart1", 1)

    def end() -> None:
        player.kill()
        player.communicate(timeout=30)

    return end


def stand_still(service: Service, pid: int) -> Callable[[], None]:
    service.container.run("kill", "-STOP", str(pid))
    return lambda: None


@pytest.mark.parametrize("hang", [hang_in_a_step, stand_still])
def test_a_daemon_that_hangs_is_started_again_by_the_watchdog(
    service: Service, hang: Callable[[Service, int], Callable[[], None]]
) -> None:
    service.container.write("/opt/tasks/hanging.py", HANGING)
    service.container.write(
        "/etc/ospbridge/hanging.toml", 'name = "hanging"\n[[agent]]\ntask = "hanging:Hangs"\n'
    )
    service.configure("nerd", 'scenario = "hanging.toml"')
    service.drop_in("WatchdogSec=4s", "Environment=PYTHONPATH=/opt/tasks")
    pid = service.start()
    end = hang(service, pid)
    service.restarted(pid)
    end()
    assert "Watchdog timeout" in service.told_by_systemd()
    if hang is hang_in_a_step:
        which = (f"_SYSTEMD_UNIT={UNIT}", f"--since={service.since}")
        said = [entry["MESSAGE"] for entry in service.container.journal(*which)]
        assert any("/opt/tasks/hanging.py" in line and "in judge" in line for line in said)
    until(lambda: free_agents_held(service), "its agents")


def free_agents_held(service: Service) -> bool:
    """Whether the daemon, and nobody else, has both agents."""
    (*_, last) = service.lines("joined")
    return bool(last["agents"] == ["cart1", "cart2"])


@pytest.mark.parametrize("mistake, code", [("configuration", 78), ("command line", 2)])
def test_a_mistake_of_the_users_is_not_tried_again(service: Service, mistake: str, code: int) -> None:
    if mistake == "configuration":
        service.configure("document", "step_timout = 5")
    else:
        service.configure("document")
        service.drop_in("ExecStart=", f"ExecStart={PROGRAM} connect --no-such-option")
    service.container.run("systemctl", "start", UNIT, code=1)
    assert service.shown("ActiveState") == "failed"
    assert service.shown("ExecMainStatus") == str(code)
    # Longer than systemd would wait before it tried again.
    time.sleep(3)
    assert service.shown("ActiveState") == "failed"
    assert service.shown("NRestarts") == "0"


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
    assert service.shown("Result") == "success"
    assert service.shown("ExecMainStatus") == "0"
    assert free_agents(service.container, profile) == ["cart1", "cart2"]
    assert took < LEAVES_WITHIN


def test_a_reload_takes_over_what_it_can_and_keeps_the_daemon(service: Service) -> None:
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


def test_the_journal_has_one_json_object_a_line_with_its_priority(service: Service) -> None:
    service.configure("document")
    service.start()
    service.configure("document", "step_timout = 5.0")
    service.container.systemctl("reload", UNIT)
    until(lambda: service.lines("the old configuration stays"), "a warning")
    entries = service.container.journal(f"_SYSTEMD_UNIT={UNIT}", f"--since={service.since}")
    found = [(json.loads(entry["MESSAGE"]), entry["PRIORITY"]) for entry in entries]
    priorities = {"debug": "7", "info": "6", "warning": "4", "error": "3", "critical": "2"}
    for line, priority in found:
        assert priority == priorities[line["level"]]
        assert "timestamp" not in line
    assert {line["level"] for line, _ in found} == {"info", "warning"}


def test_what_it_records_and_spools_is_in_its_state_directory(service: Service) -> None:
    """And a sandbox that forbids something that this needs is noticed."""
    container = service.container
    container.write(
        "/etc/systemd/system/sink.service",
        f"[Service]\nType=exec\nDynamicUser=yes\nStateDirectory=sink\nWorkingDirectory=%S/sink\n"
        f"ExecStart={PROGRAM} sink --listen 127.0.0.1:5555 --env-steps 50\n",
    )
    container.systemctl("daemon-reload")
    container.systemctl("start", "sink.service")
    service.configure("document", 'record = "/var/lib/ospbridge/episodes"', 'scenario = "cartpole"')
    file = container.root / "etc/ospbridge/ospbridge.toml"
    upstream = '[[rllink]]\naddress = "127.0.0.1:5555"\nmode = "observe"\nunannotated = true\n'
    file.write_text(file.read_text() + upstream)
    service.start()
    player = service.player("cart1", 200)
    played(player)
    finish(player)

    def status() -> Any:
        return json.loads(container.run("ospbridge", "status", "--json", "--hub", HUB).stdout)

    until(lambda: status()["recording"]["recorded"] > 0, "a recorded episode")
    until(lambda: status()["upstreams"][0]["delivered"] > 0, "a delivered episode")
    assert container.run("sh", "-c", "ls /var/lib/ospbridge/episodes | wc -l").stdout != "0\n"
    container.systemctl("stop", "sink.service")


def test_a_credential_reaches_the_daemon_that_only_root_may_read(service: Service) -> None:
    container = service.container
    container.write("/etc/ospbridge/secret", "not a key")
    container.run("chmod", "600", "/etc/ospbridge/secret")
    service.drop_in("LoadCredential=tls-key:/etc/ospbridge/secret")
    keys = [
        f'{name} = "/run/credentials/ospbridge.service/tls-key"' for name in ("tls_cert", "tls_key", "tls_ca")
    ]
    service.configure("document", 'listen = "127.0.0.1:45460"', *keys)
    container.run("systemctl", "start", UNIT, code=1)
    which = (f"_SYSTEMD_UNIT={UNIT}", f"--since={service.since}")
    said = " ".join(entry["MESSAGE"] for entry in container.journal(*which))
    # It was read, and found to be none.
    assert "/run/credentials/ospbridge.service/tls-key" in said
    assert "Permission denied" not in said
    assert "No such file" not in said


def test_what_still_reads_weights_outlives_a_stop(container: Container) -> None:
    """As the daemon leaves it behind where an RLlink server still owes it some."""
    unit = (container.root / "etc/systemd/system" / UNIT).read_text()
    program = (
        "import signal, socket, time\n"
        "from ospbridge.daemon.notifying import Notifier\n"
        "from ospbridge.transport.streams import linger\n"
        "ours, theirs = socket.socketpair()\n"
        "def leave(*_):\n"
        "    linger(ours.fileno(), 600.0)\n"
        "    linger(theirs.fileno(), 600.0)\n"
        "    raise SystemExit\n"
        "signal.signal(signal.SIGTERM, leave)\n"
        "Notifier().tell(READY=1)\n"
        "while True: time.sleep(1)\n"
    )
    container.write("/opt/owed.py", program)
    unit = re.sub(r"(?m)^ExecStart=.*", "ExecStart=/opt/ospbridge/bin/python /opt/owed.py", unit)
    unit = re.sub(r"(?m)^(Restart|WatchdogSec|BindPaths|RuntimeDirectory|StateDirectory)=.*\n", "", unit)
    container.write("/etc/systemd/system/owed.service", unit)
    container.systemctl("daemon-reload")
    container.systemctl("start", "owed.service")
    container.systemctl("stop", "owed.service")
    assert container.shown("owed.service", "Result") == "success"
    left = container.run("pgrep", "--full", "import os, select").stdout.split()
    assert len(left) == 2
    # They are in nobody's way.
    container.systemctl("start", "owed.service")
    assert container.shown("owed.service", "ActiveState") == "active"
    container.run("systemctl", "kill", "--signal=KILL", "owed.service")
    container.run("kill", *left, code=None)


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
    container.write("/opt/sandboxed.py", SANDBOXED)
    (container.root / "opt/model.onnx").write_bytes(onnx_models.recorded("discrete"))
    unit = (container.root / "etc/systemd/system" / UNIT).read_text()
    start = "ExecStart=/opt/ospbridge/bin/python /opt/sandboxed.py /opt/model.onnx"
    unit = re.sub(r"(?m)^ExecStart=.*", start, unit)
    unit = re.sub(r"(?m)^Type=.*", "Type=oneshot", unit)
    unit = re.sub(r"(?m)^(Restart|WatchdogSec|BindPaths|RuntimeDirectory|StateDirectory)=.*\n", "", unit)
    container.write("/etc/systemd/system/sandboxed.service", unit)
    container.systemctl("daemon-reload")
    container.run("systemctl", "start", "sandboxed.service", code=None)
    said = " ".join(str(entry["MESSAGE"]) for entry in container.journal("_SYSTEMD_UNIT=sandboxed.service"))
    assert "all of it works" in said, said


def test_each_simulator_may_have_a_daemon_of_its_own(container: Container) -> None:
    single = Service(container)
    single.configure("document")
    single.start()
    refused = container.run("ospbridge", "service", "install", "--instance", "left", code=2)
    assert "ospbridge.service runs" in refused.stderr
    container.systemctl("stop", UNIT)
    refused = container.run("ospbridge", "service", "install", "--instance", "left", code=2)
    assert "ospbridge.service is started at boot" in refused.stderr
    container.run("ospbridge", "service", "uninstall")
    instances = {}
    for (profile, port), name in zip(PORTS.items(), ("left", "right"), strict=True):
        container.write(f"/etc/ospbridge/{name}.toml", f'[[simulator]]\naddress = "127.0.0.1:{port}"\n')
        container.run("ospbridge", "service", "install", "--instance", name, "--now")
        instances[profile] = Service(
            container, f"ospbridge@{name}.service", f"unix:/run/ospbridge/{name}/hub.sock"
        )
    for each in instances.values():
        each.ready()
        player = each.player("cart1", 20)
        played(player)
        finish(player)
    left, right = instances.values()
    refused = container.run("ospbridge", "service", "install", code=2)
    assert "ospbridge@left.service runs" in refused.stderr
    container.run("kill", "-KILL", str(right.pid))
    right.restarted(0)
    container.run("ospbridge", "service", "uninstall", "--instance", "left")
    right.ready()
    assert free_agents(container, "document") == ["cart1", "cart2"]
    container.run("ospbridge", "service", "uninstall", "--instance", "right")
    assert free_agents(container, "nerd") == ["cart1", "cart2"]
    assert not (container.root / "etc/systemd/system/ospbridge@.service").exists()
    assert left.shown("ActiveState") == "inactive"
    # As the other tests expect it.
    container.run("ospbridge", "service", "install")


def test_the_command_installs_once_and_tells_how_the_service_is(service: Service) -> None:
    container = service.container
    service.configure("document")
    container.run("ospbridge", "service", "install", "--now")
    pid = service.pid
    printed = container.run("ospbridge", "service", "install", "--now").stdout
    assert "write" not in printed
    assert service.pid == pid
    service.ready()
    found = json.loads(container.run("ospbridge", "service", "status", "--json").stdout)
    assert (found["state"], found["detail"], found["pid"]) == ("active", "running", pid)
    assert found["enabled"] == "enabled"
    assert found["watchdog"] == "30s"
    assert found["heard"]
    container.run("kill", "-KILL", str(pid))
    # And until it has its agents again: they would stay taken if it were stopped before.
    service.restarted(pid)
    found = json.loads(container.run("ospbridge", "service", "status", "--json").stdout)
    assert found["restarts"] == 1
    refused = container.run("ospbridge", "service", "install", user="other", code=2)
    assert "only root may" in refused.stderr


def test_a_user_has_a_service_of_their_own(container: Container) -> None:
    container.systemctl("start", "systemd-logind")
    refused = container.run("ospbridge", "service", "install", "--user", user="other", code=69)
    assert "loginctl enable-linger" in refused.stderr
    container.run("loginctl", "enable-linger", "member")
    number = container.run("id", "-u", "member").stdout.strip()
    runtime = f"/run/user/{number}"
    until(
        lambda: (
            (container.root / "run").exists()
            and container.run("test", "-S", f"{runtime}/systemd/private", code=None).returncode == 0
        ),
        "the user's systemd",
    )

    def run(*words: str, code: int | None = 0) -> str:
        return container.run(*words, user="member", code=code, XDG_RUNTIME_DIR=runtime).stdout.strip()

    run("ospbridge", "service", "install", "--user", "--now")
    run("ospbridge", "status", "--wait", "40")
    player = container.start("python3", "/opt/play.py", "cart1", "20", user="member", XDG_RUNTIME_DIR=runtime)
    played(player)
    finish(player)
    pid = run("systemctl", "--user", "show", UNIT, "--property=MainPID", "--value")
    container.run("kill", "-KILL", pid)
    until(
        lambda: run("systemctl", "--user", "show", UNIT, "--property=NRestarts", "--value") == "1",
        "a restart",
    )
    run("ospbridge", "status", "--wait", "40")
    assert json.loads(run("ospbridge", "service", "status", "--user", "--json"))["restarts"] == 1
    run("ospbridge", "service", "uninstall", "--user")
    assert free_agents(container, "document") == ["cart1", "cart2"]
    container.run("loginctl", "disable-linger", "member")


def launched(service: Service) -> dict[str, Any]:
    printed = service.container.run("ospbridge", "status", "--json", "--hub", service.hub, code=None).stdout
    found = json.loads(printed)
    return {**found["launched"], "ready": found["ready"]} if found["launched"] else {}


def runs(service: Service, pid: int) -> bool:
    return service.container.run("test", "-d", f"/proc/{pid}", code=None).returncode == 0


def test_the_service_launches_a_simulator_that_survives_being_killed_and_outlives_no_daemon(
    service: Service,
) -> None:
    container = service.container
    launch = '[simulator.launch]\ncommand = "scenario"\npin = 0\n'
    text = f'[[simulator]]\nscenario = "cartpole"\n{launch}'
    container.write("/etc/ospbridge/ospbridge.toml", text)
    # Without the drop-in it runs as anything does, and that is told.
    service.start()
    refused = {line["option"]: line["reason"] for line in service.lines("launch_option_refused")}
    assert refused == {"batch": "Operation not permitted", "pin": "Operation not permitted"}
    container.systemctl("stop", UNIT)
    # With it, it runs at full speed.
    folder = container.run("find", "/opt/ospbridge/lib", "-path", "*/ospbridge/systemd").stdout.strip()
    container.run("install", "-Dm644", f"{folder}/examples/launch.conf", DROP_IN)
    container.systemctl("daemon-reload")
    daemon = service.start()
    first = launched(service)
    assert first["batch"]
    assert first["core"] == 0
    assert container.run("taskset", "-p", str(first["pid"])).stdout.endswith("mask: 1\n")
    assert "SCHED_BATCH" in container.run("chrt", "-p", str(first["pid"])).stdout
    assert first["log"].startswith("/var/lib/ospbridge/launch/")
    assert container.run("cat", first["log"]).stdout
    done = container.run("systemd-analyze", "security", "--threshold=20", "--no-pager", UNIT)
    assert "Overall exposure level" in done.stdout
    player = service.player("cart", 50)
    played(player)
    finish(player)
    container.run("kill", "-KILL", str(first["pid"]))
    until(lambda: (found := launched(service)).get("restarts") == 1 and found["ready"], "another simulator")
    second = launched(service)
    player = service.player("cart", 50)
    played(player)
    finish(player)
    container.run("kill", "-KILL", str(daemon))
    until(lambda: not runs(service, second["pid"]), "the end of a simulator that nobody has any more")
    service.restarted(daemon)
    third = launched(service)
    player = service.player("cart", 50)
    played(player)
    finish(player)
    container.systemctl("stop", UNIT)
    assert not runs(service, third["pid"])


def test_uninstalling_leaves_configuration_and_group(service: Service) -> None:
    container = service.container
    service.configure("document")
    service.start()
    unit = container.root / "etc/systemd/system" / UNIT
    written = unit.read_text()
    unit.write_text(written + "# mine\n")
    assert "somebody has changed" in container.run("ospbridge", "service", "uninstall", code=2).stderr
    unit.write_text(written)
    container.run("ospbridge", "service", "uninstall")
    assert not unit.exists()
    assert free_agents(container, "document") == ["cart1", "cart2"]
    assert (container.root / "etc/ospbridge/ospbridge.toml").exists()
    container.run("getent", "group", "ospbridge")
    container.run("ospbridge", "service", "status", code=69)
