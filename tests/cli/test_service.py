"""`ospbridge service`, with a ``systemctl`` that only writes down what it is told."""

from __future__ import annotations

import json
import os
import shlex
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ospbridge.errors import UsageError
from ospbridge.service import installing, scope, systemctl
from tests.cli.programs import invoke

STUB = """\
#!/bin/sh
here={here}
echo "${{0##*/}} $*" >>"$here/told"
case " $* " in *" show "*) cat "$here/shown"; echo ;; esac
if [ -e "$here/fails" ]; then
  case " $* " in *" $(cat "$here/fails") "*) echo "it does not want to" >&2; exit 1 ;; esac
fi
"""


class Manager:
    """What stands for systemd."""

    def __init__(self, here: Path, config_home: Path) -> None:
        self.here = here
        self.units = config_home / "systemd" / "user"
        self.configuration = config_home / "ospbridge"
        self.show(ActiveState="inactive")

    def show(self, **properties: object) -> None:
        (self.here / "shown").write_text("\n".join(f"{name}={value}" for name, value in properties.items()))

    def fail_at(self, word: str) -> None:
        (self.here / "fails").write_text(word)

    def told(self) -> list[str]:
        """The commands since the last look, but for questions."""
        file = self.here / "told"
        lines = file.read_text().splitlines() if file.exists() else []
        file.unlink(missing_ok=True)
        return [line.removeprefix("systemctl --user ") for line in lines if " show " not in line]


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Manager:
    stubs = tmp_path / "bin"
    stubs.mkdir()
    for name in ("systemctl", "systemd-sysusers"):
        (stubs / name).write_text(STUB.format(here=shlex.quote(str(tmp_path))))
        (stubs / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(stubs), prepend=":")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config home"))
    monkeypatch.setattr(systemctl, "BOOTED", tmp_path)
    return Manager(tmp_path, tmp_path / "config home")


run = partial(invoke, "service")


def test_a_users_service_runs_this_program_and_is_started_at_boot(manager: Manager) -> None:
    result = run("install", "--user")
    assert manager.told() == ["daemon-reload", "enable ospbridge.service"]
    unit = (manager.units / "ospbridge.service").read_text()
    (start,) = [line for line in unit.splitlines() if line.startswith("ExecStart=")]
    words = start.removeprefix("ExecStart=").split(" connect ")
    assert Path(words[0].split()[0]).is_absolute()
    assert words[1] == f'--config "{manager.configuration}/ospbridge.toml"'
    assert "[[simulator]]" in (manager.configuration / "ospbridge.toml").read_text()
    assert "start ospbridge.service" in result.stderr


def test_a_unit_that_somebody_has_changed_is_touched_by_force_only(manager: Manager) -> None:
    run("install", "--user")
    unit = manager.units / "ospbridge.service"
    unit.write_text(unit.read_text() + "# mine\n")
    manager.told()
    for command in ("install", "uninstall"):
        told = run(command, "--user", exit_code=2).stderr
        assert f"somebody has changed {unit}" in told
        assert "--force" in told
    assert manager.told() == []
    assert "# mine" in unit.read_text()
    run("install", "--user", "--force")
    assert "# mine" not in unit.read_text()


def test_what_would_be_done_is_only_printed(manager: Manager) -> None:
    printed = run("install", "--user", "--now", "--dry-run").stdout
    assert f"write   {manager.units}/ospbridge.service" in printed
    assert "    Type=notify" in printed
    assert "run     systemctl --user restart ospbridge.service" in printed
    assert manager.told() == []
    assert not manager.units.exists()


def test_an_instance_has_a_configuration_of_its_own(manager: Manager) -> None:
    run("install", "--user", "--instance", "left")
    assert manager.told() == ["daemon-reload", "enable ospbridge@left.service"]
    assert (manager.configuration / "left.toml").is_file()
    unit = (manager.units / "ospbridge@.service").read_text()
    assert (
        f'--config "{manager.configuration}"/%i.toml\n' in unit or f"{manager.configuration}/%i.toml" in unit
    )


def test_an_instances_other_configuration_is_a_drop_in(manager: Manager, tmp_path: Path) -> None:
    config = tmp_path / "100% mine.toml"
    config.write_text("")
    run("install", "--user", "--instance", "left", "--config", str(config))
    drop_in = manager.units / "ospbridge@left.service.d" / "configuration.conf"
    assert drop_in.read_text().splitlines()[-1].endswith(f' --config "{tmp_path}/100%% mine.toml"')
    assert not manager.configuration.exists()
    (manager.units / "default.target.wants").mkdir()
    (manager.units / "default.target.wants" / "ospbridge@right.service").write_text("")
    run("uninstall", "--user", "--instance", "left")
    assert not drop_in.parent.exists()
    assert (manager.units / "ospbridge@.service").exists()


def test_uninstalling_stops_it_and_leaves_the_configuration(manager: Manager) -> None:
    run("install", "--user")
    manager.told()
    manager.fail_at("reset-failed")
    assert f"{manager.configuration}/ospbridge.toml stays" in run("uninstall", "--user").stderr
    assert manager.told() == [
        "disable --now ospbridge.service",
        "daemon-reload",
        "reset-failed ospbridge.service",
    ]
    assert not (manager.units / "ospbridge.service").exists()
    assert "is not installed" in run("uninstall", "--user").stderr
    assert manager.told() == []


def test_a_service_that_does_not_start_is_told_with_where_to_look(manager: Manager) -> None:
    manager.fail_at("restart")
    told = run("install", "--user", "--now", exit_code=69).stderr
    assert "ospbridge.service does not start: " in told
    assert "it does not want to" in told
    assert "journalctl --user --unit ospbridge.service" in told


@pytest.mark.parametrize("place", ["/home/me/venv/bin/python", "/root/.pyenv/bin/python", "/tmp/venv"])
def test_a_program_that_the_system_service_could_not_see_is_refused(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installing, "needed_places", lambda: [Path(place)])
    told = run("install", "--dry-run", exit_code=2).stderr
    assert f"{place} lies in " in told
    assert "/opt/ospbridge" in told
    assert "--user" in told


def test_only_root_may_make_a_service_of_the_system(
    manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installing, "needed_places", list)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "only root may" in run("install", exit_code=2).stderr
    assert "only root may" in run("uninstall", exit_code=2).stderr
    assert manager.told() == []


@pytest.mark.parametrize("command", ["install", "uninstall", "status"])
def test_where_there_is_no_systemd_the_way_without_is_told(
    command: str, manager: Manager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(systemctl, "BOOTED", tmp_path / "nothing")
    told = run(command, "--user", exit_code=69).stderr
    assert "systemd is not the service manager here" in told
    assert "ospbridge connect" in told


def test_what_is_not_there_is_told(manager: Manager, tmp_path: Path) -> None:
    for name in ("no.toml", "x" * 300):
        told = run("install", "--user", "--config", str(tmp_path / name), exit_code=78).stderr
        assert "is not there" in told
    manager.show(LoadState="not-found", ActiveState="inactive", Result="success")
    assert "is not installed" in run("status", "--user", exit_code=69).stderr


RUNS: dict[str, Any] = {
    "LoadState": "loaded",
    "ActiveState": "active",
    "SubState": "running",
    "UnitFileState": "enabled",
    "Result": "success",
    "StateChangeTimestamp": "Sat 2026-11-21 22:00:00 UTC",
    "MainPID": 123,
    "StatusText": "joined = all is well",
    "NRestarts": 2,
    "WatchdogUSec": "30s",
    "WatchdogTimestamp": "Sat 2026-11-21 22:01:00 UTC",
    "ExecMainCode": 0,
    "ExecMainStatus": 0,
    "ExecMainExitTimestamp": "",
}
FAILED = RUNS | {
    "ActiveState": "failed",
    "SubState": "failed",
    "Result": "exit-code",
    "MainPID": 0,
    "ExecMainCode": 1,
    "ExecMainStatus": 78,
    "ExecMainExitTimestamp": "Sat 2026-11-21 22:02:00 UTC",
}


def test_a_service_that_runs_is_shown_in_a_few_lines(manager: Manager) -> None:
    manager.show(**RUNS)
    assert run("status", "--user").stdout.splitlines() == [
        "unit      ospbridge.service: active (running)",
        "since     Sat 2026-11-21 22:00:00 UTC",
        "at boot   enabled",
        "says      joined = all is well",
        "process   123",
        "restarts  2 by itself",
        "watchdog  30s, last heard Sat 2026-11-21 22:01:00 UTC",
    ]
    found = json.loads(run("status", "--user", "--json").stdout)
    assert (found["state"], found["pid"], found["restarts"], found["exit_code"]) == ("active", 123, 2, None)


def test_a_service_that_failed_is_an_exit_code_with_its_reason(manager: Manager) -> None:
    manager.show(**FAILED)
    result = run("status", "--user", exit_code=69)
    assert "last exit exit code 78, Sat 2026-11-21 22:02:00 UTC" in result.stdout
    assert "ospbridge.service does not run: it is failed (exit-code)" in result.stderr
    manager.show(**FAILED | {"ExecMainCode": 3, "ExecMainStatus": 6, "Result": "watchdog"})
    assert json.loads(run("status", "--user", "--json", exit_code=69).stdout)["signal"] == 6


def test_to_install_again_without_the_configuration_is_refused_and_forced(
    manager: Manager, tmp_path: Path
) -> None:
    config = tmp_path / '100% "mine".toml'
    config.write_text("")
    words = ["install", "--user"]
    run(*words, "--config", str(config))
    manager.told()
    usual = manager.configuration / "ospbridge.toml"
    told = run(*words, exit_code=2).stderr
    assert f"reads {config} so far, and would read {usual}" in told
    assert f"--config '{config}', or --force" in told
    assert manager.told() == []
    assert "write" not in run(*words, "--config", str(config)).output
    run(*words, "--force")
    written = "".join(each.read_text() for each in manager.units.rglob("*") if each.is_file())
    assert "mine" not in written
    assert usual.is_file()
    run(*words)


@pytest.mark.parametrize("instance, other", [(None, "ospbridge@left.service"), ("left", "ospbridge.service")])
def test_one_daemon_for_all_is_not_installed_beside_one_for_some(
    manager: Manager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, instance: str | None, other: str
) -> None:
    monkeypatch.setattr(scope.Scope, "units", tmp_path / "units")
    wanted = installing.Installation(scope.Scope(user=False), instance, program=("ospbridge",))
    monkeypatch.setattr(installing, "run", lambda *_: "")
    wanted.check_alone()
    link = tmp_path / "units" / "multi-user.target.wants" / other
    link.parent.mkdir(parents=True)
    link.write_text("")
    (link.parent / wanted.unit).write_text("")
    with pytest.raises(
        UsageError, match=f"{other} is started at boot, and {wanted.unit} would end"
    ) as caught:
        wanted.check_alone()
    assert f"systemctl disable --now {other}" in caught.value.hint
    assert ("uninstall --instance left`" in caught.value.hint) is (instance is None)
    monkeypatch.setattr(installing, "run", lambda *_: f"{other} loaded active running\n")
    with pytest.raises(UsageError, match=f"{other} runs, and {wanted.unit} would end"):
        wanted.check_alone()


def test_a_system_service_makes_its_group_before_its_configuration(
    manager: Manager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installing, "needed_places", list)
    monkeypatch.setattr(scope.Scope, "hidden", ())
    for place in ("units", "sysusers", "configuration"):
        monkeypatch.setattr(scope.Scope, place, tmp_path / place)
    lines = run("install", "--dry-run").stdout.splitlines()
    assert [line for line in lines if line and not line.startswith(" ")] == [
        f"write   {tmp_path}/units/ospbridge.service",
        f"write   {tmp_path}/sysusers",
        f"run     systemd-sysusers {tmp_path}/sysusers",
        f"write   {tmp_path}/configuration/ospbridge.toml",
        "run     systemctl daemon-reload",
        "run     systemctl enable ospbridge.service",
    ]
