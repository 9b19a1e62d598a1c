"""Records of the functions of rows against Spark: a rule has DuckDB's values, on hostile rows."""

from __future__ import annotations

import pytest

from dpsql.engines.spark.sql.expressions import spark_sql
from dpsql.errors import DpsqlError
from dpsql.rows.expression import RowConstant, columns
from dpsql.rows.functions import FUNCTIONS, of_shapes
from tests.engines.spark.test_expressions import STORED, check_values, hostile
from tests.rows.test_functions import NAMES, cases

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::FutureWarning:pyspark")]
__all__ = ["hostile"]
MOST_CALLS = 25
BEFORE = RowConstant("VARCHAR", "0 0 -1")
"""By which DuckDB reaches a moment before its first one, where Spark has NULL."""
EXTREMES = of_shapes("extreme")


@pytest.mark.parametrize("name", NAMES)
def test_its_values_are_duckdbs_or_it_is_refused(hostile, name):
    """Of what has no rule, all is refused; of what has one, not all is."""
    found = []
    for expression, value in cases(name):
        try:
            spark_sql(value)
        except DpsqlError:
            continue
        if columns(expression) <= STORED.keys() and BEFORE not in expression.arguments:
            found.append((expression, value))
    assert bool(found) is bool(FUNCTIONS[name].spark)
    # Of 0.0 and -0.0, which are equal, DuckDB takes the other one.
    check_values(
        hostile, signed=name not in EXTREMES, values=found[:: max(1, len(found) // MOST_CALLS)]
    )
