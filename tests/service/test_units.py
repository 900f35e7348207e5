"""The units that come along: systemd takes them, and they differ only where they must."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from ospbridge import errors
from ospbridge.daemon.service import LEAVE_WITHIN
from ospbridge.service.installing import Installation
from ospbridge.service.scope import GROUP, Scope
from ospbridge.service.shipped import shipped_text

if TYPE_CHECKING:
    from pathlib import Path

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


def test_a_users_service_has_what_a_system_service_has_but_for_its_walls() -> None:
    system, user = settings("ospbridge.service"), settings("user/ospbridge.service")
    assert set(user) - set(system) == {
        "RuntimeDirectoryMode=0700",
        "RuntimeDirectoryPreserve=yes",
        "UMask=0077",
        "WantedBy=default.target",
    }


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


def test_the_dynamic_user_has_another_name_than_the_group() -> None:
    # systemd refuses a dynamic user where there is a group of its name, and no user.
    for name in UNITS[:2]:
        (user,), (group,) = values(name, "User"), values(name, "Group")
        assert group == GROUP != user
    assert re.findall(r"^g (\w+) -$", shipped_text("sysusers.d/ospbridge.conf"), re.MULTILINE) == [GROUP]


def test_systemd_does_not_hide_the_hub_of_a_dynamic_user() -> None:
    for name in UNITS[:2]:
        assert values(name, "RuntimeDirectoryPreserve") == []
        (bound,), (state,) = values(name, "BindPaths"), values(name, "StateDirectory")
        assert bound.partition(":")[0] == f"%S/{state.split()[1]}"


def placed(tmp_path: Path, *, user: bool, instance: str | None) -> str:
    """The unit as it would be installed, with a program that is there."""
    wanted = Installation(Scope(user, tmp_path), instance, program=("/bin/true",))
    unit = wanted.files()[0]
    path = tmp_path / unit.path.name.replace("@.", "@left.")
    path.write_text(unit.content)
    return str(path)


@needs_systemd
@pytest.mark.parametrize("instance", [None, "left"])
@pytest.mark.parametrize("user", [False, True], ids=["system", "user"])
def test_systemd_finds_nothing_wrong(tmp_path: Path, user: bool, instance: str | None) -> None:
    path = placed(tmp_path, user=user, instance=instance)
    environment = {"XDG_RUNTIME_DIR": str(tmp_path), "HOME": str(tmp_path)} if user else {}
    told = analyze("verify", "--man=no", "--recursive-errors=no", *["--user"] * user, path, **environment)
    assert path not in told


@needs_systemd
@pytest.mark.parametrize("instance", [None, "left"])
def test_a_system_service_is_exposed_to_little(tmp_path: Path, instance: str | None) -> None:
    path = placed(tmp_path, user=False, instance=instance)
    assert "Overall exposure level" in analyze(
        "security", "--offline=true", "--threshold=15", "--no-pager", path
    )


@needs_systemd
def test_the_drop_in_that_filters_addresses_is_one(tmp_path: Path) -> None:
    path = placed(tmp_path, user=False, instance=None)
    folder = tmp_path / "ospbridge.service.d"
    folder.mkdir()
    (folder / "ip-filter.conf").write_text(shipped_text("examples/ip-filter.conf"))
    assert "ospbridge" not in analyze("verify", "--man=no", "--recursive-errors=no", path)


def test_a_name_that_is_not_utf_8_is_refused_since_no_unit_can_have_it(tmp_path: Path) -> None:
    config = tmp_path / os.fsdecode(b"\xff.toml")
    config.write_text("")
    with pytest.raises(errors.UsageError, match="is not UTF-8"):
        Installation(Scope(user=True), None, config).install_steps(now=False, force=True)


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
