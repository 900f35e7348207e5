"""What is installed: ospbridge's own dependencies and its extras, held against the oldest releases that serve."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Final

from ospbridge.diagnosis.checks import Check, problem, skipped, well

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["Requirement", "check_installation", "parsed", "release"]

NOT_FOR_USERS: Final = {"test", "all"}
"""Extras that are for developers, or stand for others."""
_REQUIREMENT: Final = re.compile(
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)\s*(\[[^\]]*\])?\s*\(?(?P<bounds>[^;()]*)\)?\s*(;(?P<marker>.*))?"
)
_BOUND: Final = re.compile(r"(>=|<=|==|!=|~=|<|>)\s*([0-9][0-9A-Za-z.+*-]*)")
_EXTRA: Final = re.compile(r"extra\s*==\s*['\"]([^'\"]+)['\"]")


@dataclass(frozen=True, slots=True)
class Requirement:
    """A dependency: the oldest release that serves and the first that does not; empty where there is no such bound."""

    name: str
    at_least: str = ""
    below: str = ""
    extra: str = ""

    def fits(self, version: str) -> bool:
        """Whether a release is within the bounds."""
        found = release(version)
        return not (
            (self.at_least and found < release(self.at_least))
            or (self.below and found >= release(self.below))
        )

    def __str__(self) -> str:
        bounds = [f">={self.at_least}"] * bool(self.at_least) + [f"<{self.below}"] * bool(self.below)
        return self.name + ",".join(bounds)


def parsed(text: str) -> Requirement | None:
    """A line of a package's metadata; None for what is none."""
    found = _REQUIREMENT.fullmatch(text.strip())
    if found is None:
        return None
    bounds = dict(_BOUND.findall(found["bounds"]))
    extra = _EXTRA.search(found["marker"] or "")
    return Requirement(found["name"], bounds.get(">=", ""), bounds.get("<", ""), extra[1] if extra else "")


def release(version: str) -> tuple[int, ...]:
    """The numbers of a release, without zeros at the end; of a pre-release, those of the release to come."""
    numbers = []
    for part in version.partition("+")[0].split("."):
        found = re.match(r"\d+", part)
        if found is None:
            break
        numbers.append(int(found[0]))
        if found[0] != part:
            break
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def check_installation(
    lines: Iterable[str] | None = None, installed: Callable[[str], str | None] = _installed
) -> list[Check]:
    """What is installed, in one check for the base and one for each extra.

    ``lines``: what the package requires, from its metadata unless given.
    """
    if lines is None:
        try:
            lines = metadata.requires("ospbridge") or []
        except metadata.PackageNotFoundError:
            return [
                skipped(
                    "installation", "ospbridge runs from a directory and is not installed: nothing to compare"
                )
            ]
    required = [requirement for line in lines if (requirement := parsed(line)) is not None]
    extras = dict.fromkeys(r.extra for r in required if r.extra and r.extra not in NOT_FOR_USERS)
    return [
        _base([r for r in required if not r.extra], installed),
        *(_extra(extra, [r for r in required if r.extra == extra], installed) for extra in extras),
    ]


def _base(required: list[Requirement], installed: Callable[[str], str | None]) -> Check:
    wrong = [
        f"{r.name} {installed(r.name) or 'missing'} (needs {r})"
        for r in required
        if not _serves(r, installed)
    ]
    if wrong:
        return problem(
            "installation",
            "; ".join(wrong),
            "pip install --upgrade ospbridge, in the environment that runs it",
        )
    return well("installation", f"all {len(required)} dependencies are installed and new enough")


def _extra(extra: str, required: list[Requirement], installed: Callable[[str], str | None]) -> Check:
    subject = f"extra [{extra}]"
    found = {r.name: installed(r.name) for r in required}
    missing = [name for name, version in found.items() if version is None]
    wrong = [r for r in required if found[r.name] is not None and not r.fits(found[r.name] or "")]
    told = ", ".join(f"{name} {version}" for name, version in found.items() if version is not None)
    if len(missing) == len(required):
        return skipped(subject, f"not installed; pip install 'ospbridge[{extra}]' where it is wanted")
    if wrong:
        old = "; ".join(f"{r.name} {found[r.name]} (needs {r})" for r in wrong)
        return problem(subject, old, f"pip install --upgrade 'ospbridge[{extra}]'")
    if missing:
        # Its packages serve others too: half of an extra says that nobody wanted it whole.
        return skipped(
            subject,
            f"{told}; without {', '.join(missing)}: pip install 'ospbridge[{extra}]' where it is wanted",
        )
    return well(subject, told)


def _serves(requirement: Requirement, installed: Callable[[str], str | None]) -> bool:
    version = installed(requirement.name)
    return version is not None and requirement.fits(version)
