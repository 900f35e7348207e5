"""Arguments of environments that do not exist, or are of a kind that nobody may give.

A misspelt one is told with what was meant. What an argument of the right kind says is judged by whoever takes it.
"""

from __future__ import annotations

import os
from functools import wraps
from inspect import signature
from typing import TYPE_CHECKING, Any, Final, ParamSpec

from ospbridge.envs.options import spelled_out
from ospbridge.errors import UsageError
from ospbridge.toml.nearest import nearest

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["UnexpectedArgument", "told_apart"]

P = ParamSpec("P")
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


def told_apart(init: Callable[P, None]) -> Callable[P, None]:
    """An ``__init__`` that raises UsageError for a keyword that it does not take, or no text where one must be.

    Its signature stays, spelled out.
    """
    known = [name for name in signature(spelled_out(init)).parameters if name != "self"]
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
