"""What real servers and their own client were heard to say: Ray 2.47.1 and Ray 2.60.0."""

from __future__ import annotations

import base64
import json
from pathlib import Path

from ospbridge.rllink.dialects import Dialect, dialect_of
from ospbridge.rllink.framing import Deframer, header
from ospbridge.rllink.messages import Message

TRACES = Path(__file__).parent / "traces"


def golden() -> dict[str, bytes]:
    """Byte-exact messages of both dialects, by dialect and type."""
    texts = json.loads((TRACES / "golden_hex.json").read_text())
    return {name: bytes.fromhex(text) for name, text in texts.items()}


def handshake() -> dict[str, bytes]:
    """A byte-exact handshake of Ray 2.60.0, by direction and number, and its SET_CONFIG."""
    lines = map(json.loads, (TRACES / "260_handshake.jsonl").read_text().splitlines())
    messages = {f"{line['dir']} {number}": base64.b64decode(line["b64"]) for number, line in enumerate(lines)}
    return messages | {"s2c SET_CONFIG": base64.b64decode((TRACES / "260_set_config.b64").read_text())}


def native_episode() -> bytes:
    """An episode of Ray 2.60.0's own client, step by step, with header."""
    body = bytes.fromhex((TRACES / "260_ray_native_episode.hex").read_text())
    return header(len(body)) + body


def body_of(data: bytes | bytearray) -> bytearray:
    """The body of exactly one message."""
    deframer = Deframer()
    (body,) = deframer.bodies(data)
    assert deframer.empty
    return body


def decoded(data: bytes | bytearray) -> tuple[Dialect, Message]:
    body = body_of(data)
    dialect = dialect_of(body)
    return dialect, dialect.decode(body)
