"""Pickles are read, not executed: real settings of later releases, and bytes of an enemy."""

from __future__ import annotations

import contextlib
import os
import pickle
import tracemalloc
from collections import OrderedDict
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from ospbridge.errors import RemoteProtocolError
from ospbridge.interface import BoxSpace, DiscreteSpace
from ospbridge.rllink.pickled import MOST_OPCODES, Record, read_pickle
from ospbridge.rllink.pickled_config import FoundConfig, FoundModel, OtherSpace, config_in

PROTOCOLS = pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))


class AlgorithmConfig:
    """Like RLlib's: attributes, some of which nobody here knows, and one in a slot."""

    __slots__ = ("__dict__", "slotted")

    def __init__(self, **attributes: Any) -> None:
        self.slotted = 1
        self.algo_class = dict
        self.nothing = None
        self.__dict__.update(attributes)


SETTINGS: dict[str, Any] = {
    "train_batch_size": 4000,
    "_train_batch_size_per_learner": 2000,
    "num_learners": 2,
    "num_env_runners": 3,
    "num_envs_per_env_runner": 1,
    "rollout_fragment_length": "auto",
    "batch_mode": "complete_episodes",
}


# --- settings ------------------------------------------------------------------------------------------------------


@PROTOCOLS
@pytest.mark.parametrize("as_object", [True, False])
def test_settings_are_found_in_an_object_and_in_a_dict(protocol: int, as_object: bool) -> None:
    given = AlgorithmConfig(**SETTINGS) if as_object else SETTINGS
    found = config_in(pickle.dumps(given, protocol))
    assert found.total_train_batch_size == 4000
    assert found.env_steps_per_sample == 1334
    assert found.rollout_fragment_length is None
    assert found.batch_mode == "complete_episodes"
    assert found.model == FoundModel()


@pytest.mark.parametrize(
    "settings, steps",
    [
        ({"train_batch_size": 500}, 500),
        ({"train_batch_size": 500, "num_env_runners": 0}, 500),
        ({"train_batch_size": 500, "num_env_runners": 2}, 250),
        ({"train_batch_size": 500, "_train_batch_size_per_learner": 300, "num_learners": 0}, 300),
        ({"train_batch_size": 500, "rollout_fragment_length": 64}, 500),
        ({"train_batch_size": 4000, "rollout_fragment_length": 200, "num_env_runners": 2}, 2000),
        ({"train_batch_size": 500, "rollout_fragment_length": 600}, 600),
        ({"rollout_fragment_length": 64, "num_envs_per_env_runner": 2}, 128),
        ({"rollout_fragment_length": "auto"}, None),
        ({}, None),
    ],
)
def test_a_batch_is_a_runners_share_of_an_update_and_a_fragment_at_least(
    settings: dict[str, Any], steps: int | None
) -> None:
    assert config_in(pickle.dumps(settings)).env_steps_per_sample == steps


@pytest.mark.parametrize(
    "count",
    [4000.0, np.int64(4000), np.int16(4000), np.uint32(4000), np.float64(4000), np.float32(4000)],
    ids=repr,
)
def test_a_count_may_be_of_any_kind_that_is_whole(count: Any) -> None:
    """``1e4``, or what came out of a computation by numpy."""
    found = config_in(pickle.dumps({"train_batch_size": 3, "train_batch_size_per_learner": count}))
    assert (found.env_steps_per_sample, found.unread) == (4000, frozenset())


@pytest.mark.parametrize(
    "name",
    [
        *("train_batch_size", "train_batch_size_per_learner", "num_learners", "num_env_runners"),
        *("num_envs_per_env_runner", "rollout_fragment_length"),
    ],
)
def test_no_batch_is_made_of_a_count_that_is_not_understood(name: str) -> None:
    settings: dict[str, Any] = {"train_batch_size": 4000, "num_env_runners": 2}
    counts: list[Any] = [-1, 10**10, 10**70, 0.5, float("nan"), True, "two", "", [], np.float32(0.5)]
    for count in counts:
        found = config_in(pickle.dumps(settings | {name: count}))
        assert (found.env_steps_per_sample, found.unread) == (None, frozenset([name]))
    # Nobody says it, so nothing else is meant.
    assert config_in(pickle.dumps(settings | {name: None})).unread == frozenset()


class Spec:
    """Like RLlib's specifications of modules."""

    def __init__(self, model_config: Any = None, rl_module_specs: Any = None) -> None:
        self.model_config = model_config
        self.rl_module_specs = rl_module_specs


RELU = {"fcnet_activation": "relu"}


@pytest.mark.parametrize(
    "spec",
    [
        Spec(RELU),
        Spec(rl_module_specs={"default_policy": Spec(RELU), "other": Spec({"fcnet_activation": "elu"})}),
        Spec(rl_module_specs={"mine": Spec(RELU)}),
    ],
)
def test_what_a_module_is_specified_with_counts_before_the_settings(spec: Spec) -> None:
    settings = {"fcnet_activation": "silu", "head_fcnet_activation": "gelu", "free_log_std": True}
    found = config_in(pickle.dumps({"_model_config": settings, "_rl_module_spec": spec})).model
    assert (found.fcnet_activation, found.head_fcnet_activation) == ("relu", "gelu")
    assert found.free_log_std


@pytest.mark.parametrize(
    "settings, defaults",
    [
        ({"_model_config": {}, "_rl_module_spec": None}, True),
        ({"_model_config": {"fcnet_hiddens": [8]}, "_rl_module_spec": None}, True),
        ({"_model_config": {}, "_rl_module_spec": Spec()}, False),
        ({"_model_config": {}}, False),
        ({"_model_config": 7, "_rl_module_spec": None}, False),
        ({"_rl_module_spec": None}, False),
    ],
)
def test_a_network_that_nobody_specified_is_one_of_rllibs_defaults(
    settings: dict[str, Any], defaults: bool
) -> None:
    assert config_in(pickle.dumps(settings)).defaults is defaults


def pickled_name(module: str, name: str) -> bytes:
    """A pickle of ``{"_model_config": {"fcnet_activation": NAME}}``, of a class that need not be there."""
    return f"\x80\x02}}X\r\0\0\0_model_config}}X\x10\0\0\0fcnet_activationc{module}\n{name}\nss.".encode(
        "latin-1"
    )


@pytest.mark.parametrize(
    "module, name, found",
    [
        ("torch.nn.modules.activation", "ReLU", "ReLU"),
        ("torch.nn.functional", "silu", "silu"),
        ("mine.layers", "ReLU", "mine.layers.ReLU"),
    ],
)
def test_an_activation_that_is_given_as_a_class_is_found_by_its_name(
    module: str, name: str, found: str
) -> None:
    assert config_in(pickled_name(module, name)).model.fcnet_activation == found


@pytest.mark.parametrize(
    "said, found",
    [(None, "linear"), ("Tanh", "Tanh"), ("", None), (3, "(an object)"), (Spec(), "(an object)")],
)
def test_an_activation_that_is_none_is_linear_and_one_without_a_name_is_no_other(
    said: Any, found: str | None
) -> None:
    model = {"fcnet_activation": said, "head_fcnet_activation": said}
    settings = config_in(pickle.dumps({"_model_config": model})).model
    assert (settings.fcnet_activation, settings.head_fcnet_activation) == (found, found)


def named(value: Any) -> bytes:
    """Opcodes of dicts, of nothing, and of classes by their whole name, which need not be there."""
    if isinstance(value, dict):
        items = (b"X" + len(key).to_bytes(4, "little") + key.encode() + named(value[key]) for key in value)
        return b"}(" + b"".join(items) + b"u"
    if value is None:
        return b"N"
    module, _, name = value.rpartition(".")
    return f"c{module}\n{name}\n".encode()


def settings(said: dict[str, Any], *, of: str = "") -> FoundConfig:
    """What is found in a dict, or in an object of that class."""
    return config_in(named(said) + b"." if not of else named(of) + b")\x81" + named(said) + b"b.")


PPO = "ray.rllib.algorithms.ppo.ppo.PPOConfig"
PPO_MODULE = "ray.rllib.algorithms.ppo.torch.default_ppo_torch_rl_module.DefaultPPOTorchRLModule"
PPO_CATALOG = "ray.rllib.algorithms.ppo.ppo_catalog.PPOCatalog"


@pytest.mark.parametrize(
    "of, spec, module, unfamiliar",
    [
        (PPO, None, PPO, ""),
        (PPO, {"module_class": None, "catalog_class": None}, PPO, ""),
        (PPO, {"module_class": PPO_MODULE, "catalog_class": PPO_CATALOG}, PPO_MODULE, ""),
        ("", {"module_class": PPO_MODULE}, PPO_MODULE, ""),
        ("", None, None, ""),
        (PPO, {"module_class": "mine.Module"}, "mine.Module", "its module is mine.Module"),
        (PPO, {"rl_module_specs": {"p": {"module_class": "mine.M"}}}, "mine.M", "its module is mine.M"),
        (PPO, {"catalog_class": "mine.C"}, "mine.C", "its network is made by mine.C"),
        (PPO, {"module_class": PPO_MODULE, "catalog_class": "mine.C"}, PPO_MODULE, "is made by mine.C"),
        ("mine.MyConfig", None, "mine.MyConfig", "its module is chosen by mine.MyConfig"),
        ("ray.rllib.algorithms.sac.sac.SACConfig", None, None, "chosen by ray.rllib.algorithms.sac"),
    ],
)
def test_the_class_of_the_module_is_found_and_whether_its_forward_pass_is_known(
    of: str, spec: dict[str, Any] | None, module: str | None, unfamiliar: str
) -> None:
    found = settings({"_rl_module_spec": spec}, of=of)
    assert module is None or found.module == module
    assert unfamiliar in found.unfamiliar
    assert bool(found.unfamiliar) == bool(unfamiliar)


def test_connectors_are_found_by_the_names_of_what_makes_them() -> None:
    ours = {"_env_to_module_connector": None, "_module_to_env_connector": None}
    assert settings({}).connectors is None
    assert settings(ours).connectors == ()
    theirs = {"_env_to_module_connector": "mine.filters", "_learner_connector": "mine.Stack"}
    expected = ("env_to_module_connector mine.filters", "learner_connector mine.Stack")
    assert settings(ours | theirs).connectors == expected
    # As functools.partial is pickled, and an object that can be called.
    made = b"X\x18\0\0\0_env_to_module_connector%ss."
    partial = made % b"cfunctools\npartial\n(cmine\nmake\ntR"
    assert config_in(b"}" + partial).connectors == ("env_to_module_connector mine.make",)
    called = made % b"cmine\nMaker\n)\x81"
    assert config_in(b"}" + called).connectors == ("env_to_module_connector mine.Maker",)
    assert config_in(b"}" + made % b"K\1").connectors == ("env_to_module_connector (an object)",)
    long = settings({"_learner_connector": "m." + "x" * 1000}).connectors
    assert long is not None
    assert len(long[0]) < 230


class Box:
    """Called like the class of gymnasium, with whatever a test puts into it."""

    def __init__(self, low: Any, high: Any) -> None:
        self.low = low
        self.high = high


class Discrete:
    def __init__(self, n: Any) -> None:
        self.n = n


class Made:
    """Something that pickle would make by calling a function."""

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, self.arguments


FLOAT = np.dtype("<f4")


def shown(space: Any) -> Any:
    return (space.low.tolist(), space.high.tolist()) if isinstance(space, BoxSpace) else space


HALF = Made(np.float32(0.5).tobytes(), FLOAT, (1,), "C")


@pytest.mark.parametrize(
    "space, found",
    [
        (
            gymnasium.spaces.Box(np.array([-1, -np.inf], np.float32), np.array([2, np.inf], np.float32)),
            ([-1, -np.inf], [2, np.inf]),
        ),
        (Box(HALF, HALF), ([0.5], [0.5])),
        # RLlib counts from 0, whatever the space starts with.
        (gymnasium.spaces.Discrete(5, start=3), DiscreteSpace(5)),
        (Discrete(np.int32(4)), DiscreteSpace(4)),
        (gymnasium.spaces.MultiDiscrete([2, 3]), OtherSpace("MultiDiscrete")),
        (gymnasium.spaces.MultiBinary(3), OtherSpace("MultiBinary")),
        (gymnasium.spaces.Dict({"a": gymnasium.spaces.Discrete(2)}), OtherSpace("Dict")),
        (gymnasium.spaces.Tuple([gymnasium.spaces.Box(-1, 1, (1,))]), OtherSpace("Tuple")),
    ],
    ids=[
        "box",
        "box made by a call",
        "discrete",
        "of numpy",
        "multi-discrete",
        "multi-binary",
        "dict",
        "tuple",
    ],
)
def test_spaces_are_found_and_such_as_no_agent_has_told_by_name(space: Any, found: Any) -> None:
    settings = config_in(pickle.dumps({"action_space": space, "observation_space": space}))
    assert shown(settings.action_space) == shown(settings.observation_space) == found


@pytest.mark.parametrize(
    "space",
    [
        Box(np.zeros(2, np.float32), np.zeros(3, np.float32)),
        Box(np.zeros(2, ">f4"), np.zeros(2, ">f4")),
        Box(np.zeros(2, np.int64), np.zeros(2, np.int64)),
        Box(0.0, 1.0),
        Box(Made(), Made()),
        Box(Made(b"1234", FLOAT, (2,), "C"), Made(b"1234", FLOAT, (2,), "C")),
        Box(Made(b"1234", FLOAT, (10**9,) * 20, "C"), Made(b"1234", FLOAT, (1,), "C")),
        Box(Made(b"1234", FLOAT, "1", "C"), Made(b"1234", FLOAT, (1,), "C")),
        Box(Made("1234", FLOAT, (1,), "C"), Made("1234", FLOAT, (1,), "C")),
        gymnasium.spaces.Box(0, 255, (2,), np.uint8),
        {"Box": 1},
        Discrete("3"),
        Discrete(0),
        Discrete(10**10),
        Discrete(True),
        Discrete(Made(np.dtype("<i8"), b"1234")),
        Discrete(Made(np.dtype("<i8"))),
    ],
)
def test_a_space_that_does_not_fit_itself_is_not_found(space: Any) -> None:
    found = config_in(pickle.dumps({"action_space": space, "train_batch_size": 3}))
    assert found.action_space is None
    assert found.train_batch_size == 3


@pytest.mark.parametrize(
    "settings",
    [
        None,
        7,
        [],
        {"rollout_fragment_length": "auto", "num_learners": None},
        {"batch_mode": "other", "_model_config": 3, "_rl_module_spec": 3},
        {"_model_config": {"fcnet_hiddens": [64, 0], "vf_share_layers": 1}},
        {"_model_config": {"fcnet_hiddens": list(range(1, 200))}},
        {"observation_space": AlgorithmConfig(), "action_space": AlgorithmConfig()},
        {1: {2: 3}, (1, 2): 3},
    ],
)
def test_what_is_not_there_or_of_another_kind_is_not_found(settings: Any) -> None:
    assert config_in(pickle.dumps(settings)) == FoundConfig()


# --- nothing is executed -------------------------------------------------------------------------------------------


class Enemy:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


@PROTOCOLS
def test_what_unpickling_would_call_is_not_called(protocol: int, tmp_path: Path) -> None:
    target = tmp_path / "made"
    evil = pickle.dumps({"train_batch_size": 5, "other": Enemy(target)}, protocol)
    assert config_in(evil).train_batch_size == 5
    assert not target.exists()
    # Not harmless because it is no pickle: unpickled, it makes the folder, an empty one of this test's own.
    pickle.loads(evil)
    assert target.exists()


@PROTOCOLS
def test_plain_data_is_read_as_it_was(protocol: int) -> None:
    data = {
        "numbers": [0, 255, 256, 65536, -1, 2**40, -(2**40), 0.5, float("inf")],
        "texts": ["", "é" * 300, "x" * 70_000],
        "tuples": [(), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)],
        "flags": [True, False, None],
        "same": [[1]] * 3,
        1: {2: {}},
    }
    assert read_pickle(pickle.dumps(data, protocol)) == data


@pytest.mark.parametrize("protocol", [3, 4, 5])
def test_bytes_and_sets_are_read(protocol: int) -> None:
    tree = read_pickle(pickle.dumps([b"", b"x" * 300], protocol))
    assert tree == [b"", b"x" * 300]
    members = read_pickle(pickle.dumps([{7}, frozenset((8,))], 4))
    assert members == [[7], (8,)]


class Numbers(list[int]):
    pass


@PROTOCOLS
def test_what_is_put_into_an_object_is_kept_with_it(protocol: int) -> None:
    tree = read_pickle(pickle.dumps([OrderedDict(a=1, b=2), Numbers((3, 4))], protocol))
    assert isinstance(tree[0], Record)
    assert tree[0].items == {"a": 1, "b": 2}
    assert isinstance(tree[1], Record)
    assert tree[1].entries == [3, 4]


def test_an_object_of_the_first_protocols_is_a_record() -> None:
    assert read_pickle(b"\x80\x02(K\x01K\x02NK\x03d.") == {1: 2, None: 3}
    tree = read_pickle(b"(cmodule\nName\nK\1o.")
    assert isinstance(tree, Record)
    assert (tree.maker.module, tree.maker.name, tree.arguments) == ("module", "Name", (1,))


def test_what_is_made_with_keywords_keeps_them() -> None:
    tree = read_pickle(b"cmodule\nName\nK\1\x85}K\2K\3s\x92.")
    assert isinstance(tree, Record)
    assert tree.arguments == ((1,), {2: 3})


def test_a_list_within_itself_is_read() -> None:
    ring: list[Any] = []
    ring.append(ring)
    tree = read_pickle(pickle.dumps(ring))
    assert tree[0] is tree


@pytest.mark.parametrize(
    "data, named",
    [
        (b"", "expected a STOP"),
        (b"\x80\x06N.", "a protocol up to 5, got 6"),
        (b"\x80", "not enough data"),
        (b"N", "expected a STOP"),
        (b".", "it is empty"),
        (b"NN.", "one object at STOP, there are 2"),
        (b"(.", "there is a mark"),
        (b"(0.", "there is a mark"),
        (b"(2.", "there is a mark"),
        (b"h\x05.", "object 5 was never remembered"),
        (b"NNNs.", "expected a dict"),
        (b"}(Nu.", "keys and values in pairs"),
        (b"NNa.", "expected a list"),
        (b"]}b.", "to give a state to"),
        (b"NN\x93.", "a module and a name"),
        (b"\x8c\x01aN\x93.", "a module and a name"),
        (b"N\x8c\x01a\x93.", "a module and a name"),
        (b"(o.", "not enough values"),
        (b"cposix\nsystem", "no newline found"),
        (b"X\x09\0\0\0abc", "expected 9 bytes"),
        (b"\x8c\x01\xff.", "utf-8"),
        (b"\x8d" + b"\xff" * 8, "expected|sys.maxsize"),
        (b"\x96" + b"\xff" * 8, "expected|sys.maxsize"),
        (b"\x8b\xff\xff\xff\xff", "byte count < 0"),
        (b"N" * (MOST_OPCODES + 1) + b".", f"more than {MOST_OPCODES} opcodes"),
        (b"I1\n.", "opcode 0x49 is not read"),
        (b"\x82\x01.", "opcode 0x82 is not read"),
        (b"\x97.", "opcode 0x97 is not read"),
        (b"\xff.", "opcode 0xff is not read"),
    ],
)
def test_a_pickle_that_is_none_is_told_with_its_place(data: bytes, named: str) -> None:
    with pytest.raises(RemoteProtocolError, match=named) as caught:
        read_pickle(data)
    assert caught.value.data == data
    assert caught.value.hint
    assert 0 <= caught.value.offset <= len(data)


def test_a_pickle_above_the_limit_is_not_read() -> None:
    with pytest.raises(RemoteProtocolError, match="at most 100 bytes, got 101"):
        read_pickle(bytes(101), largest=100)


# --- an enemy's bytes ----------------------------------------------------------------------------------------------


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "unit",
    [
        *(b"N\x85", b"]", b"}", b"N\x94", b")\x81", b"))R", b"NN\x86", b"2", b"(", b"K\1", b"h\0", b"(t"),
        *(b"N\x85\x94", b"b"),
    ],
    ids=repr,
)
def test_what_is_made_of_any_bytes_is_bounded_by_their_number(unit: bytes) -> None:
    data = b"\x80\x04)\x94)R" + unit * (20_000 // len(unit)) + b"."
    tracemalloc.start()
    try:
        with contextlib.suppress(RemoteProtocolError):
            config_in(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 200 * len(data)


def test_objects_nested_very_deep_are_read_and_forgotten() -> None:
    assert config_in(b"N" + b"\x85" * 49_000 + b".") == FoundConfig()
    assert config_in(b")" + b")\x81" * 24_000 + b".") == FoundConfig()


def test_keys_whose_comparison_would_take_for_ever_are_left_out() -> None:
    """A tuple of two, each of them a tuple of the same two, and so on: its hash takes 2**60 steps."""
    doubling = b"K\1K\2\x86" + b"2\x86" * 60
    assert read_pickle(b"}" + doubling + b"K\1s.") == {}


def test_keys_of_which_any_number_could_have_one_hash_are_left_out() -> None:
    """Python hashes integers modulo 2**61 - 1; where all hashes are equal, n keys take n**2 comparisons."""
    prime = 2**61 - 1
    alike = {prime * at: at for at in range(16, 2000)}
    assert {hash(key) for key in alike} == {0}
    assert read_pickle(pickle.dumps(alike)) == {}
    # A value may be as large as it likes.
    kept = {0: 2**100, 2**64 - 1: "b", 1 - 2**64: "c", "text": "d", 0.5: "e", None: "f", True: "g"}
    assert read_pickle(pickle.dumps(kept | alike)) == kept


def test_half_a_character_is_read_as_something_that_can_be_shown() -> None:
    said = {"_model_config": {"fcnet_activation": "a\ud800b"}}
    found = config_in(pickle.dumps(said, 4)).model.fcnet_activation
    assert found == "a?b"
