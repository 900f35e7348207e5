"""Environments that somebody wants to copy or to pickle: what they hold, a session or a connection, cannot be."""

from __future__ import annotations

from ospbridge.errors import UsageError

__all__ = ["not_copied"]


def not_copied(env: object, another: str) -> UsageError:
    """The error for it; ``another`` makes one more.

    The ``__getstate__`` of environments raises it, which copying and pickling both ask.
    """
    return UsageError(
        f"{type(env).__name__} holds a connection of this process, and can be neither copied nor pickled",
        hint=f"make another one where it is wanted, for instance with {another}; processes take a function that makes "
        "it",
    )
