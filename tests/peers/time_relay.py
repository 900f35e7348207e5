"""The wall time of rounds of learning: with the daemon, a simulator behind it, and with Ray's own client.

A program, not a test: ``python -m tests.peers.time_relay --ray-python INTERPRETER``. Both clients take turns, each with
a new server of the same settings. Ray's example has CartPole in its own process; ours plays it over OSP. Prints a JSON
line for each run and one with the medians' ratio, from the end of the first round to that of the last, by steps.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

from tests.peers.processes import ROOT, Place, free_port, running


def timed(place: Place, ours: bool, options: argparse.Namespace, seed: int) -> dict[str, Any]:
    """Milliseconds a step, of one run."""
    port = free_port()
    server = place.server(
        options.ray_python,
        port,
        *("--steps", options.env_steps, "--seed", seed, "--lr", 1e-3, "--minibatch", 125),
    )
    if ours:
        place.driver(place.simulator(), port, "--rllink-env-steps", options.env_steps, "--rllink-seed", seed)
    else:
        place.start(
            "client",
            *(options.ray_python, "-m", "tests.peers.own_client", port),
            environment={"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
            at=place.folder,  # where it leaves files
        )
    place.until("all rounds", lambda: len(server.lines()) > options.rounds, options.within, *place.programs)
    rounds = server.lines()[1 : options.rounds + 1]
    place.programs[-1].end()
    first, last = rounds[0], rounds[-1]
    steps = last["steps"] - first["steps"]
    return {
        "client": "ospbridge" if ours else "Ray's own",
        "seed": seed,
        "steps": steps,
        "seconds": round(last["seconds"] - first["seconds"], 2),
        "ms_per_step": round(1e3 * (last["seconds"] - first["seconds"]) / steps, 3),
        "return_mean": last["return_mean"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ray-python", required=True, help="the interpreter that has Ray")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--env-steps", type=int, default=1000, help="of each round")
    parser.add_argument("--runs", type=int, default=3, help="of each client")
    parser.add_argument("--at-most", type=float, default=float("inf"), help="fail above this ratio")
    parser.add_argument("--within", type=float, default=600.0, help="seconds for one run")
    parser.add_argument("--json", type=Path, metavar="FILE", help="for all figures")
    options = parser.parse_args()
    runs = []
    for seed in range(1, options.runs + 1):
        for ours in (True, False):
            with running() as place:
                runs.append(timed(place, ours, options, seed))
            print(json.dumps(runs[-1]), flush=True)
    medians = [
        statistics.median(run["ms_per_step"] for run in runs if run["client"] == client)
        for client in ("ospbridge", "Ray's own")
    ]
    figures = {"ospbridge": medians[0], "Ray's own": medians[1], "ratio": round(medians[0] / medians[1], 2)}
    print(json.dumps(figures), flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps({**figures, "runs": runs}, indent=1) + "\n")
    if figures["ratio"] > options.at_most:
        sys.exit(f"the ratio is {figures['ratio']}, expected at most {options.at_most}")


if __name__ == "__main__":
    main()
