"""Two processes, an agent each, stepping one simulator directly through its barrier."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ospbridge.osp.profile import DOCUMENT, NERD, Profile
from ospbridge.session.blocking import BlockingSession
from ospbridge.simulator.ledger import Ledger
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator

STEPS = 1000

PLAYER = """
import sys
import gymnasium, numpy as np, ospbridge
address, agent, steps = sys.argv[1], sys.argv[2], int(sys.argv[3])
env = gymnasium.make("ospbridge/Agent-v0", simulator=address, agent=agent, reset_timeout=20.0, step_timeout=20.0)
print("registered", flush=True)
sys.stdin.readline()
env.reset(seed=1)
for number in range(steps):
    value = np.float32(number / 1024 if agent == "agent1" else -number / 1024)
    observation, reward, terminated, truncated, info = env.step(np.full(1, value, np.float32))
    assert not truncated, info["reason"]
print("played", flush=True)
sys.stdin.readline()
env.close()
"""


@pytest.mark.loopback
@pytest.mark.parametrize("profile", [DOCUMENT, NERD], ids=lambda p: p.name)
def test_every_step_runs_once_with_the_inputs_of_both(profile: Profile, tmp_path: Path) -> None:
    ledger_path = tmp_path / "ledger.jsonl"
    with (
        Ledger(ledger_path) as ledger,
        UdpSimulator(SyntheticWorld(1, 1, agents=2), port=0, profile=profile, ledger=ledger) as simulator,
    ):
        players = [
            subprocess.Popen(
                [sys.executable, "-c", PLAYER, str(simulator.address), agent, str(STEPS)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for agent in ("agent1", "agent2")
        ]
        try:
            for said in ("registered", "played"):
                for player in players:
                    assert player.stdout is not None
                    assert player.stdout.readline().strip() == said
                for player in players:
                    assert player.stdin is not None
                    player.stdin.write("go on\n")
                    player.stdin.flush()
            assert [player.wait(20) for player in players] == [0, 0]
        finally:
            for player in players:
                player.kill()
                player.communicate()
        with BlockingSession.connect(simulator.address, reclaim_stale=False) as session:
            assert all(entry.available for entry in session.agents())
    records = [json.loads(line) for line in ledger_path.read_text().splitlines()]
    assert [record["kind"] for record in records] == ["reset"] + ["step"] * (STEPS + 1)
    for number, record in enumerate(records[2:]):
        agents = record["agents"]
        assert agents["agent1"]["inputs"] == [number / 1024]
        assert agents["agent2"]["inputs"] == [-number / 1024]
        assert [len(agents[name]["votes"]) for name in agents] == [1, 1]
