"""The programs of pages that train, as they stand there, though some learn for a shorter time.

    python -m tests.peers.run_pages first_policy stable_baselines3 train_on_nerd      # with stable-baselines3
    python -m tests.peers.run_pages several_simulators rllink --python INTERPRETER    # of Ray 2.49 or later
    python -m tests.peers.run_pages policy_client                                     # with what the page lists

Simulators, servers and hubs are at free ports and in a folder of their own. What is learned must be as good as the page
says, or much better than untrained.
"""

from __future__ import annotations

import argparse
import re
import socket
import sys
import time
import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any

from ospbridge.session.hub_client import HubClient
from tests.docs.pages import page, programs, run
from tests.peers.processes import OSPBRIDGE, Place, drives, free_port, running

ITERATIONS = 4
"""Of a server that is killed, or ends by itself."""


def changed(program: str, instead: dict[str, Any]) -> str:
    """With other texts in the places of those that must be in it."""
    for old, new in instead.items():
        if old not in program:
            sys.exit(f"a page's program does not say {old}:\n{program}")
        program = program.replace(old, str(new))
    return program


def numbers(output: Path) -> list[float]:
    """The mean returns, each on a line of its own."""
    return [float(line) for line in output.read_text().splitlines() if re.fullmatch(r"\d+\.\d+", line)]


def first_policy(place: Place, python: str) -> str:
    """The tutorial's policy has the return that it says."""
    program = programs(page("tutorial/first-policy"))["first policy"]
    told = place.run(
        "tutorial", python, "-c", changed(program, {"127.0.0.1:45454": place.simulator()}), within=600
    )
    mean = re.search(r"mean return (\d+)", told)
    place.expect(mean is not None and int(mean[1]) >= 475, "expected a mean return of 475 or more")
    return told


def stable_baselines3(place: Place, python: str) -> str:
    """All of them run, without a warning; in this process, since torch takes long to be imported."""
    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("error", UserWarning)
    text = page("how-to/stable-baselines3")
    for name in ("one", "two"):
        # Daemons have simulators of their own, since they keep the agents.
        text = changed(text, {f"unix:/tmp/{name}.sock": place.hub(place.simulator("cartpole"))})
    worlds = {"_45454": "cartpole", "_45455": "cartpole", "_45456": "arena_two"}
    addresses = {port: place.simulator(world) for port, world in worlds.items()}
    shown = programs(text)
    place.expect(len(shown) == 5, f"the page has {', '.join(shown)}")
    for name, program in shown.items():
        run(changed(program, {"learn(60_000": "learn(2_048"}), name, **addresses)
    return ", ".join(shown)


def train_on_nerd(place: Place, python: str) -> str:
    """Its programs learn and drive, on the stand-in."""
    shown = programs(page("how-to/train-on-nerd"))
    stand_in = {'["NerdSim", "-env", "world.xml", "-p", "{port}"]': "True"}
    train = changed(shown["train.py"], stand_in | {"learn(60_000)": "learn(20_000)"})
    told = place.run("train", python, "-c", train, within=900, at=place.folder)
    means = [float(found) for found in re.findall(r"ep_rew_mean +\| +([-\d.e+]+)", told)]
    place.expect(means[-1] > means[0] + 50.0, f"expected returns to rise: {means}")
    drive = changed(shown["drive.py"], stand_in)
    driven = place.run("drive", python, "-c", drive, within=900, at=place.folder)
    place.expect(re.fullmatch(r"return -?[\d.]+\n", driven), f"expected a return: {driven}")
    return f"mean return of episodes while it learned: {means[0]:.1f} to {means[-1]:.1f}; {driven.strip()}"


def several_simulators(place: Place, python: str) -> str:
    """Two simulators, one daemon, two env runners of one RLlib, which learns from both."""
    text, port = page("how-to/several-simulators"), free_port()
    found = re.search(r"<!-- configuration: several.toml -->\n```toml\n(.*?)```", text, re.DOTALL)
    assert found is not None
    file = place.folder / "several.toml"
    addresses = {f"127.0.0.1:{number}": place.simulator() for number in (45454, 45455)}
    ports = {f":555{at}": f":{port + at - 5}" for at in (6, 7)}
    file.write_text(changed(found[1], addresses | ports | {"unix:/tmp/": f"unix:{place.folder}/"}))
    daemon = place.start("daemon", *OSPBRIDGE, "connect", "--config", file)
    learner = place.start("rllib", python, "-c", changed(programs(text)["rllib"], {"5555": port}))
    learner.ended(480.0)
    returns, told = numbers(learner.out), []
    for name in ("left", "right"):
        client = HubClient.connect(f"unix:{place.folder}/{name}.sock")
        status = client.status()
        client.close()
        told.append(f"{name}: {status.steps} steps, {status.upstreams[0].batches} batches")
        place.expect(status.steps >= 4000, f"expected thousands of steps of {told[-1]}")
    place.expect(learner.process.returncode == 0 and daemon.end() == 0, "a program failed")
    # Untrained policies have about 20.
    place.expect(returns and returns[-1] >= 60.0, f"expected a mean return of 60: {returns}")
    return f"{', '.join(told)}; mean returns {returns}"


def rllink(place: Place, python: str) -> str:
    """A server that saves what it learned is killed, and started again: it goes on from there, the daemon plays on.

    What the second server learns from must have been decided by the weights that the first one saved, or by newer ones.
    """
    port, text = free_port(), page("how-to/rllink")
    first = re.search(r"```python\n(import gymnasium.*?)^algorithm = ", text, re.DOTALL | re.MULTILINE)
    assert first is not None
    (place.folder / "learn.py").write_text(changed(first[1], {"5555": port}) + programs(text)["checkpoint"])
    daemon = place.driver(place.simulator(), port, "--rllink-env-steps", 1000)

    def killed_after_some_rounds() -> tuple[list[float], list[int]]:
        """Returns that the server printed, and the weights of all episodes until then."""
        server = place.start("rllib", python, "-u", "learn.py", at=place.folder)
        place.until("rounds", lambda: len(numbers(server.out)) > ITERATIONS, 240, server, daemon)
        server.sweep()
        return numbers(server.out), [line["weights_seq_no"] for line in drives(daemon)]

    before, acted = killed_after_some_rounds()
    behind, weights = killed_after_some_rounds()
    # Where the second server takes over, the number falls: to 0 until it restores its checkpoint, or to that one's.
    since = weights[len(acted) - 1 :]
    falls = [at for at, (last, number) in enumerate(pairwise(since), 1) if number < last]
    restored = [number for number in since[falls[0] if falls else 1 :] if number]
    place.expect(
        len(falls) <= 1 and restored and restored[0] >= ITERATIONS - 1,
        f"expected weights that fall once at most, to 0 or to number {ITERATIONS - 1} or newer; got {since}",
    )
    told = f"mean returns {before} and then {behind}, weights of the episodes {acted} and then {since}"
    place.expect(behind[0] >= 2.0 * before[0], f"it learned from what untrained weights decided: {told}")
    return told


def policy_client(place: Place, python: str) -> str:
    """A server learns from a client, in both modes, until it ends by itself."""
    shown, told = programs(page("how-to/policy-client")), []
    for mode in ("local", "remote"):
        port = free_port()
        places = {"127.0.0.1:45454": place.simulator("cartpole"), "9900": port}
        (place.folder / "client.py").write_text(changed(shown["client"], places))
        (place.folder / "server.py").write_text(changed(shown["server"], {"9900": port}))
        server = place.start("rllib", python, "server.py", ITERATIONS, at=place.folder)

        def listens(at: int = port) -> bool:
            with socket.socket() as sock:
                return sock.connect_ex(("127.0.0.1", at)) == 0

        place.until("the server listens", listens, 180, server)
        client = place.start("client", python, "client.py", mode, at=place.folder)
        server.ended(600.0)
        place.expect(server.process.returncode == 0 and client.process.poll() in (None, 1), f"{mode}: failed")
        client.sweep()
        lines = [line.split() for line in server.out.read_text().splitlines()]
        steps, returns = [int(line[1]) for line in lines], [float(line[2]) for line in lines]
        place.expect(
            len(lines) == ITERATIONS and steps == sorted(set(steps)) and min(returns) >= 1.0,
            f"{mode}: steps {steps} and returns {returns}",
        )
        told.append(f"{mode}: {steps[-1]} steps, mean returns {returns}")
    return "; ".join(told)


PAGES = (first_policy, stable_baselines3, train_on_nerd, several_simulators, rllink, policy_client)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pages", nargs="+", choices=[page.__name__ for page in PAGES])
    parser.add_argument("--python", default=sys.executable, help="that has RLlib, where this one has not")
    options = parser.parse_args()
    for each in PAGES:
        if each.__name__ in options.pages:
            began = time.monotonic()
            with running() as place:
                told = each(place, options.python)
            print(f"{each.__name__}: {told.strip()} ({time.monotonic() - began:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
