"""Ctrl-C in a step, wherever it comes: the step after it tells so, or is the next one of what the caller has seen."""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final, NoReturn, Self

import numpy as np
import pytest

import ospbridge
from ospbridge.envs import sharing
from ospbridge.errors import HubLost, LocalProtocolError
from ospbridge.osp.profile import Profile
from ospbridge.session.blocking import BlockingSession
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.envs.daemons import hosted
from tests.envs.kinds import only, parallel, single, step, vector

pytestmark = pytest.mark.loopback

PARTS: Final = 100
"""Into so many equal ones the lines of a step are divided. In each that is tried, one is drawn."""
TRIED: Final = 12
TOLD: Final = -1
"""In place of a step's number: its caller was told that this one is in doubt."""
TIMES: Final = 3
"""So often a line is counted: how often a loop looks whether something has come says nothing."""
PACKAGE: Final = str(Path(ospbridge.__file__).parent)


class AtLine:
    """Within it, KeyboardInterrupt is raised before line ``number`` that this thread runs of the package; 0: never.

    Each line is counted ``TIMES`` times at most.
    """

    def __init__(self, number: int) -> None:
        self._number = number
        self.lines = 0
        """That were run."""
        self._counted: Counter[tuple[str, int]] = Counter()
        self._before: Any = None

    def __enter__(self) -> Self:
        self._before = sys.gettrace()
        sys.settrace(self._look)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)

    def _look(self, frame: FrameType, event: str, _: object) -> Any:
        code = frame.f_code
        if not code.co_filename.startswith(PACKAGE):
            return None
        line = (code.co_filename, frame.f_lineno)
        if event == "line" and self._counted[line] < TIMES:
            self._counted[line] += 1
            self.lines += 1
            if self.lines == self._number:
                if _in_finalizer(frame):
                    # Python would not pass it on.
                    self._number += 1
                    return self._look
                sys.settrace(None)
                raise KeyboardInterrupt
        return self._look


def _in_finalizer(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_name == "__del__":
            return True
        frame = frame.f_back
    return False


@contextmanager
def playing(kind: str, profile: Profile, hub: Path) -> Iterator[Any]:
    with ExitStack() as stack:

        def simulator(agents: int = 1) -> str:
            world = SyntheticWorld(1, 2, 1, agents=agents)
            return str(stack.enter_context(UdpSimulator(world, port=0, profile=profile)).address)

        def daemon(agents: int) -> str:
            stack.enter_context(hosted(simulator(agents), hub))
            return f"unix:{hub}"

        makers: dict[str, Callable[[], Any]] = {
            "environment": lambda: single(simulator()),
            "parallel": lambda: parallel(simulator(2), agents="*"),
            "vector": lambda: vector(simulator(2), num_envs=2, agents="*"),
            "fleet": lambda: vector([simulator(), simulator()], num_envs=2),
            "hub": lambda: single(bridge=daemon(1)),
            "hub-vector": lambda: vector(bridge=daemon(2), num_envs=2, agents="*"),
        }
        yield stack.enter_context(closing(makers[kind]()))


def numbers(env: Any) -> list[int]:
    """Steps: which number the step has in each world since its reset, as the world says for inputs of 0 and seed 1."""
    doubt = LocalProtocolError if hasattr(env, "possible_agents") else HubLost
    try:
        seen, _, _, cut, _ = step(env)
    except doubt:
        return [TOLD]
    if isinstance(seen, dict):
        seen, cut = list(seen.values()), list(cut.values())
    found = np.rint(np.atleast_2d(seen)[:, 0] * 1024 - 1).astype(int)
    return [
        TOLD if ended else number for ended, number in zip(np.atleast_1d(cut), found.tolist(), strict=True)
    ]


# What an interrupted step leaves may look so, and is told.
@pytest.mark.filterwarnings("ignore:.*this network repeats or delays datagrams:UserWarning")
@pytest.mark.sampled(4)
@pytest.mark.parametrize("kind", ["environment", "parallel", "vector", "fleet", "hub", "hub-vector"])
@pytest.mark.parametrize("disturbed", [False, True])
def test_no_step_goes_on_silently_behind_one_that_was_interrupted(
    kind: str, disturbed: bool, profile: Profile, runtime_directory: Path, sample: Callable[..., list[int]]
) -> None:
    drawn = random.Random(f"{kind} {disturbed} {profile.name}")
    with playing(kind, profile, runtime_directory / "hub") as env:

        def interrupted(line: int) -> int:
            """The third step since a reset; how many lines it has."""
            env.reset(seed=[1] * env.num_envs if hasattr(env, "num_envs") else 1)
            step(env)
            if disturbed:
                for shared in sharing._shared.values():
                    shared.session.machine.notices.anomaly("of this test")
            with AtLine(line) as place:
                step(env)
            return place.lines

        lines = interrupted(0)
        tried = 0
        parts = sample(range(PARTS), TRIED)
        for part in parts:
            line = part * lines // PARTS + 1 + drawn.randrange(max(lines // PARTS, 1))
            try:
                interrupted(line)
            except KeyboardInterrupt:
                tried += 1
            else:
                # Steps are not all equally long.
                continue
            after = numbers(env)
            assert all(number in (TOLD, 3) for number in after), (line, after)
        assert tried > len(parts) // 2


# --- while agents are joined again ----------------------------------------------------------------------------------


def interrupted(*_: object, **__: object) -> NoReturn:
    raise KeyboardInterrupt


def lose_all() -> None:
    for shared in sharing._shared.values():
        shared.give_up("something went wrong")


@pytest.mark.parametrize("made", [vector, parallel])
def test_where_it_comes_before_events_and_values_are_asked_for_the_next_reset_asks(
    made: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It watches a variable, and an event ends its episodes.
    scenario = tmp_path / "marked.toml"
    scenario.write_text(
        'name = "marked"\n[[agent]]\n[agent.observe]\nvalues = ["/Synthetic/Value/00001"]\n'
        '[agent.episode]\nterminated_on = ["/Synthetic/Mark"]\n'
    )
    with UdpSimulator(SyntheticWorld(2, 3, values=2), port=0) as simulator:
        env = made(str(simulator.address), scenario=str(scenario))
        env.reset(seed=1)
        lose_all()
        with monkeypatch.context() as patch:
            patch.setattr(BlockingSession, "subscribe", interrupted)
            with pytest.raises(KeyboardInterrupt):
                env.reset(seed=2)
        env.reset(seed=3)
        assert [bool(only(step(env)[2])) for _ in range(9)] == [False] * 8 + [True]
        env.close()
