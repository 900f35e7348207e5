"""The units that come along: systemd takes them, and they differ only where they must."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from ospbridge import errors
from ospbridge.daemon.service import LEAVE_WITHIN
from ospbridge.errors import ConfigurationError
from ospbridge.service.installing import Installation, shipped_text
from ospbridge.service.placing import PlacedFile
from ospbridge.service.scope import Scope

UNITS = ["ospbridge.service", "ospbridge@.service", "user/ospbridge.service", "user/ospbridge@.service"]
ANALYZE = shutil.which("systemd-analyze")
needs_systemd = pytest.mark.skipif(ANALYZE is None, reason="systemd-analyze is not here")


def settings(name: str) -> list[str]:
    """Its lines without comments."""
    return [line for line in shipped_text(name).splitlines() if line and not line.startswith("#")]


def values(name: str, setting: str) -> list[str]:
    return [line.partition("=")[2] for line in settings(name) if line.startswith(f"{setting}=")]


def analyze(*words: str, **environment: str) -> str:
    assert ANALYZE is not None
    done = subprocess.run(
        [ANALYZE, *words],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env={**os.environ, "SYSTEMD_LOG_LEVEL": "warning", **environment},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize("folder", ["", "user/"], ids=["system", "user"])
def test_an_instance_differs_by_its_name_alone(folder: str) -> None:
    single, template = (settings(f"{folder}ospbridge{at}.service") for at in ("", "@"))
    alike = [
        line for line in template if line not in ("Conflicts=ospbridge.service", "After=ospbridge.service")
    ]
    alike = [
        line.replace("ospbridge/%i.toml", "ospbridge/ospbridge.toml").replace("/%i", "").replace("-%i", "")
        for line in alike
    ]
    assert [line.removesuffix(", %i") for line in alike] == single


@pytest.mark.parametrize("name", UNITS)
def test_what_a_user_must_mend_is_not_tried_again_and_all_else_is(name: str) -> None:
    kinds = [each for each in vars(errors).values() if isinstance(each, type)]
    codes = {each.exit_code for each in kinds if issubclass(each, errors.OspBridgeError)}
    (prevented,) = values(name, "RestartPreventExitStatus")
    assert {int(code) for code in prevented.split()} == {
        errors.UsageError.exit_code,
        errors.ConfigurationError.exit_code,
    }
    assert {int(code) for code in prevented.split()} < codes
    assert values(name, "Restart") == ["on-failure"]


@pytest.mark.parametrize("name", UNITS)
def test_a_stop_waits_longer_than_the_daemon_takes_and_spares_who_reads_weights(name: str) -> None:
    (seconds,) = values(name, "TimeoutStopSec")
    assert LEAVE_WITHIN < float(seconds.removesuffix("s")) <= 5
    assert values(name, "KillMode") == ["process"]


def test_systemd_does_not_hide_the_hub_of_a_dynamic_user() -> None:
    for name in UNITS[:2]:
        assert values(name, "RuntimeDirectoryPreserve") == []
        (bound,), (state,) = values(name, "BindPaths"), values(name, "StateDirectory")
        assert bound.partition(":")[0] == f"%S/{state.split()[1]}"


@needs_systemd
@pytest.mark.parametrize("instance", [None, "left"])
@pytest.mark.parametrize("user", [False, True], ids=["system", "user"])
def test_systemd_finds_nothing_wrong_and_the_service_of_the_system_is_exposed_to_little(
    tmp_path: Path, user: bool, instance: str | None
) -> None:
    # As it would be installed, with a program that is there.
    unit = Installation(Scope(user, tmp_path), instance, program=("/bin/true",)).files()[0]
    path = tmp_path / unit.path.name.replace("@.", "@left.")
    path.write_text(unit.content)
    if not user:
        told = analyze("security", "--offline=true", "--threshold=15", "--no-pager", str(path))
        assert "Overall exposure level" in told
        (drop_ins := tmp_path / f"{path.name}.d").mkdir()
        for example in ("ip-filter.conf", "launch.conf"):
            (drop_ins / example).write_text(shipped_text(f"examples/{example}"))
    environment = {"XDG_RUNTIME_DIR": str(tmp_path), "HOME": str(tmp_path)} if user else {}
    words = ("verify", "--man=no", "--recursive-errors=no", *["--user"] * user, str(path))
    assert str(path) not in analyze(*words, **environment)


@pytest.mark.parametrize("character", ["\n", "\r", "\x1b", "\x7f"])
def test_a_path_with_a_line_break_is_refused_which_would_be_a_setting_of_its_own(
    tmp_path: Path, character: str
) -> None:
    config = tmp_path / f"a{character}ExecStartPre=b.toml"
    config.write_text("")
    for installation in (
        Installation(Scope(user=True), None, config),
        Installation(Scope(user=True), "left", config),
        Installation(Scope(user=True), program=(str(config),)),
    ):
        with pytest.raises(errors.UsageError, match="has a line break"):
            installation.install_steps(now=False, force=True)


# --- files that are placed once, replaced by newer ones, and not where somebody has changed them --------------------


def test_directories_that_are_made_can_be_entered_whatever_the_umask(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir(mode=0o700)
    before = os.umask(0o077)
    try:
        PlacedFile(tmp_path / "there" / "one" / "two" / "a", "", directories=0o755).write()
        PlacedFile(tmp_path / "mine" / "a", "").write()
    finally:
        os.umask(before)
    modes = {
        name: (tmp_path / name).stat().st_mode & 0o777
        for name in ("there", "there/one", "there/one/two", "mine")
    }
    assert modes == {"there": 0o700, "there/one": 0o755, "there/one/two": 0o755, "mine": 0o700}


def test_a_place_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="cannot be written: File exists"):
        PlacedFile(tmp_path / "file" / "a.service", "").write()
    (tmp_path / "a.service").mkdir()
    with pytest.raises(ConfigurationError, match="cannot be read: Is a directory"):
        PlacedFile(tmp_path / "a.service", "").standing()
    assert [each.name for each in tmp_path.iterdir() if each.name.startswith(".")] == []
