"""The options that environments of all kinds have, each declared once: its name, its type and its default.

A kind takes them as ``**given: Unpack[Options]``, so that a type checker knows them; ``spelled_out`` lists them in its
signature, for ``help`` and for whoever looks there. A misspelt one is told with what was meant.
"""

from __future__ import annotations

import inspect
import os
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, Final, ParamSpec, TypedDict, TypeVar, cast, get_type_hints

from ospbridge.errors import UsageError
from ospbridge.osp.timing import Limits
from ospbridge.toml.nearest import nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ospbridge.transport.tls import TlsFiles

__all__ = [
    "DEFAULTS",
    "MIB",
    "Options",
    "UnexpectedArgument",
    "files_for",
    "is_remote",
    "spelled_out",
    "tls_files",
    "validate_arguments",
]

P = ParamSpec("P")
F = TypeVar("F", bound="Callable[..., object]")
LIMITS: Final = Limits()
MIB: Final = 1024 * 1024


class Options(TypedDict, total=False):
    """Behind each type stands its default. What they mean is told in ``AgentEnv``."""

    scenario: Annotated[str | None, None]
    launch: Annotated[Any, None]
    pin: Annotated[str | int | bool, "auto"]
    batch: Annotated[bool, True]
    not_finite: Annotated[str | None, None]
    profile: Annotated[str, "auto"]
    wait: Annotated[float, 0.0]
    connect_timeout: Annotated[float, LIMITS.connect]
    query_timeout: Annotated[float, LIMITS.query]
    step_timeout: Annotated[float, LIMITS.step]
    reset_timeout: Annotated[float, LIMITS.reset]
    memory_limit: Annotated[int, LIMITS.memory // MIB]
    spin: Annotated[bool, True]
    trace: Annotated[str | None, None]
    record: Annotated[str | None, None]
    tls_cert: Annotated[str | None, None]
    tls_key: Annotated[str | None, None]
    tls_ca: Annotated[str | None, None]
    render_mode: Annotated[str | None, None]
    annotates: Annotated[bool, False]


_PARAMETERS: Final = [
    inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=hint.__metadata__[0], annotation=hint.__origin__
    )
    for name, hint in get_type_hints(Options, include_extras=True).items()
]
DEFAULTS: Final = cast("Options", {each.name: each.default for each in _PARAMETERS})
"""Of all options: ``DEFAULTS | given`` are those that count."""


def spelled_out(function: F) -> F:
    """The same function; its signature lists the options that it takes as ``**given``."""
    signature = inspect.signature(function)
    *own, given = signature.parameters.values()
    assert given.kind is inspect.Parameter.VAR_KEYWORD
    function.__signature__ = signature.replace(parameters=[*own, *_PARAMETERS])  # type: ignore[attr-defined]
    return function


# --- arguments that do not exist, or are of a kind that nobody may give ----------------------------------------------

TEXTS: Final = {"agent": "robot1", "profile": "nerd", "render_mode": "ansi"}
"""With an example of each."""
FILES: Final = {
    "trace": "session.trace",
    "record": "episodes",
    "tls_cert": "env.pem",
    "tls_key": "env.key",
    "tls_ca": "ca.pem",
}
ELSEWHERE: Final = {
    "max_episode_steps": "a scenario says it, with max_steps = N in [agent.episode]",
    "disable_env_checker": "leave it out: vector and parallel environments have no such checker",
    "num_envs": "gymnasium.make_vec makes several",
}
"""Where to say what gymnasium takes for other environments."""


class UnexpectedArgument(UsageError, TypeError):
    """A keyword that is not taken: for us a wrong use, and for others what Python makes of it, in its words.

    TorchRL's ``GymEnv`` tries ``frameskip``, and looks into the error for whether to leave it out.
    """


def validate_arguments(init: Callable[P, None]) -> Callable[P, None]:
    """An ``__init__`` that raises UsageError for a keyword that it does not take, or no text where one must be.

    Its signature stays, spelled out.
    """
    known = [name for name in inspect.signature(spelled_out(init)).parameters if name != "self"]
    kind = init.__qualname__.partition(".")[0]

    @wraps(init)
    def checked(*arguments: P.args, **options: P.kwargs) -> None:
        for name in options:
            if name not in known:
                raise UnexpectedArgument(
                    f"{kind} got an unexpected keyword argument {name!r}",
                    hint=ELSEWHERE.get(name) or nearest(name, known) or f"it has {', '.join(known)}",
                )
        # The first argument is the environment.
        for name, given in (dict(zip(known, arguments[1:], strict=False)) | options).items():
            _check(name, given)
        init(*arguments, **options)

    return checked


def _check(name: str, given: Any) -> None:
    if given is None:
        return
    if name in TEXTS and not isinstance(given, str):
        raise UsageError(f"{name} is a text, got {given!r}", hint=f"for instance {name}={TEXTS[name]!r}")
    if name in FILES and not _can_be_a_file(given):
        raise UsageError(
            f"{name} is the name of a file, got {given!r}", hint=f"for instance {name}={FILES[name]!r}"
        )


def _can_be_a_file(given: Any) -> bool:
    try:
        path = os.fspath(given)
    except TypeError:
        return False
    return isinstance(path, str) and "\0" not in path


# --- certificates -----------------------------------------------------------------------------------------------------


def tls_files(
    cert: str | None, key: str | None, ca: str | None, *, simulator: object = None
) -> TlsFiles | None:
    """None where none is named. Raises ConfigurationError for some of the three, UsageError beside a simulator."""
    if cert is None and key is None and ca is None:
        return None
    if simulator is not None:
        raise UsageError(
            "certificates were given together with simulator, and OSP knows no TLS",
            hint="run `ospbridge connect --listen HOST:PORT` beside the simulator, and name bridge='tls://HOST:PORT'",
        )
    # Whoever needs no TLS does not load it.
    from ospbridge.transport.tls import TlsFiles

    return TlsFiles.of(cert, key, ca)


def files_for(bridge: str | None, bridges: Sequence[str | None], files: TlsFiles | None) -> TlsFiles | None:
    """``files`` for the hubs on other hosts. Where none is, for all: connecting tells that they do not fit."""
    if is_remote(bridge) or not any(map(is_remote, bridges)):
        return files
    return None


def is_remote(bridge: str | None) -> bool:
    """A hub that is reached by TLS."""
    return bridge is not None and bridge.startswith("tls:")
