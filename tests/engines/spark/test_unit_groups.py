"""Units by groups in Spark: the same as in DuckDB, and of no other units."""

from __future__ import annotations

import numpy as np
import pytest

from dpsql.engines.duckdb.engine import DuckDBEngine
from dpsql.engines.spark.engine import SparkEngine
from tests.engines.spark.conftest import ManyFiles
from tests.engines.test_units import MARGINAL, NAME, by, filled, table_of

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::FutureWarning:pyspark")]


def counted(engine, table, groups):
    counting = engine.prepared(table, [MARGINAL], units={NAME: groups})
    counting.check()
    found = counting.run()
    assert found.units == {NAME: groups.most}
    return found[MARGINAL]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", ["INTEGER", "VARCHAR"])
@pytest.mark.parametrize("most", [2, 9])
def test_groups_are_those_of_duckdb_and_a_unit_changes_its_own(spark, tmp_path, kind, most):
    asked, arrays = by(9, most), []
    for place, without in (("whole", None), ("fewer", 6)):
        con = filled(kind, without=without)
        table, folder = table_of(con), tmp_path / place
        folder.mkdir()
        here = counted(SparkEngine(ManyFiles(spark, con, folder)), table, asked)
        np.testing.assert_array_equal(here, counted(DuckDBEngine(con), table, asked))
        arrays.append(here)
    change = arrays[0] - arrays[1]
    assert set(change.ravel().tolist()) <= {0, 1}
    assert 0 < change.sum() <= most
