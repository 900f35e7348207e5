"""Those who look on at a vector environment: its agents are numbered through, and all take their turns at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ospbridge.envs.groups.onlookers import Onlookers, places_of
from ospbridge.errors import OspBridgeError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from ospbridge.envs.groups.fleet import Turn
    from ospbridge.envs.groups.group import Found, NamedGroup
    from ospbridge.envs.groups.group_seats import GroupSeats

__all__ = ["VectorOnlookers", "looked_on"]


class VectorOnlookers(Onlookers[int]):
    """As ``Onlookers``; environment i has the key i."""

    def took_turns(
        self, sent: Iterable[tuple[GroupSeats, Turn]], results: Iterable[Found | Exception]
    ) -> list[OspBridgeError]:
        """Tell what the steps brought; what could not be written."""
        failures = []
        for (seats, turn), found in zip(sent, results, strict=True):
            if turn.seed or isinstance(found, Exception):
                continue
            for at, name in zip(seats.numbers, seats.names, strict=True):
                try:
                    self.stepped(at, turn.actions[name], found[name])
                except OspBridgeError as error:
                    failures.append(error)
        return failures


def looked_on(
    groups: Sequence[NamedGroup],
    addresses: Sequence[str],
    record: Path | None,
    render_mode: str | None,
    env_spec: Callable[[str, str], str],
) -> VectorOnlookers:
    """Those of the agents of several groups. Raises ConfigurationError."""
    found = [
        place for group, address in zip(groups, addresses, strict=True) for place in places_of(group, address)
    ]
    return VectorOnlookers.of(
        dict(enumerate(found)),
        record,
        render_mode,
        title=lambda at, name: f"{at}: {name}",
        env_spec=env_spec,
    )
