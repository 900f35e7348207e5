"""A step whose caller did not wait for its end, as a cancelled task does: the next one tells so, wherever that was."""

from __future__ import annotations

from itertools import count
from typing import Any

import numpy as np
import pytest

from ospbridge.errors import StepUncertain
from ospbridge.osp.profile import DOCUMENT, NERD, Profile
from ospbridge.simulator.synthetic import SyntheticWorld
from tests.osp.pair import Pair

INPUTS = {"agent": np.array([0.25], np.float32)}


@pytest.mark.parametrize("profile", [DOCUMENT, NERD], ids=lambda p: p.name)
@pytest.mark.parametrize("disturbed", [False, True], ids=["quiet", "disturbed"])
def test_the_next_step_is_in_doubt_wherever_one_was_interrupted(profile: Profile, *, disturbed: bool) -> None:
    for datagrams in count():
        pair = Pair(SyntheticWorld(1, 2), profile)
        client = pair.client(profile).connect()
        talk: Any = client.conversation
        client.do(talk.register(["agent"]))
        client.do(talk.reset(3))
        for _ in range(2):
            client.do(talk.step(INPUTS))
        if disturbed:
            talk.machine.anomaly("of this test")
        until = len(pair.sent) + datagrams
        client.begin(talk.step(INPUTS))
        while len(pair.sent) < until and not client.finished:
            pair.advance(until=pair.now + 1.0)
        if client.finished:
            break
        talk.machine.interrupt(KeyboardInterrupt())
        pair.settle()
        with pytest.raises(StepUncertain) as told:
            client.do(talk.step(INPUTS))
        assert told.value.interrupted
    # With what is asked on a network that disturbs: whether the step ran, and with these inputs.
    assert datagrams > (6 if disturbed else 2)
