"""Peers of dpsql asked for keys and for bounds that nobody knows; see `peers_keys`.

    python peers_tools.py TOOL ROWS.csv OUT.json

ROWS.csv has the columns `unit` and `key`, and OUT.json gets the version, what was spent, and keys
with their noisy counts for (ε, δ) = (1, 1e-9). Units have one row each if the file's name begins
with `one`, and else up to MOST keys. If it begins with `numbers`, ROWS.csv has a column `x`, and
OUT.json the noisy sum for ε = 1, of which a fifth finds bounds.

It runs in an interpreter that has the tool, and needs nothing of dpsql.
"""

from __future__ import annotations

import json
import sys
import warnings
from importlib.metadata import version
from pathlib import Path

EPSILON, DELTA, MOST = 1.0, 1e-9, 10


def opendp(rows, several):
    """Thresholded noise in the counts of all groups, Laplace noise where a unit has one row.

    Of a unit's groups the first are taken: the default, `keep="sample"`, fails in 0.16.0.
    """
    import opendp.prelude as dp
    import polars as pl

    dp.enable_features("contrib", "honest-but-curious")
    unit = {"identifier": pl.col("unit")} if several else {}
    context = dp.Context.compositor(
        data=pl.scan_csv(rows),
        privacy_unit=dp.unit_of(contributions=1, **unit),
        privacy_loss=dp.loss_of(epsilon=EPSILON, delta=DELTA),
        split_evenly_over=1,
    )
    query = context.query()
    if several:
        query = query.truncate_per_group(1, by=["key"])
        query = query.truncate_num_groups(MOST, by=["key"], keep="first")
    found = query.group_by("key").agg(dp.len(signed=True)).release().collect()
    return dict(found.iter_rows()), (EPSILON, DELTA)


def smartnoise_sql(rows, several):
    """COUNT of all groups of which a noisy number of units is above a threshold (`censor_dims`).

    What it says it has spent has 1.5 times the δ that it is given.
    """
    import pandas as pd
    import snsql

    frame = pd.read_csv(rows, keep_default_na=False)
    table = {"rows": len(frame), "key": {"type": "string"}, "clamp_counts": False}
    table["unit"] = {"type": "int", "private_id": True}
    table |= {"max_ids": MOST} if several else {"max_ids": 1}
    privacy = snsql.Privacy(epsilon=EPSILON, delta=DELTA / 1.5)
    reader = snsql.from_df(frame, privacy=privacy, metadata={"": {"s": {"t": table}}})
    counted = "COUNT(DISTINCT unit)"
    found = reader.execute(f"SELECT key, {counted} AS n FROM s.t GROUP BY key")
    return dict(found[1:]), tuple(map(float, reader.odometer.spent))


def tmlt_analytics(rows, several):
    """Groups by `get_groups`, for half of ε and all of δ, and then their counts."""
    from pyspark.sql import SparkSession
    from tmlt.analytics import (
        AddOneRow,
        AddRowsWithID,
        ApproxDPBudget,
        KeySet,
        MaxRowsPerID,
        QueryBuilder,
        Session,
    )

    spark = SparkSession.builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    frame = spark.read.csv(rows, header=True, schema="unit BIGINT, key STRING")
    change = AddRowsWithID("unit") if several else AddOneRow()
    budget = ApproxDPBudget(EPSILON, DELTA)
    session = Session.from_dataframe(budget, "t", frame, protected_change=change)
    table = QueryBuilder("t").enforce(MaxRowsPerID(MOST)) if several else QueryBuilder("t")
    half = ApproxDPBudget(EPSILON / 2, DELTA)
    groups = KeySet.from_dataframe(session.evaluate(table.get_groups(["key"]), half))
    counts = session.evaluate(table.groupby(groups).count(), session.remaining_privacy_budget)
    found = {row["key"]: row["count"] for row in counts.collect()}
    return found, (EPSILON, DELTA)  # as that is all that the session had


def pyqrlew(rows, several):
    """SQL that it writes, run by DuckDB: a threshold for half of ε and δ, the rest for counts."""
    import duckdb
    import pandas as pd
    import sqlalchemy
    from pyqrlew import Dialect
    from pyqrlew.wrappers import dataset_from_database

    frame = pd.read_csv(rows, keep_default_na=False)
    database = sqlalchemy.create_engine("sqlite://")
    frame.to_sql("t", database, index=False)
    dataset = dataset_from_database("d", database)
    most = MOST if several else 1
    query = dataset.relation("SELECT key, COUNT(*) AS n FROM t GROUP BY key")
    made = query.rewrite_with_differential_privacy(
        dataset,
        [("t", [], "unit")],
        {"epsilon": EPSILON, "delta": DELTA},
        max_multiplicity=float(most),
        max_multiplicity_share=1.0,
        max_privacy_unit_groups=most,
    )
    con = duckdb.connect()
    con.register("t", frame)
    found = con.sql(made.relation().to_query(Dialect.PostgreSql)).fetchall()
    return dict(found), (EPSILON, DELTA)


def sum_by_smartnoise_sql(rows):
    """Bounds by `approx_bounds`, which is no part of the SQL, and then SUM between them."""
    import pandas as pd
    import snsql
    from snsql.sql._mechanisms.approx_bounds import approx_bounds

    frame = pd.read_csv(rows)
    low, high = approx_bounds(frame["x"], EPSILON / 5)
    column = {"type": "float", "lower": low, "upper": high}
    table = {"row_privacy": True, "rows": len(frame), "x": column, "censor_dims": False}
    privacy = snsql.Privacy(epsilon=EPSILON * 4 / 5, delta=DELTA)
    reader = snsql.from_df(frame, privacy=privacy, metadata={"": {"s": {"t": table}}})
    found = reader.execute("SELECT SUM(x) AS s FROM s.t")
    spent = reader.odometer.spent
    return {"sum": found[1][0]}, (EPSILON / 5 + float(spent[0]), float(spent[1]))


def sum_by_tmlt_analytics(rows):
    """Bounds by `get_bounds`, and then a sum between them."""
    from pyspark.sql import SparkSession
    from tmlt.analytics import AddOneRow, PureDPBudget, QueryBuilder, Session

    spark = SparkSession.builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    frame = spark.read.csv(rows, header=True, schema="x DOUBLE")
    change = AddOneRow()
    session = Session.from_dataframe(PureDPBudget(EPSILON), "t", frame, protected_change=change)
    asked = QueryBuilder("t").get_bounds("x")
    (ends,) = session.evaluate(asked, PureDPBudget(EPSILON / 5)).collect()
    asked = QueryBuilder("t").sum("x", low=ends["x_lower_bound"], high=ends["x_upper_bound"])
    found = session.evaluate(asked, session.remaining_privacy_budget).collect()
    return {"sum": found[0][0]}, (EPSILON, 0.0)  # as that is all that the session had


SUMS = {"smartnoise_sql": sum_by_smartnoise_sql, "tmlt_analytics": sum_by_tmlt_analytics}
TOOLS = {tool.__name__: tool for tool in (opendp, smartnoise_sql, tmlt_analytics, pyqrlew)}
NAMES = {
    "opendp": "opendp",
    "smartnoise_sql": "smartnoise-sql",
    "tmlt_analytics": "tmlt.analytics",
    "pyqrlew": "pyqrlew",
}


def main() -> None:
    """Ask one tool."""
    warnings.simplefilter("ignore")
    tool, rows, out = sys.argv[1:]
    name = Path(rows).name
    if name.startswith("numbers"):
        found, spent = SUMS[tool](rows)
    else:
        found, spent = TOOLS[tool](rows, not name.startswith("one"))
    told = {str(key): float(n) for key, n in found.items() if key is not None}
    answer = {"version": version(NAMES[tool]), "spent": spent, "counts": told}
    Path(out).write_text(json.dumps(answer))


if __name__ == "__main__":
    main()
