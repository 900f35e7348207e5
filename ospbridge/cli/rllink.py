"""``ospbridge rllink``: looking at RLlink servers."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from ospbridge.cli.options import CloseNames, json_option, timeout_option, waiting_told, with_options
from ospbridge.cli.output import Column, note, number, print_json, print_table
from ospbridge.cli.server_options import dialect_option, largest_option, server_address, tls_options
from ospbridge.text import LINE, pluralize

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ospbridge.daemon.relay.probing import Finding
    from ospbridge.interface import Space
    from ospbridge.policy.describing import Description
    from ospbridge.policy.onnx import TensorType
    from ospbridge.rllink.pickled_config import FoundConfig, OtherSpace

__all__ = ["rllink"]


@click.group(cls=CloseNames)
def rllink() -> None:
    """Look at RLlink servers."""


def _server_options(command: Callable[..., Any]) -> Callable[..., Any]:
    return with_options(command, (dialect_option(), largest_option(), *tls_options()))


@rllink.command()
@click.argument("server", metavar="[tls://]HOST:PORT")
@_server_options
@click.option(
    "--read-pickle/--no-read-pickle",
    default=True,
    show_default=True,
    help="Whether to read the settings in the pickle that newer servers send, without executing any of it.",
)
@timeout_option(20.0, when="the server has not answered")
@json_option(
    'Print {"address", "tls", "dialect", "releases", "server", "waited_s", "pong_s", "config", "weights", "troubles"}; '
    "what the server did not tell is null."
)
def probe(
    *,
    server: str,
    dialect: str,
    largest_message: int,
    tls_ca: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    insecure: bool,
    read_pickle: bool,
    timeout: float,
    as_json: bool,
) -> None:
    """Say what an RLlink server speaks, needs and has.

    It asks for a PONG, the settings and the weights, which changes nothing. A server of RLlib takes one client at a
    time and nobody for 5 s after one has left, so probe before a daemon connects, not meanwhile. The exit code is 0 if
    a server answered, else 69, and 78 for an address or certificates that cannot work.
    """
    import trio

    from ospbridge.daemon.relay.probing import probe as look
    from ospbridge.observe import logs
    from ospbridge.rllink.dialects import dialect_named

    # What a link that comes and goes logs is told here in other words, at the end.
    logs.configure(level="error")
    address = server_address(server, ca=tls_ca, cert=tls_cert, key=tls_key, insecure=insecure)
    spoken = dialect_named(dialect)
    with waiting_told(f"waiting for an RLlink server at {address}"):
        finding = trio.run(
            lambda: look(
                address, dialect=spoken, within=timeout, read_pickle=read_pickle, largest=largest_message
            )
        )
    if as_json:
        print_json(_plain(finding))
    else:
        print_table((Column("WHAT"), Column("FOUND", most=LINE)), list(_rows(finding)))
    for trouble in finding.troubles:
        note(f"not told: {trouble}")


# --- for people --------------------------------------------------------------------------------------------------


def _rows(finding: Finding) -> Iterator[tuple[str, str]]:
    tls = "with TLS" if finding.address.tls is not None else "without TLS"
    yield "server", f"{finding.address}, {tls}"
    yield "dialect", f"{finding.dialect.name}, as Ray {finding.dialect.releases}"
    if finding.pong is not None:
        yield "PONG", f"after {finding.pong * 1000:.1f} ms"
    if (config := finding.config) is not None:
        if config.server is not None:
            yield "name", config.server
        if config.env_steps_per_sample is not None:
            yield "batch", pluralize(config.env_steps_per_sample, "step")
        if config.force_on_policy is not None:
            on = "on-policy: new weights are awaited after each batch"
            yield "learning", on if config.force_on_policy else "off-policy: nothing is awaited"
        if config.pickled is not None:
            yield "settings", f"a pickle of {pluralize(len(config.pickled), 'byte')}"
    if finding.read is not None:
        for name, value in _settings(finding.read).items():
            default = value is None and finding.read.defaults and hasattr(finding.read.model, name)
            yield f"  {name}", "not said: RLlib's default" if default else _shown(value)
    if finding.policy is not None:
        yield "weights", f"number {finding.weights_seq_no}, {_kind(finding.policy)}"
        yield from _policy_rows(finding.policy, finding.read)


def _kind(policy: Description) -> str:
    if policy.onnx is not None:
        made = f" by {policy.onnx.producer}" * bool(policy.onnx.producer)
        return f"an ONNX model of {pluralize(policy.size, 'byte')}, opset {policy.onnx.opset}{made}"
    if policy.arrays is not None:
        return f"{pluralize(len(policy.arrays), 'array')} of an RLModule, {pluralize(policy.size, 'byte')}"
    return f"an ONNX model of {pluralize(policy.size, 'byte')}"


def _policy_rows(policy: Description, read: FoundConfig | None) -> Iterator[tuple[str, str]]:
    if policy.observation is not None:
        yield "observations", pluralize(policy.observation, "number")
    if policy.actions:
        # Several spaces have as many outputs; the settings say which it is.
        said = _space(read.action_space) if read is not None else None
        told = " or ".join(policy.actions) if said is None else _shown(said)
        yield "actions", f"{told}, drawn from {pluralize(policy.outputs or 0, 'number')}"
    if policy.layers is not None:
        yield "layers", " ".join(map(str, policy.layers))
    if policy.onnx is not None:
        yield from ((f"  input {each.name}", _typed(each)) for each in policy.onnx.inputs)
        yield from ((f"  output {each.name}", _typed(each)) for each in policy.onnx.outputs)
        yield "  operators", " ".join(policy.onnx.operators)
    for name, shape in policy.arrays or ():
        yield f"  {name}", str(list(shape))
    if policy.trouble:
        yield "trouble", policy.trouble


def _typed(tensor: TensorType) -> str:
    return f"{tensor.type}[{', '.join(str(size) or '?' for size in tensor.shape)}]"


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return value.get("name") or (
            f"one of {pluralize(value['n'], 'choice')}" if "n" in value else f"box {value['shape']}"
        )
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return "not found" if value is None else str(value)


# --- for programs ------------------------------------------------------------------------------------------------


def _plain(finding: Finding) -> dict[str, Any]:
    config = finding.config
    return {
        "address": str(finding.address),
        "tls": finding.address.tls is not None,
        "dialect": finding.dialect.name,
        "releases": finding.dialect.releases,
        "server": None if config is None else config.server,
        "waited_s": round(finding.waited, 4),
        "pong_s": None if finding.pong is None else round(finding.pong, 6),
        "config": None
        if config is None
        else {
            "env_steps_per_sample": config.env_steps_per_sample,
            "force_on_policy": config.force_on_policy,
            "pickle_bytes": None if config.pickled is None else len(config.pickled),
            "read": None if finding.read is None else _settings(finding.read),
        },
        "weights": None
        if finding.policy is None
        else {"weights_seq_no": finding.weights_seq_no, **asdict(finding.policy)},
        "troubles": list(finding.troubles),
    }


def _settings(read: FoundConfig) -> dict[str, Any]:
    model = read.model
    return {
        "algorithm": read.algorithm,
        "module": read.module,
        "connectors": None if read.connectors is None else list(read.connectors),
        "env_steps_per_sample": read.env_steps_per_sample,
        "total_train_batch_size": read.total_train_batch_size,
        "num_env_runners": read.num_env_runners,
        "batch_mode": None if read.batch_mode is None else str(read.batch_mode),
        "normalize_actions": read.normalize_actions,
        "clip_actions": read.clip_actions,
        "fcnet_hiddens": None if model.fcnet_hiddens is None else list(model.fcnet_hiddens),
        "fcnet_activation": model.fcnet_activation,
        "head_fcnet_hiddens": None if model.head_fcnet_hiddens is None else list(model.head_fcnet_hiddens),
        "head_fcnet_activation": model.head_fcnet_activation,
        "vf_share_layers": model.vf_share_layers,
        "free_log_std": model.free_log_std,
        "use_lstm": model.use_lstm,
        "observation_space": _space(read.observation_space),
        "action_space": _space(read.action_space),
    }


def _space(space: Space | OtherSpace | None) -> dict[str, Any] | None:
    from ospbridge.interface import DiscreteSpace
    from ospbridge.rllink.pickled_config import OtherSpace

    if space is None:
        return None
    if isinstance(space, OtherSpace):
        return {"kind": "other", "name": space.name}
    if isinstance(space, DiscreteSpace):
        return {"kind": "discrete", "n": space.n}
    return {
        "kind": "box",
        "shape": list(space.low.shape),
        "low": [number(each) for each in space.low.ravel().tolist()],
        "high": [number(each) for each in space.high.ravel().tolist()],
    }
