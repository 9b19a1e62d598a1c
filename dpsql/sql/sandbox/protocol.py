"""Messages between the owner's process and the helper: JSON, and a block of bytes behind it.

Nothing in a message is code: the owner must be able to read what a helper sends that an attacker
has taken over. What is in the block, Arrow's stream format, is checked by the one who reads it.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any, BinaryIO

_HEADER = struct.Struct("<4sIQ")
_MAGIC = b"dps1"
_PART = 2**20
MAX_JSON = 2**28
MAX_BLOCK = 2**33
MAX_REPLY_JSON = 2**26


class ProtocolError(Exception):
    """An error of the protocol: what was received is not a message."""


def write_message(stream: BinaryIO, message: Mapping[str, object], block: bytes = b"") -> None:
    """Send a message, with a block of bytes behind it."""
    data = json.dumps(message).encode("ascii")
    for part in (_HEADER.pack(_MAGIC, len(data), len(block)) + data, block):
        left = memoryview(part)
        while left:  # pipes may take a part at a time
            left = left[stream.write(left) :]
    stream.flush()


def read_message(
    stream: BinaryIO, max_json: int = MAX_JSON, max_block: int = MAX_BLOCK
) -> tuple[dict[str, Any], bytes] | None:
    """Receive a message; None at the end of the stream.

    Raises:
        ProtocolError: it is broken off, too long, or none.
    """
    head = stream.read(_HEADER.size)
    if not head:
        return None
    head += _exactly(stream, _HEADER.size - len(head))
    magic, json_size, block_size = _HEADER.unpack(head)
    if magic != _MAGIC or json_size > max_json or block_size > max_block:
        raise ProtocolError("this is not a message, or too long a one")
    data, block = _exactly(stream, json_size), _exactly(stream, block_size)
    try:
        message = json.loads(data)
    except (ValueError, RecursionError):
        raise ProtocolError("this is not JSON") from None
    if not isinstance(message, dict):
        raise ProtocolError("this is not an object")
    return message, block


def _exactly(stream: BinaryIO, size: int) -> bytes:
    """Read so many bytes, part by part: nothing is set aside for what may never come."""
    parts: list[bytes] = []
    while size:
        part = stream.read(min(size, _PART))
        if not part:
            raise ProtocolError("the message is broken off")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
