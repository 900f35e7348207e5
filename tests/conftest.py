"""What every test relies on: settled hypothesis profiles, and an environment that is not the user's."""

from __future__ import annotations

import gc
import os
import random
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final
from zlib import crc32

import pytest
import structlog
from hypothesis import settings

from ospbridge.osp.profile import Profile

# Also modules that tests share check by `assert`, and some act in it: with the tests' own, these run also under `-O`.
pytest.register_assert_rewrite(*(f"tests.{path.stem}" for path in Path(__file__).parent.iterdir()))

# The gate must not turn red by luck, so it tries the same examples every time. Whoever hunts for new ones says
# `pytest --hypothesis-profile=explore`. The second Python that runs them learns little from all of them.
settings.register_profile("settled", derandomize=True, deadline=None)
settings.register_profile("brief", derandomize=True, deadline=None, max_examples=25)
settings.register_profile("explore", max_examples=5000, deadline=None, print_blob=True)
settings.load_profile("settled")


LONGEST_DIRECTORY: Final = 24
"""Bytes of the directory for temporary files. Of the 107 that the path of a Unix socket may hold, pytest's own
directories leave some 25 to the names below them."""


def pytest_configure() -> None:
    """Where temporary files go to a longer path, tests put theirs below /tmp, if they may."""
    needed = len(os.fsencode(tempfile.gettempdir())) > LONGEST_DIRECTORY
    if needed and "PYTEST_DEBUG_TEMPROOT" not in os.environ and os.access("/tmp", os.W_OK | os.X_OK):
        os.environ["PYTEST_DEBUG_TEMPROOT"] = "/tmp"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--whole", action="store_true", help="run all cases of the walks, not only a sample of each"
    )
    parser.addoption(
        "--sample-seed", type=int, default=1, metavar="N", help="draw other samples of the walks (default: 1)"
    )


def pytest_runtest_teardown() -> None:
    """Python does not see who refers to what a daemon in this process froze, and hypothesis warns of its objects."""
    gc.unfreeze()


def pytest_xdist_auto_num_workers() -> int:
    """More than there are cores, since half of what tests do is to wait for others."""
    return min(2 * len(os.sched_getaffinity(0)), 16)


def pytest_report_header(config: pytest.Config) -> str:
    if config.getoption("--whole"):
        return "walks: all cases"
    return f"walks: a sample of each, --sample-seed={config.getoption('--sample-seed')}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of the cases of a test marked `sampled(n)`, n are left, drawn by the seed and by nothing else."""
    if config.getoption("--whole"):
        return
    seed = config.getoption("--sample-seed")
    walks: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("sampled"):
            walks.setdefault(item.nodeid.partition("[")[0], []).append(item)
    left_out: set[pytest.Item] = set()
    for cases in walks.values():
        marker = cases[0].get_closest_marker("sampled")
        assert marker is not None
        cases.sort(key=lambda item: crc32(f"{seed} {item.nodeid}".encode()))
        left_out.update(cases[marker.args[0] :])
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=list(left_out))


@pytest.fixture
def sample(request: pytest.FixtureRequest) -> Callable[[Iterable[Any], int], list[Any]]:
    """`sample(cases, n)`: n of the cases, in their order, drawn by `--sample-seed`; all of them with `--whole`."""

    def drawn(cases: Iterable[Any], n: int) -> list[Any]:
        everything = list(cases)
        if request.config.getoption("--whole") or len(everything) <= n:
            return everything
        draw = random.Random(f"{request.config.getoption('--sample-seed')} {request.node.nodeid}")
        return [everything[at] for at in sorted(draw.sample(range(len(everything)), n))]

    return drawn


@pytest.fixture(scope="session", autouse=True)
def clean_environment() -> Iterator[Path]:
    """No setting of the user's reaches a test, nor a subprocess of it; fixtures of any scope see this.

    The directory's path is short, because the path of a Unix socket may hold 107 bytes only and pytest's own
    `tmp_path` can be longer than that.
    """
    with (
        tempfile.TemporaryDirectory(
            prefix="ospb-", dir=os.environ.get("PYTEST_DEBUG_TEMPROOT"), ignore_cleanup_errors=True
        ) as directory,
        pytest.MonkeyPatch.context() as patch,
    ):
        for name in list(os.environ):
            if name.startswith("OSPBRIDGE_"):
                patch.delenv(name)
        for name in ("RUNTIME_DIRECTORY", "STATE_DIRECTORY"):
            patch.delenv(name, raising=False)
        patch.setenv("XDG_RUNTIME_DIR", directory)
        patch.setenv("XDG_STATE_HOME", directory)
        yield Path(directory)


@pytest.fixture(scope="session", autouse=True)
def invalid_names() -> Iterator[None]:
    """No name server is asked for what nobody may have, as it may not be reached, or know better."""
    look_up = socket.getaddrinfo

    def looked_up(host: Any, *given: Any, **kind: Any) -> Any:
        name = host.decode("ascii", "replace") if isinstance(host, bytes) else host or ""
        if name.endswith(".invalid"):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return look_up(host, *given, **kind)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket, "getaddrinfo", looked_up)
        yield


@pytest.fixture(scope="session", autouse=True)
def interruptible() -> None:
    """A test run that a script started in the background ignores SIGINT, and so would all programs it starts."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def runtime_directory(
    request: pytest.FixtureRequest, clean_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """A runtime directory for this test alone: its leases, hubs and spools never meet another's.

    Where there are no sockets, nothing is left behind that could still write, and one directory serves all: removing
    ten thousand takes longer than many of the tests.
    """
    alone = request.node.get_closest_marker("loopback") is not None
    directory = (
        Path(tempfile.mkdtemp(dir=clean_environment, prefix="")) if alone else clean_environment / "quiet"
    )
    directory.mkdir(mode=0o700, exist_ok=True)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(directory))
    monkeypatch.setenv("XDG_STATE_HOME", str(directory))
    yield directory
    if not (alone or (directory.is_dir() and not any(directory.iterdir()))):
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(params=["document", "nerd"])
def profile(request: pytest.FixtureRequest) -> Profile:
    """Each way in which servers speak OSP."""
    from ospbridge.osp.profile import PROFILES

    return PROFILES[request.param]


@pytest.fixture(autouse=True)
def nothing_lost() -> Iterator[None]:
    """Agents that one test lost do not explain why another one's are taken: its simulator may get the same port."""
    yield
    lease = sys.modules.get("ospbridge.session.lease")
    if lease is not None:
        lease._losses.clear()


@pytest.fixture(autouse=True)
def unconfigured_logs() -> Iterator[None]:
    """A command that ran in this process set a level of logs, which would hide from the next test what it captures."""
    structlog.reset_defaults()
    yield
    structlog.reset_defaults()


@pytest.fixture
def datasets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where Minari keeps its datasets in this test."""
    pytest.importorskip("minari", reason="needs the extra: pip install 'ospbridge[minari]'")
    pytest.importorskip("h5py", reason="needs the extra: pip install 'ospbridge[minari]'")
    path = tmp_path / "datasets"
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(path))
    return path
