from __future__ import annotations

import os
import threading

import numpy as np
import pytest

from dpsql.errors import DpsqlError, RandomnessError
from dpsql.measurement import randomness
from dpsql.measurement.gaussian import rounded_gaussian
from dpsql.measurement.randomness import StreamCipherBits, fresh_bits


def test_words() -> None:
    bits = fresh_bits()
    words = bits.words(1000)
    assert (words.dtype, words.shape) == (np.uint64, (1000,))
    assert len(set(words.tolist()) | set(bits.words(1000).tolist())) == 2000
    assert bits.words(0).shape == (0,)


def test_two_generators_differ() -> None:
    assert not np.array_equal(fresh_bits().words(4), fresh_bits().words(4))


def test_seeds_elsewhere_change_nothing() -> None:
    drawn = []
    for _ in range(2):
        np.random.seed(0)
        drawn.append(rounded_gaussian(10**6, 8, fresh_bits()).tolist())
    assert drawn[0] != drawn[1]


def test_long_streams_do_not_repeat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(randomness, "_CHUNK_BYTES", 64)
    words = StreamCipherBits().words(1001)
    assert len(np.unique(words)) == 1001


@pytest.mark.statistical
def test_each_bit_is_fair() -> None:
    count = 10**5
    words = fresh_bits().words(count)
    for bit in range(64):
        ones = int(((words >> np.uint64(bit)) & np.uint64(1)).sum())
        assert abs(ones - count / 2) < 7 * (count / 4) ** 0.5  # false alarm: 2e-10 all together


@pytest.mark.parametrize("fault", ["raises", "missing", "zeros", "short", "empty"])
def test_no_key_no_noise(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(count: int) -> bytes:
        if fault == "raises":
            raise OSError("no entropy")
        if fault == "missing":
            raise NotImplementedError
        return {"zeros": bytes(count), "short": b"\x01" * (count - 1), "empty": b""}[fault]

    monkeypatch.setattr(os, "urandom", broken)
    with pytest.raises(RandomnessError) as caught:
        fresh_bits()
    assert isinstance(caught.value, DpsqlError)
    assert caught.value.hint


def test_a_changed_process_rekeys_or_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    bits = StreamCipherBits()
    pid, cipher = os.getpid(), bits._cipher
    monkeypatch.setattr(os, "getpid", lambda: pid + 1)
    bits.words(1)
    assert bits._cipher is not cipher
    monkeypatch.setattr(os, "getpid", lambda: pid + 2)
    monkeypatch.setattr(os, "urandom", bytes)
    with pytest.raises(RandomnessError):
        bits.words(1)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_forked_children_draw_different_noise() -> None:
    bits = fresh_bits()
    drawn = []
    for _ in range(2):
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.write(writer, rounded_gaussian(10**12, 8, bits).tobytes())
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        drawn.append(os.read(reader, 64))
        os.close(reader)
        os.close(writer)
    drawn.append(rounded_gaussian(10**12, 8, bits).tobytes())
    assert len(set(drawn)) == 3
    assert all(len(d) == 64 for d in drawn)


def test_threads_never_draw_the_same_words() -> None:
    bits, drawn = fresh_bits(), []
    threads = [
        threading.Thread(target=lambda: drawn.extend(bits.words(5000).tolist())) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(drawn)) == 40000
