"""A real RLlib learns from what the daemon's driver plays: a simulator, ``ospbridge connect``, and Ray's own server.

A program, not a test: ``python -m tests.peers.train_relay --ray-python INTERPRETER``, where that interpreter has Ray
2.60.0 or 2.47.1 with what ``serve_rllib.py`` needs, and this one ospbridge. Prints a JSON line for each round and one
of figures. It fails unless

- each round was decided by the weights of its number, which grows by one from round to round,
- the server's own weights give the outputs that came with each batch, and each of its env runners samples each batch
  once, by itself, and before it has other weights,
- no batch is discarded,
- the mean return of the last three rounds is at least three times that of the first one,
- the daemon ends with 0 on SIGTERM, and nothing is left of any process.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from tests.peers.processes import (
    FORCED_CART,
    HERE,
    Failed,
    Place,
    Program,
    drives,
    free_port,
    json_lines,
    running,
)

ALIKE: Final = 1e-4
"""What the outputs of two implementations of one network may differ by."""
LAST: Final = 3
LATEST: Final = 20
TOLD: Final = "told"


def train(place: Place, options: argparse.Namespace) -> dict[str, Any]:
    """Run it all; the figures."""
    port, continuous = free_port(), options.task == "continuous"
    began = time.monotonic()
    server = place.server(
        options.ray_python,
        port,
        *("--steps", options.env_steps, "--seed", options.seed, "--lr", 1e-3, "--minibatch", 125),
        *("--continuous", int(continuous), "--runners", options.runners, "--told", place.folder / TOLD),
    )
    ports = range(port + 1, port + 1 + options.runners) if options.runners else [port]
    started = time.monotonic()
    daemons = [
        place.driver(
            place.simulator(*FORCED_CART) if continuous else place.simulator(),
            number,
            *("--no-spin", "--rllink-env-steps", options.env_steps // len(ports)),
            *("--rllink-seed", options.seed + at),
            scenario=HERE / "continuous_cart.toml" if continuous else "cartpole",
        )
        for at, number in enumerate(ports)
    ]
    rounds = follow(place, server, daemons, options)
    seconds = time.monotonic() - started
    for daemon in daemons:
        daemon.send(signal.SIGTERM)
    statuses = [daemon.ended() for daemon in daemons]
    place.expect(not any(statuses), f"the daemons ended with {statuses} on SIGTERM")
    return {
        "ray": server.lines()[0]["ray"],
        "task": options.task,
        "runners": options.runners,
        "seed": options.seed,
        "rounds": len(rounds),
        "steps": rounds[-1]["steps"],
        "seconds": round(seconds, 1),
        "seconds_in_all": round(time.monotonic() - began, 1),
        **judged(place, daemons, rounds),
        "curve": rounds,
    }


def follow(
    place: Place, server: Program, daemons: list[Program], options: argparse.Namespace
) -> list[dict[str, Any]]:
    """Wait for the rounds, and print each; what was played and learned in it."""
    rounds: list[dict[str, Any]] = []
    give_up = time.monotonic() + options.within
    latest: list[float] = []
    best = float("-inf")
    while len(rounds) < options.rounds and best < options.stop_at:
        number = len(rounds)

        def ended(number: int = number) -> dict[str, Any] | None:
            """What the server says of it, once the daemons have ended an episode of the next: all is logged then."""
            if all(any(line["weights_seq_no"] > number for line in drives(daemon)) for daemon in daemons):
                return next((line for line in server.lines() if line.get("iteration") == number + 1), None)
            return None

        line = place.until(f"round {number + 1}", ended, give_up - time.monotonic(), *place.programs)
        returns = [
            line["reward"]
            for daemon in daemons
            for line in drives(daemon)
            if line["weights_seq_no"] == number
        ]
        place.expect(returns, f"no episode was decided by the weights number {number}")
        latest = [*latest, *returns][-LATEST:]
        if len(latest) == LATEST:
            best = max(best, statistics.fmean(latest))
        rounds.append(
            {
                "round": number + 1,
                "weights_seq_no": number,
                "learned_seq_no": line["weights_seq_no"],
                "steps": line["steps"],
                "episodes": len(returns),
                "return_mean": round(statistics.fmean(returns), 2),
                "latest_20": round(statistics.fmean(latest), 2),
                "seconds": line["seconds"],
            }
        )
        print(json.dumps(rounds[-1]), flush=True)
    return rounds


def judged(place: Place, daemons: list[Program], rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """The figures that say whether it is right. Raises Failed."""
    for daemon in daemons:
        played = [line["weights_seq_no"] for line in drives(daemon)]
        place.expect(
            played[0] == 0 and all(after - before in (0, 1) for before, after in pairwise(played)),
            f"the weights of the episodes of {daemon.name} are not numbered one by one: {played}",
        )
        place.expect(not daemon.log("a batch is discarded"), f"batches of {daemon.name} were discarded")
    numbers = [line["learned_seq_no"] for line in rounds]
    place.expect(numbers == list(range(1, len(rounds) + 1)), f"the server's weights are numbered {numbers}")
    told = json_lines(place.folder / TOLD)
    runners = sorted({line["runner"] for line in told if "came" in line})
    place.expect(len(runners) == len(daemons), f"only the env runners {runners} were sent something")
    apart = max(
        batches(place, [line for line in told if line["runner"] == at], len(rounds)) for at in runners
    )
    first = rounds[0]["return_mean"]
    last = statistics.fmean(line["return_mean"] for line in rounds[-LAST:])
    best = max(line["latest_20"] for line in rounds)
    return {
        "first": first,
        "last": round(last, 1),
        "times": round(last / first, 1),
        "best_20": best,
        "apart": apart,
    }


def batches(place: Place, told: list[dict[str, Any]], rounds: int) -> float:
    """How far the batches of an env runner are from its own weights, at most. Raises Failed for one out of turn."""
    came = [line for line in told if "came" in line][:rounds]
    sampled = [line for line in told if "sampled" in line][:rounds]
    numbers = [line["weights_seq_no"] for line in came]
    place.expect(numbers == list(range(rounds)), f"batches came for the weights {numbers}")
    # Old weights, or two batches in one, would show here.
    place.expect(
        [(line["weights_seq_no"], line["sampled"]) for line in sampled]
        == [(line["weights_seq_no"], line["came"]) for line in came],
        f"batches came as {came}, and were sampled as {sampled}",
    )
    apart = max(line["apart"] for line in came)
    place.expect(apart <= ALIKE, f"a batch was decided by other weights than the server's: {apart} apart")
    return float(apart)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ray-python", required=True, help="the interpreter that has Ray")
    parser.add_argument("--task", choices=["cartpole", "continuous"], default="cartpole")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument(
        "--env-steps", type=int, default=1000, help="of each round, of all env runners together"
    )
    parser.add_argument(
        "--runners", type=int, default=0, help="RLlib's env runners: as many simulators and daemons"
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[1], help="of runs, one after the other")
    parser.add_argument("--enough", type=int, help="so many of the seeds must learn well (default: all)")
    parser.add_argument("--times", type=float, default=3.0, help="how much the mean return must grow")
    parser.add_argument(
        "--at-least", type=float, default=0.0, help=f"the best mean return of {LATEST} episodes"
    )
    parser.add_argument(
        "--stop-at", type=float, default=float("inf"), help="such a return that ends it early"
    )
    parser.add_argument("--within", type=float, default=600.0, help="seconds for all rounds")
    parser.add_argument(
        "--json", metavar="FILE", help="for the figures and the learning curve; {} in it becomes the seed"
    )
    options = parser.parse_args()
    failures = [failure for seed in options.seeds if (failure := failure_of(seed, options))]
    for failure in failures:
        print(failure, file=sys.stderr)
    enough = len(options.seeds) if options.enough is None else options.enough
    sys.exit(len(options.seeds) - len(failures) < enough)


def failure_of(seed: int, options: argparse.Namespace) -> str:
    """Runs it with that seed, prints the figures, and says what is wrong with them: nothing, if it learned well."""
    options.seed = seed
    try:
        with running() as place:
            figures = train(place, options)
    except Failed as failed:
        return f"seed {seed}: {failed}"
    if options.json is not None:
        Path(options.json.format(seed)).write_text(json.dumps(figures, indent=1) + "\n")
    shown = {name: value for name, value in figures.items() if name != "curve"}
    print(json.dumps({"seed": seed} | shown), flush=True)
    if figures["times"] < options.times:
        return (
            f"seed {seed}: a mean return of {figures['first']} became {figures['last']}, expected "
            f"{options.times:g} times as much"
        )
    if figures["best_20"] < options.at_least:
        return f"seed {seed}: the best mean return is {figures['best_20']}, expected {options.at_least:g} or more"
    return ""


if __name__ == "__main__":
    main()
