"""Ask a server of RLlink for its weights, and write the body of its SET_STATE into a file, as it came.

How the files in ``traces/`` were made, with ``tests/peers/serve_rllib.py`` as the server:
``python tests/policy/record_set_state.py PORT json FILE``, or ``msgpack`` for Ray 2.49 and later.
"""

from __future__ import annotations

import argparse
import socket
from pathlib import Path

QUESTIONS = {
    "json": b'00000021{"type": "GET_STATE"}',
    "msgpack": b"00000016\x81\xa4type\xa9GET_STATE",
}


def exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            raise SystemExit(f"the server closed after {len(data)} of {size} bytes")
        data += piece
    return data


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("port", type=int)
    parser.add_argument("dialect", choices=QUESTIONS)
    parser.add_argument("file", type=Path)
    arguments = parser.parse_args()
    with socket.create_connection(("127.0.0.1", arguments.port), timeout=60) as connection:
        connection.sendall(QUESTIONS[arguments.dialect])
        body = exactly(connection, int(exactly(connection, 8)))
    arguments.file.write_bytes(body)


if __name__ == "__main__":
    main()
