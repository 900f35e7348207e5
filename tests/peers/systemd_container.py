"""A small Debian in a container of its own, with systemd as its first process and this project installed.

The container has its own network, of a loopback interface only: nothing in it meets what runs on the host. It is made
with what the host has: the mirror that its apt uses, the index that its pip uses.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

__all__ = ["PROGRAM", "Container", "Impossible", "booted", "until"]

ROOT: Final = Path(__file__).parents[2]
SUITE: Final = "bookworm"
PYTHON: Final = "3.11"
"""Of that Debian."""
PACKAGES: Final = "systemd,systemd-sysv,dbus,libpam-systemd,procps,python3,python3-venv"
PROGRAM: Final = "/opt/ospbridge/bin/ospbridge"
PATH: Final = "/opt/ospbridge/bin:/usr/sbin:/usr/bin:/sbin:/bin"
GLIBC: Final = ("2_36", "2_34", "2_31", "2_28", "2_27", "2_17", "2_12", "2_5")
"""Versions that wheels for that Debian are built for."""
MAKE_WITHIN: Final = 900.0
PLENTY: Final = 6_000_000
"""Kilobytes of memory."""
BOOT_WITHIN: Final = 60.0
LOOK: Final = 0.05


class Impossible(Exception):
    """Such a container cannot be had on this host; the message says why."""


def run_on_host(*words: object, within: float = MAKE_WITHIN, **variables: str) -> str:
    """Its output. Raises AssertionError with all that it said where it fails."""
    done = subprocess.run(
        [str(word) for word in words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=within,
        check=False,
        env={**os.environ, **variables},
    )
    assert done.returncode == 0, f"{words}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


def until(holds: Callable[[], Any], what: str, *, within: float = 30.0) -> Any:
    """What ``holds`` returns, once it is true. Raises AssertionError when time is up."""
    give_up = time.monotonic() + within
    while not (found := holds()):
        assert time.monotonic() < give_up, f"did not come within {within:g} s: {what}"
        time.sleep(LOOK)
    return found


def check_possible() -> None:
    """Raises Impossible."""
    if os.geteuid() != 0:
        raise Impossible("only root can boot a container")
    missing = [name for name in ("debootstrap", "systemd-nspawn", "nsenter") if shutil.which(name) is None]
    if missing:
        raise Impossible(f"needs {', '.join(missing)}: apt-get install debootstrap systemd-container")
    allowed = subprocess.run(
        ["unshare", "--mount", "--pid", "--net", "--uts", "--ipc", "--fork", "true"],
        capture_output=True,
        check=False,
    )
    if allowed.returncode != 0:
        raise Impossible(f"this host allows no containers: {allowed.stderr.decode().strip()}")


def mirror() -> str:
    """Where apt gets that Debian from here. Raises Impossible."""
    wanted = "$(CODENAME) $(COMPONENT) $(ARCHITECTURE) $(SITE)"
    printed = run_on_host("apt-get", "indextargets", "--format", wanted, "Created-By: Packages")
    for line in printed.splitlines():
        suite, component, _, site = line.split(" ", 3)
        if (suite, component) == (SUITE, "main"):
            return site
    raise Impossible(f"apt has no mirror of Debian {SUITE} here")


def make_debian(root: Path) -> None:
    """The smallest that boots, with a Python."""
    run_on_host("debootstrap", "--variant=minbase", f"--include={PACKAGES}", SUITE, root, mirror())


def install_project(root: Path) -> None:
    """Wheels are fetched by the host, since the container has no network."""
    with tempfile.TemporaryDirectory(dir=root) as folder:
        pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
        run_on_host(*pip, "wheel", "--no-deps", "--wheel-dir", folder, ROOT)
        (wheel,) = Path(folder).glob("ospbridge-*.whl")
        machine = platform.machine()
        tags = [f"manylinux_{glibc}_{machine}" for glibc in GLIBC] + [f"manylinux2014_{machine}"]
        platforms = [word for tag in tags for word in ("--platform", tag)]
        run_on_host(
            *(*pip, "download", "--only-binary", ":all:", "--python-version", PYTHON),
            *("--implementation", "cp", *platforms, "--dest", folder, f"{wheel}[onnx]"),
        )
        inside = ("chroot", root, "env", "-i", f"PATH={PATH}", "HOME=/root")
        run_on_host(*inside, "/usr/bin/python3", "-m", "venv", "/opt/ospbridge")
        at = f"/{Path(folder).name}"
        run_on_host(
            *(*inside, "/opt/ospbridge/bin/pip", "install", "--quiet", "--no-index"),
            *("--find-links", at, f"{at}/{wheel.name}[onnx]"),
        )


class Container:
    """One that runs: its root directory, and its first process as the host knows it."""

    def __init__(self, root: Path, leader: int) -> None:
        self.root = root
        self.leader = leader

    def command(self, *words: object, user: str = "root", **variables: str) -> list[str]:
        """The words that run it in there. There is no login, so that nothing is needed of the host's systemd."""
        home = "/root" if user == "root" else f"/home/{user}"
        told = {"PATH": PATH, "HOME": home, "LANG": "C.UTF-8", "NO_COLOR": "1", **variables}
        become = [] if user == "root" else ["runuser", "-u", user, "--"]
        environment = ["env", "-i", *(f"{name}={value}" for name, value in told.items())]
        return ["nsenter", "-t", str(self.leader), "-a", *environment, *become, *map(str, words)]

    def run(
        self, *words: object, user: str = "root", code: int | None = 0, within: float = 60.0, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run it to its end, which must have that exit code, or any where that is None."""
        done = subprocess.run(
            self.command(*words, user=user, **variables),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=within,
            check=False,
        )
        assert code is None or done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
        return done

    def start(self, *words: object, user: str = "root", **variables: str) -> subprocess.Popen[str]:
        """Run it with pipes to it."""
        return subprocess.Popen(
            self.command(*words, user=user, **variables),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def systemctl(self, *words: str, code: int | None = 0) -> str:
        return self.run("systemctl", *words, code=code).stdout.strip()

    def shown(self, unit: str, name: str) -> str:
        """One of a unit's, as ``systemctl show`` prints it."""
        return self.systemctl("show", unit, "--property", name, "--value")

    def write(self, path: str, text: str) -> None:
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def unit(self, name: str, text: str) -> None:
        self.write(f"/etc/systemd/system/{name}", text)
        self.systemctl("daemon-reload")

    def remove(self, path: str) -> None:
        shutil.rmtree(self.root / path.lstrip("/"), ignore_errors=True)

    def journal(self, *which: str) -> list[dict[str, Any]]:
        """Entries of its journal, oldest first."""
        self.run("journalctl", "--sync")
        printed = self.run("journalctl", "--no-pager", "--output=json", *which).stdout
        return [json.loads(line) for line in printed.splitlines()]


@contextmanager
def booted() -> Iterator[Container]:
    """A container that has come up. Raises Impossible where there cannot be one.

    SYSTEMD_ROOT may name a folder that keeps the plain Debian, which takes the longest to make, for the next time.
    """
    check_possible()
    kept = os.environ.get("SYSTEMD_ROOT")
    with tempfile.TemporaryDirectory(prefix="ospb-root-") as folder, _in_memory(folder):
        root = Path(folder) / "root"
        if kept:
            if not (Path(kept) / "usr/lib/systemd/systemd").exists():
                make_debian(Path(kept))
            run_on_host("cp", "--archive", "--reflink=auto", kept, root)
        else:
            make_debian(root)
        install_project(root)
        with _running(root, Path(folder) / "console") as leader:
            container = Container(root, leader)
            until(lambda: container.run("true", code=None).returncode == 0, "a first command")
            until(
                lambda: container.systemctl("is-system-running", code=None) in ("running", "degraded"),
                "the end of the boot",
                within=BOOT_WITHIN,
            )
            yield container


@contextmanager
def _in_memory(folder: str) -> Iterator[None]:
    """Where there is plenty, what is in it need not be written to a disk: that takes longer than all else."""
    (line,) = [
        each for each in Path("/proc/meminfo").read_text().splitlines() if each.startswith("MemAvailable:")
    ]
    if int(line.split()[1]) < PLENTY:
        yield
        return
    run_on_host("mount", "-t", "tmpfs", "-o", "size=2G,mode=0755", "ospbridge-tests", folder)
    try:
        yield
    finally:
        # Lazily: the container's own mounts in it may take a moment to go.
        run_on_host("umount", "--lazy", folder)


@contextmanager
def _running(root: Path, console: Path) -> Iterator[int]:
    """The first process of the container, which is ended behind."""
    variables = dict(os.environ)
    if not Path("/sys/fs/cgroup/cgroup.controllers").exists():
        # The host has control groups of version 1, so its containers must.
        variables["SYSTEMD_NSPAWN_UNIFIED_HIERARCHY"] = "0"
    with console.open("wb") as output:
        program = subprocess.Popen(
            [
                *("systemd-nspawn", "--boot", "--quiet", "--register=no", "--keep-unit", "--private-network"),
                *("--link-journal=no", "--resolv-conf=off", "--console=pipe", f"--directory={root}"),
            ],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=variables,
            start_new_session=True,
        )
    leader = None
    try:
        leader = until(lambda: _leader(program, console), "the container's first process")
        yield leader
    finally:
        # With its first process all of a container ends at once.
        with suppress(ProcessLookupError):
            os.kill(leader or program.pid, signal.SIGKILL)
        try:
            program.wait(30)
        finally:
            program.kill()


def _leader(program: subprocess.Popen[bytes], console: Path) -> int | None:
    """The one child that has become systemd; until then nobody can enter."""
    assert program.poll() is None, console.read_text(errors="replace")
    children = Path(f"/proc/{program.pid}/task/{program.pid}/children").read_text().split()
    for child in children:
        try:
            if Path(f"/proc/{child}/comm").read_text().strip() == "systemd":
                return int(child)
        except (FileNotFoundError, ProcessLookupError):
            continue
    return None
