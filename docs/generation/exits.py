"""The page of exit codes, from the errors themselves."""

from __future__ import annotations

import inspect
from typing import Final

from docs.generation.markdown import escaped, table
from ospbridge import errors
from ospbridge.cli import EXIT_INTERRUPTED
from ospbridge.cli.doctor import EXIT_PROBLEM
from ospbridge.cli.unwritten import EXIT_UNWRITTEN
from ospbridge.errors import OspBridgeError

__all__ = ["CODES", "page"]

CODES: Final = {
    0: (
        "done",
        (
            "Also after SIGTERM or Ctrl-C, for commands that are ended in that way: `connect`, `sim`, `sink`, `top`, "
            "`events watch`, `values watch`, and `trace replay`, unless it has `--strict` and found a difference. "
            "While a command is being loaded, which takes about a second, Ctrl-C ends it with 130, and SIGTERM and "
            "SIGHUP end it as any process."
        ),
    ),
    EXIT_PROBLEM: (
        "a problem was found",
        (
            "`ospbridge doctor` found a problem, or a client of `ospbridge trace replay --strict` departed from the "
            "trace. Also, without a message, if the reader of the output stops reading, as in "
            "`ospbridge trace show FILE | head -1`."
        ),
    ),
    2: (
        "the request cannot be carried out as written",
        "Also what click itself finds: an unknown command or option, or a value that cannot be one.",
    ),
    69: (
        "nothing there to talk to",
        "There is no simulator, daemon, RLlink server or systemd, or it refuses, or something else answers.",
    ),
    70: ("a hosted world failed", "An environment that `ospbridge sim` hosts failed, not ospbridge itself."),
    EXIT_UNWRITTEN: (
        "the output cannot be written",
        (
            "Standard output goes to a full disk, or to a device that fails. For a pipe that nobody reads any more the "
            "code is [1](#1-a-problem-was-found)."
        ),
    ),
    75: (
        "lost",
        "The connection was lost, or an answer did not come, and could not be restored. Trying again may help.",
    ),
    78: (
        "a setting cannot work",
        (
            "A file, address, certificate or package cannot be used. `ospbridge check` ends with this code if it finds "
            "mistakes."
        ),
    ),
    EXIT_INTERRUPTED: ("interrupted", "Ctrl-C, as a shell reports it."),
}
"""What a code means in short, and what else is to be said of it."""

HEADER: Final = ("error", "when", "what to do, unless the message says better")
TOP: Final = """\
# Exit codes

<!-- `python -m docs.generate` writes this page from the errors themselves. -->

A command that fails writes two lines to standard error: `Error:` with what was expected, what came, and from whom; and
`Hint:` with what to do next. If a file has several mistakes, each has a line between the two. Then the command ends
with the code of the error. The codes are those of `sysexits.h`.

In Python the same errors are raised: they are in `ospbridge.errors`, and each is an `OspBridgeError` with `message`,
`hint` and `exit_code`. For mistakes of the command line itself, such as an unknown option, the usage of the command is
printed instead, without a hint. A traceback instead of these lines is a bug of ospbridge; its exit code is 1.
"""


def errors_by_code() -> dict[int, list[type[OspBridgeError]]]:
    """Every error that can be raised, in the order of ``ospbridge.errors``."""
    bases = (OspBridgeError, errors.ProtocolError, errors.FileInvalid)
    found: dict[int, list[type[OspBridgeError]]] = {}
    for kind in vars(errors).values():
        if inspect.isclass(kind) and issubclass(kind, OspBridgeError) and kind not in bases:
            found.setdefault(kind.exit_code, []).append(kind)
    return found


def page(there: str) -> str:  # noqa: ARG001  # nothing of it is kept
    """The whole page."""
    kinds = errors_by_code()
    rows = [(f"[{code}](#{_slug(code)})", what) for code, (what, _) in sorted(CODES.items())]
    parts = [TOP, table(("code", "meaning"), rows) + "\n"]
    for code, (what, more) in sorted(CODES.items()):
        parts.append(f"## {code}: {what}\n\n{more}\n")
        if code in kinds:
            parts.append(table(HEADER, (_row(kind) for kind in kinds[code])) + "\n")
    return "\n".join(parts)


def _row(kind: type[OspBridgeError]) -> tuple[str, str, str]:
    when = (kind.__doc__ or "").partition("\n\n")[0].replace("``", "`")
    return f"`{kind.__name__}`", escaped(when), escaped(kind.default_hint)


def _slug(code: int) -> str:
    """As code hosts and MyST make it of the heading."""
    return f"{code}-{CODES[code][0].lower().replace(' ', '-')}"
