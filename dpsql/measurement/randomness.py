"""The source of random bits: a stream cipher keyed by the operating system. Trusted.

Guarantees:
    1. Each `StreamCipherBits` has a 256-bit key of its own from the operating system's
       generator; there is no seed. No generator is used by more than one release.
    2. Without a usable key there are no bits: nothing falls back to another generator.
    3. A forked process draws under a new key, and threads never draw the same bits.
"""

from __future__ import annotations

import os
import threading
from typing import Protocol

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from numpy.typing import NDArray

from dpsql.errors import RandomnessError

_KEY_BYTES = 32
_COUNTER_BYTES = 16
_CHUNK_BYTES = 2**24


class RandomBits(Protocol):
    """A source of independent, uniform random bits."""

    def words(self, count: int) -> NDArray[np.uint64]:
        """Give `count` words of 64 bits that were never given before."""
        ...


class StreamCipherBits:
    """The key stream of AES-256 in counter mode, under a fresh random key.

    Raises:
        RandomnessError: the operating system gives no key.
    """

    def __init__(self) -> None:
        self._rekey()

    def words(self, count: int) -> NDArray[np.uint64]:
        """Give `count` words of 64 bits that were never given before.

        Raises:
            RandomnessError: after a fork, if the operating system gives no new key.
        """
        if os.getpid() != self._process:
            self._rekey()
        with self._lock:
            stream = _key_stream(self._cipher, 8 * count)
        return np.frombuffer(stream, dtype="<u8").astype(np.uint64, copy=False)

    def _rekey(self) -> None:
        key, start = _system_bytes(_KEY_BYTES), _system_bytes(_COUNTER_BYTES)
        self._cipher = Cipher(algorithms.AES256(key), modes.CTR(start)).encryptor()
        self._lock = threading.Lock()  # a new one: another thread may have held it at the fork
        self._process = os.getpid()


def fresh_bits() -> RandomBits:
    """Make a source of random bits for one release."""
    return StreamCipherBits()


def _key_stream(cipher: CipherContext, length: int) -> bytearray:
    """Encrypt zeros, in pieces: OpenSSL counts bytes in 32 bits."""
    stream = bytearray(length)
    zeros = bytes(min(length, _CHUNK_BYTES))
    with memoryview(stream) as view:
        for begin in range(0, length, _CHUNK_BYTES):
            piece = view[begin : begin + _CHUNK_BYTES]
            written = cipher.update_into(zeros[: len(piece)], piece)
            if written != len(piece):
                raise RandomnessError
    return stream


def _system_bytes(count: int) -> bytes:
    try:
        result = os.urandom(count)
    except (OSError, NotImplementedError):
        raise RandomnessError from None
    if len(result) != count or not any(result):
        raise RandomnessError
    return result
