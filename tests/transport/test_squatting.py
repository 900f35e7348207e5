"""Another user was at a place first where everybody may make directories, and decides what stands in there."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from ospbridge.daemon.hub.listener import HubSocket, _let_in
from ospbridge.errors import ConfigurationError
from ospbridge.interface import Endpoint
from ospbridge.session.hub_exchange import hub_address
from ospbridge.session.lease import Lease, LeaseFile, stale_leases

SERVER = Endpoint("127.0.0.1", 45454)
LEASE = Lease(SERVER.host, SERVER.port, "127.0.0.1", 9, 9, "document", {"agent": 1}, events=False, pid=1)
ANOTHER = os.geteuid() + 1


@pytest.fixture
def everybodys(tmp_path: Path) -> Path:
    """A directory such as /tmp."""
    tmp_path.chmod(0o1777)
    return tmp_path


@pytest.fixture
def give_away(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Make a file look as if another user had made it."""

    def given(path: Path) -> None:
        if os.geteuid() == 0:
            os.chown(path, ANOTHER, ANOTHER, follow_symlinks=False)
        else:
            monkeypatch.setattr(os, "geteuid", lambda: ANOTHER)

    return given


def test_a_daemon_does_not_listen_in_another_users_directory(
    everybodys: Path, give_away: Callable[[Path], None]
) -> None:
    (taken := everybodys / "taken").mkdir()
    give_away(taken)
    with pytest.raises(ConfigurationError, match=f"{taken} belongs to user") as caught:
        HubSocket(taken / "hub.sock")
    assert "XDG_RUNTIME_DIR" in caught.value.hint
    assert not list(taken.iterdir())


def test_a_daemon_does_not_go_on_in_the_directory_that_another_user_made_in_place_of_its_own(
    everybodys: Path, give_away: Callable[[Path], None]
) -> None:
    place = everybodys / "place"
    listener = HubSocket(place / "hub.sock")
    try:
        place.rename(everybodys / "removed")
        place.mkdir()
        give_away(place)
        with pytest.raises(ConfigurationError, match="belongs to user"):
            listener.renew()
        assert not list(place.iterdir())
    finally:
        listener.close()


def test_no_lease_is_written_or_believed_in_another_users_directory(
    everybodys: Path, give_away: Callable[[Path], None]
) -> None:
    leases = everybodys / "taken" / "leases"
    ours = LeaseFile(leases)
    ours.write(LEASE)
    ours.abandon()
    # It is found as long as all of it is ours.
    for file in stale_leases(SERVER, leases):
        file.abandon()
    before = [path.name for path in leases.iterdir()]
    assert before
    give_away(leases.parent)
    another = LeaseFile(leases)
    another.write(msgspec.structs.replace(LEASE, local_port=10))
    assert another.place is None
    assert list(stale_leases(SERVER, leases)) == []
    assert [path.name for path in leases.iterdir()] == before


def test_a_link_in_the_place_of_a_lease_is_not_followed(tmp_path: Path) -> None:
    leases = tmp_path / "ospbridge" / "leases"
    leases.mkdir(parents=True)
    (precious := tmp_path / "precious").write_text("precious")
    (leases / "9-9.lease").symlink_to(precious)
    LeaseFile(leases).write(LEASE)
    assert list(stale_leases(SERVER, leases)) == []
    assert precious.read_text() == "precious"


def test_a_link_in_the_place_of_a_hubs_socket_is_not_followed(tmp_path: Path) -> None:
    (precious := tmp_path / "precious").touch(0o600)
    (link := tmp_path / "hub.sock").symlink_to(precious)
    _let_in(link)
    assert precious.stat().st_mode & 0o777 == 0o600
    with pytest.raises(ConfigurationError, match="no socket stands there"):
        HubSocket(link)


def test_the_directory_above_the_leases_is_made_for_us_alone(everybodys: Path) -> None:
    mask = os.umask(0)
    try:
        ours = LeaseFile(everybodys / "ours" / "leases")
        ours.write(LEASE)
        ours.abandon()
    finally:
        os.umask(mask)
    assert (everybodys / "ours").stat().st_mode & 0o777 == 0o700


def test_an_environment_does_not_look_for_the_hub_in_another_users_directory(
    everybodys: Path, give_away: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    monkeypatch.setattr("tempfile.tempdir", str(everybodys))
    taken = everybodys / f"ospbridge-{os.getuid()}"
    assert hub_address(None, None) == taken / "hub.sock"
    taken.mkdir()
    (taken / "hub.sock").touch()
    give_away(taken)
    with pytest.raises(ConfigurationError, match="whatever listens there is not believed"):
        hub_address(None, None)
    # Whom one names oneself one knows.
    assert hub_address(f"unix:{taken}/hub.sock", None) == taken / "hub.sock"
