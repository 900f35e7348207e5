"""Errors across the hub: the daemon's error becomes a refusal, and is raised again where the request was made."""

from __future__ import annotations

from typing import Final

from ospbridge import errors
from ospbridge.errors import FileInvalid, HubError, OspBridgeError, ProtocolError, RemoteProtocolError
from ospbridge.hub.replies import Refusal

__all__ = ["raised_again", "refusal"]


def _kinds() -> dict[str, type[OspBridgeError]]:
    """All that a message and a hint suffice to make; a RemoteProtocolError is about bytes that are not here."""
    kinds = {}
    for name in errors.__all__:
        kind = getattr(errors, name)
        if kind not in (OspBridgeError, ProtocolError, FileInvalid, RemoteProtocolError):
            kinds[name] = kind
    return kinds


KINDS: Final = _kinds()


def refusal(error: OspBridgeError) -> Refusal:
    """What to answer for ``error``."""
    return Refusal(type(error).__name__, error.message, error.hint)


def raised_again(said: Refusal) -> OspBridgeError:
    """The error that a refusal stands for; HubError where this release knows no such class."""
    return KINDS.get(said.kind, HubError)(said.message, hint=said.hint)
