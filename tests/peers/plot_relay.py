"""A picture of learning curves: ``python -m tests.peers.plot_relay PICTURE.svg PREFIX``; needs matplotlib.

The curves are in the files PREFIX*.json, as ``train_relay`` writes them with ``--json``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt


def main() -> None:
    picture, prefix = map(Path, sys.argv[1:])
    files = sorted(prefix.parent.glob(f"{prefix.name}*.json"))
    figure, axes = plt.subplots(figsize=(6, 3.2))
    curves = [json.loads(file.read_text()) for file in files]
    for found in curves:
        steps = [line["steps"] for line in found["curve"]]
        returns = [line["latest_20"] for line in found["curve"]]
        axes.plot(steps, returns, label=f"Ray {found['ray']}, seed {found['seed']}")
    axes.set_xlabel("steps of the simulator")
    axes.set_ylabel("mean return, latest 20 episodes")
    axes.set_title(f"RLlib's PPO through the relay ({curves[0]['task']})")
    axes.legend()
    axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(picture)


if __name__ == "__main__":
    main()
