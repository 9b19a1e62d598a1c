"""Sums of more rows than 64 bits hold, without such a table."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from dpsql.engines.base import LOW_BITS
from dpsql.engines.cover import low_word, roll_up_sums, tally_sums
from dpsql.engines.spark.coding import ComputedRow, SparkSum
from dpsql.rows.expression import RowColumn
from dpsql.rows.measure import measure


@pytest.mark.parametrize("sign", [1, -1])
def test_sums_of_many_rows_are_in_two_words(sign):
    """Where one word would fail, or wrap around when cells are added up: both tell of a row."""
    most = 2**31 - 1
    of = measure(RowColumn("x"), {"x": "BIGINT"}, (Fraction(-most), Fraction(most)), Fraction(1))
    row = ComputedRow((), {}, {}, {"m": (SparkSum.made(of), "x")})
    sums = [sign * 2**40 * most, sign * 2**32 * most, sign * 2**32 * most, 5]
    counts = [2**40, 2**32, 2**32, 1]
    found = pa.table({"w0": sums, "p0": counts}, schema=pa.schema(
        {"w0": pa.decimal128(38, 0), "p0": pa.int64()}
    ))  # fmt: skip
    words = row.totals("m", found, np.array([True, True, True, False]))
    cells = tally_sums((3, 1), np.arange(3), words)
    total = roll_up_sums([("m",)], {("k", "m"): cells}, {"m"})["m",]
    high, low = (int(word.item()) for word in total)
    assert (high << LOW_BITS) + low == sum(sums[:3])
    assert low_word(total).dtype == np.int64
