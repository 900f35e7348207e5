"""What a client needs of the settings that Ray 2.49 and later put, as a pickle, into SET_CONFIG.

Observed on Ray 2.60.0: the pickle is an object of a class like PPOConfig; later releases make it a dict of the same
keys. Both are read, without executing anything.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ospbridge.interface import BoxSpace, DiscreteSpace
from ospbridge.rllink.batches import BatchMode
from ospbridge.rllink.pickled import Name, Record, read_pickle

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ospbridge.interface import Space

__all__ = ["FoundConfig", "FoundModel", "OtherSpace", "config_in"]

LARGEST_COUNT: Final = 10**9
MOST_LAYERS: Final = 64
FLOATS: Final[dict[str, np.dtype[Any]]] = {
    "f4": np.dtype("<f4"),
    "f8": np.dtype("<f8"),
    "f2": np.dtype("<f2"),
}
INTEGERS: Final[dict[str, np.dtype[Any]]] = {
    "i8": np.dtype("<i8"),
    "i4": np.dtype("<i4"),
    "i2": np.dtype("<i2"),
}
NUMBERS: Final = FLOATS | INTEGERS | {f"u{size}": np.dtype(f"<u{size}") for size in (2, 4, 8)}
AUTO: Final = "auto"
"""In place of a number that the learner computes."""
LINEAR: Final = "linear"
DEFAULT_MODULE: Final = "default_policy"
SPACES: Final = "gymnasium.spaces."
ALGORITHMS: Final = "ray.rllib.algorithms."
OWN_MODULES: Final = tuple(f"{ALGORITHMS}{name}." for name in ("ppo", "appo", "impala"))
"""Where the modules, and the settings that choose them, are whose forward pass is known."""
OWN_CATALOGS: Final = (*OWN_MODULES, "ray.rllib.core.models.catalog.")
CONNECTORS: Final = ("_env_to_module_connector", "_module_to_env_connector", "_learner_connector")
"""Functions that make what stands before and behind a module; None where it is RLlib's own."""
LONGEST_NAME: Final = 40
LONGEST_CALLED: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundModel:
    """Settings of the policy's network that were found; None where nothing was said."""

    fcnet_hiddens: tuple[int, ...] | None = None
    fcnet_activation: str | None = None
    """Not to be seen in the weights: with another one the policy is another."""
    head_fcnet_hiddens: tuple[int, ...] | None = None
    head_fcnet_activation: str | None = None
    vf_share_layers: bool | None = None
    free_log_std: bool | None = None
    use_lstm: bool | None = None


@dataclass(frozen=True, slots=True)
class OtherSpace:
    """A space that none of our agents has, such as MultiDiscrete or Dict."""

    name: str
    """Of its class."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundConfig:
    """Settings that were found; None where nothing was said."""

    algorithm: str | None = None
    """By the name of its class, such as ``PPO``; None also where the settings are a dict."""
    module: str | None = None
    """The class of the policy's module, or who else chooses it, by its whole name; None where nobody said."""
    unfamiliar: str = ""
    """Why the forward pass of the module cannot be known; empty where it is, or where nothing was said of it."""
    connectors: tuple[str, ...] | None = None
    """What the user put before or behind the module, by name; None where nothing was said of that."""
    train_batch_size: int | None = None
    train_batch_size_per_learner: int | None = None
    num_learners: int | None = None
    num_env_runners: int | None = None
    num_envs_per_env_runner: int | None = None
    rollout_fragment_length: int | None = None
    """Steps; None also where the learner computes it (``auto``)."""
    batch_mode: BatchMode | None = None
    normalize_actions: bool | None = None
    clip_actions: bool | None = None
    model: FoundModel = FoundModel()
    defaults: bool = False
    """What was not said of the network is as RLlib's own defaults have it: the settings do not specify the module."""
    unread: frozenset[str] = frozenset()
    """Counts that were said, but as nothing that is understood."""
    observation_space: Space | OtherSpace | None = None
    """BoxSpace with low and high of the shape announced; None for what is not understood, such as a Box of integers."""
    action_space: Space | OtherSpace | None = None

    @property
    def total_train_batch_size(self) -> int | None:
        """Steps that one update is learned from, all runners together."""
        if self.train_batch_size_per_learner is None:
            return self.train_batch_size
        return self.train_batch_size_per_learner * (self.num_learners or 1)

    @property
    def env_steps_per_sample(self) -> int | None:
        """Steps that one runner sends before it awaits weights: its share of an update, and a fragment at least.

        A learner samples fragments until it has enough for an update, but a server that has asked its client for
        weights reads nothing more: a fragment that is no whole share would never be answered. None where any of that
        was not said, or not understood.
        """
        if self.unread:
            return None
        fragment = (self.rollout_fragment_length or 0) * (self.num_envs_per_env_runner or 1)
        total = self.total_train_batch_size
        # Rounded up: some of several runners are asked for one step more, and more is harmless where less is not.
        share = 0 if total is None else -(-total // (self.num_env_runners or 1))
        return max(fragment, share) or None


def config_in(pickled: bytes) -> FoundConfig:
    """The settings in the ``pickled`` of a SetConfig. Raises RemoteProtocolError for bytes that are no pickle.

    What is not found, or is not of the kind expected, is None: a release may say it elsewhere.
    """
    root = read_pickle(pickled)
    said = _state(root)
    unread: set[str] = set()
    count = partial(_count, said, unread)
    per_learner = count("_train_batch_size_per_learner", "train_batch_size_per_learner")
    spec = _spec_of_module(said.get("_rl_module_spec"))
    model = _state(said.get("_model_config")) | _state(spec.get("model_config"))
    module, unfamiliar = _module(root.maker if isinstance(root, Record) else None, spec)
    return FoundConfig(
        algorithm=_algorithm(root),
        module=module,
        unfamiliar=unfamiliar,
        connectors=_connectors(said),
        # An old setting, which the one for each learner replaces.
        train_batch_size=count("train_batch_size") if per_learner is None else None,
        train_batch_size_per_learner=per_learner,
        num_learners=count("num_learners"),
        num_env_runners=count("num_env_runners"),
        num_envs_per_env_runner=count("num_envs_per_env_runner"),
        rollout_fragment_length=count("rollout_fragment_length"),
        batch_mode=_batch_mode(said.get("batch_mode")),
        normalize_actions=_flag(said, "normalize_actions"),
        clip_actions=_flag(said, "clip_actions"),
        model=_model(model),
        defaults=isinstance(said.get("_model_config"), dict) and said.get("_rl_module_spec", "") is None,
        unread=frozenset(unread),
        observation_space=_space(said.get("observation_space")),
        action_space=_space(said.get("action_space")),
    )


def _algorithm(root: Any) -> str | None:
    """RLlib's class of settings for an algorithm has its name, and ``Config`` behind it."""
    maker = root.maker if isinstance(root, Record) else None
    if not isinstance(maker, Name) or not maker.module.startswith(ALGORITHMS):
        return None
    return maker.name.removesuffix("Config")[:LONGEST_NAME]


def _state(node: Any) -> dict[Any, Any]:
    """The attributes of an object, or a dict as it is."""
    if isinstance(node, Record):
        node = node.state
    if isinstance(node, tuple) and node:
        node = node[0]  # attributes, and those in slots
    return node if isinstance(node, dict) else {}


def _spec_of_module(spec: Any) -> dict[Any, Any]:
    """The specification of the one module, whose word on its network counts before the settings."""
    modules = _state(_state(spec).get("rl_module_specs"))
    if modules:
        spec = modules.get(DEFAULT_MODULE, next(iter(modules.values())) if len(modules) == 1 else None)
    return _state(spec)


def _module(maker: Any, spec: dict[Any, Any]) -> tuple[str | None, str]:
    """The class of the module, and why its forward pass cannot be known."""
    chosen = spec.get("module_class")
    catalog = spec.get("catalog_class")
    if catalog is not None and not _called(catalog).startswith(OWN_CATALOGS):
        return _called(chosen or catalog), f"its network is made by {_called(catalog)}"
    if chosen is not None:
        name = _called(chosen)
        return name, "" if name.startswith(OWN_MODULES) else f"its module is {name}"
    if not isinstance(maker, Name):
        return None, ""
    name = _called(maker)
    return name, "" if name.startswith(OWN_MODULES) else f"its module is chosen by {name}"


def _connectors(said: dict[Any, Any]) -> tuple[str, ...] | None:
    if not any(name in said for name in CONNECTORS):
        return None
    return tuple(
        f"{name.removeprefix('_')} {_called(node)}"
        for name in CONNECTORS
        if (node := said.get(name)) is not None
    )


def _called(node: Any) -> str:
    """The whole name of a class or function, or of what makes an object, such as a partial one."""
    while isinstance(node, Record):
        node = node.arguments[0] if isinstance(node.arguments, tuple) and node.arguments else node.maker
    return f"{node}"[:LONGEST_CALLED] if isinstance(node, Name) else "(an object)"


def _count(said: dict[Any, Any], unread: set[str], *names: str) -> int | None:
    """The first of ``names`` that has a value; in ``unread`` if that is no count."""
    for name in names:
        node = said.get(name)
        if node is None or node == AUTO:
            continue
        value = _number(node)
        if value is not None and value == int(value) and 0 <= value <= LARGEST_COUNT:
            return int(value)
        unread.add(name)
        return None
    return None


def _flag(said: dict[Any, Any], name: str) -> bool | None:
    value = said.get(name)
    return value if isinstance(value, bool) else None


def _activation(said: dict[Any, Any], name: str) -> str | None:
    """By the name that RLlib takes it under; what has none is called such that nobody takes it for another."""
    match said.get(name, ""):
        case "":
            return None
        case None:
            return LINEAR
        case str(called):
            return called
        case Name(module=module, name=called) if module.startswith("torch.nn."):
            return called
        case Name(module=module, name=called):
            return f"{module}.{called}"
    return "(an object)"


def _sizes(said: dict[Any, Any], name: str) -> tuple[int, ...] | None:
    value = said.get(name)
    if not isinstance(value, (list, tuple)) or len(value) > MOST_LAYERS:
        return None
    if not all(type(size) is int and 0 < size <= LARGEST_COUNT for size in value):
        return None
    return tuple(value)


def _batch_mode(value: Any) -> BatchMode | None:
    return BatchMode(value) if isinstance(value, str) and value in list(BatchMode) else None


def _model(said: dict[Any, Any]) -> FoundModel:
    return FoundModel(
        fcnet_hiddens=_sizes(said, "fcnet_hiddens"),
        fcnet_activation=_activation(said, "fcnet_activation"),
        head_fcnet_hiddens=_sizes(said, "head_fcnet_hiddens"),
        head_fcnet_activation=_activation(said, "head_fcnet_activation"),
        vf_share_layers=_flag(said, "vf_share_layers"),
        free_log_std=_flag(said, "free_log_std"),
        use_lstm=_flag(said, "use_lstm"),
    )


def _space(node: Any) -> Space | OtherSpace | None:
    if not isinstance(node, Record) or not isinstance(node.maker, Name):
        return None
    said = _state(node)
    match node.maker.name:
        case "Box":
            low, high = _array(said.get("low")), _array(said.get("high"))
            if low is None or high is None or low.shape != high.shape:
                return None
            return BoxSpace(low, high)
        case "Discrete":
            # Whatever it starts with: RLlib's modules and learners count from 0 all the same.
            n = _number(said.get("n"))
            return DiscreteSpace(n) if isinstance(n, int) and 0 < n <= LARGEST_COUNT else None
        case name if node.maker.module.startswith(SPACES) and name.isidentifier():
            return OtherSpace(name[:LONGEST_NAME])
    return None


def _array(node: Any) -> NDArray[np.float32] | None:
    """An array of floats out of what numpy's ``_reconstruct`` or, in protocol 5, ``_frombuffer`` is given."""
    match node:
        case (
            Record(state=(_, shape, dtype, False, bytes(data)))
            | Record(arguments=(bytes(data), dtype, shape, "C"))
        ):
            kind = FLOATS.get(_dtype_name(dtype))
            sizes = _sizes({"shape": shape}, "shape")
        case _:
            return None
    if kind is None or sizes is None:
        return None
    # Compared as a Python integer: shapes may be absurd, and no array is made of them then.
    expected = kind.itemsize
    for size in sizes:
        expected *= size
    if len(data) != expected:
        return None
    with np.errstate(over="ignore"):
        return np.ndarray(sizes, kind, data).astype(np.float32)


def _number(node: Any) -> int | float | None:
    """A plain number that is finite, or what numpy's ``scalar`` would have been given."""
    if type(node) is int:
        return node
    if type(node) is float:
        return node if math.isfinite(node) else None
    if not isinstance(node, Record) or not isinstance(node.arguments, tuple) or len(node.arguments) != 2:
        return None
    kind = NUMBERS.get(_dtype_name(node.arguments[0]))
    data = node.arguments[1]
    if kind is None or not isinstance(data, bytes) or len(data) != kind.itemsize:
        return None
    return _number(np.frombuffer(data, kind)[0].item())


def _dtype_name(node: Any) -> str:
    """Such as ``f4``; empty for other byte orders than little-endian."""
    if not isinstance(node, Record) or not isinstance(node.arguments, tuple) or not node.arguments:
        return ""
    order = node.state[1] if isinstance(node.state, tuple) and len(node.state) > 1 else "<"
    name = node.arguments[0]
    return name if order == "<" and isinstance(name, str) else ""
