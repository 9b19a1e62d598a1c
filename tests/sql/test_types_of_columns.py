"""Every type of DuckDB as a key, in a condition, in a cast and with a domain.

Each is answered as DuckDB answers, or refused with a hint. Hints are followed as they are typed,
one after the other, until there is an answer.
"""

from __future__ import annotations

import re

import duckdb
import pytest

import dpsql
from dpsql import Domain

VALUES = {
    "BOOLEAN": "true false", "TINYINT": "1 2", "SMALLINT": "1 2", "INTEGER": "1 2",
    "BIGINT": "1 2", "UTINYINT": "1 2", "USMALLINT": "1 2", "UINTEGER": "1 2", "UBIGINT": "1 2",
    "HUGEINT": "1 2", "UHUGEINT": "1 2", "BIGNUM": "1 2", "DECIMAL": "1.000 2.000",
    "FLOAT": "1.0 2.0", "DOUBLE": "1.0 2.0", "VARCHAR": "a b", "ENUM": "a b", "BLOB": "a b",
    "BIT": "01 10", "UUID": "0df9cd31-32a8-4a8b-9a57-000000000001 "
    "0df9cd31-32a8-4a8b-9a57-000000000002", "INTERVAL": "01:00:00 02:00:00",
    "DATE": "2021-03-01 2021-03-02", "TIME": "10:00:00 11:30:00", "TIME_NS": "10:00:00 11:30:00",
    "TIME WITH TIME ZONE": "10:00:00+00 11:30:00+00",
} | dict.fromkeys(
    ["TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS"],
    "2021-03-01T10:00:00 2021-03-02T11:00:00",
)  # fmt: skip
"""Of each type two values, as texts."""
NESTED = {
    "TUPLE",
    "TIMESTAMPTZ_NS",
    "TIMESTAMP WITH TIME ZONE",
    "LIST",
    "STRUCT",
    "MAP",
    "UNION",
    "ARRAY",
    "VARIANT",
    "GEOMETRY",
    "NULL",
    "TYPE",
}
"""What isn't a scalar, or no type of a column, or is one of a zone: `test_times.py` has these."""
DOMAINS = [
    Domain.integers(0, 3, nullable=True),
    Domain.dates("2021-03-01", "2021-03-03", nullable=True),
    Domain.labels(["a", "b", "other"], other="other", nullable=True),
    Domain.decimals(0, 3, 1, nullable=True),
    Domain.labels(["a", "b"], nullable=True),
    Domain.boolean(nullable=True),
]
ASKED = {
    "key": "SELECT x, COUNT(*) AS n FROM t GROUP BY x",
    "condition": "SELECT COUNT(*) AS n FROM t WHERE x = '{}'",
    "cast": "SELECT COUNT(*) AS n FROM t WHERE CAST(x AS VARCHAR) >= '{}'",
    "domain": "SELECT x, COUNT(*) AS n FROM t GROUP BY x",
}
LABELS = "'a', 'b'"


def create(type_):
    first, second = VALUES[type_].split()
    con = duckdb.connect(config={"threads": 1})
    con.execute(f"CREATE TABLE t (x {f'ENUM ({LABELS})' if type_ == 'ENUM' else type_})")
    for value in (first, first, second, None):
        con.execute("INSERT INTO t SELECT ?::VARCHAR", [value])
    return con, first


def counts(rows):
    return sorted(round(row[-1]) for row in rows if round(row[-1]))


def ask(con, sql, schema):
    session = dpsql.Session(con, schema=schema, accept_schema=True)
    frame = session.query(sql, budget=dpsql.Budget(rho=10**12))
    return counts(frame.drop([n for n in frame.columns if n.endswith("_variance")]).rows())


def declared(con, sql, table):
    """Declare each domain in turn; return the first that fits, or what the last refusal says."""
    refused = None
    for domain in DOMAINS:
        try:
            return ask(con, sql, {table: {"x": domain}})
        except dpsql.DpsqlError as error:
            refused = refused or error
    raise refused


def follow(con, hint, sql, table):
    """Do what a hint says: return the statement, its table and its schema afterwards."""
    if found := re.search(r"ALTER TABLE (?:…|t|t_stored) (ALTER x TYPE \w+);", hint):
        con.execute(f"ALTER TABLE {table} {found[1]}")
        return sql, table, None
    if found := re.search(r"CREATE TABLE (t_stored) AS .*;", hint):
        con.execute(found[0])
        return sql.replace("FROM t ", "FROM t_stored "), "t_stored", None
    if found := re.search(r"pass schema=(dpsql\.Schema\(.*\))\.$", hint):
        return sql, table, eval(found[1], {"dpsql": dpsql})  # noqa: S307
    if found := re.search(r"group by (hour\(x\))\.$", hint):
        return re.sub(r"\bx\b", found[1], sql), table, None
    if hint.startswith("write a TIME, "):
        return sql.replace("+00", ""), table, None
    raise AssertionError(f"nobody can type: {hint}")


def test_all_types_of_duckdb_are_asked():
    con = duckdb.connect()
    found = con.execute("SELECT DISTINCT logical_type FROM duckdb_types()").fetchall()
    assert {name for (name,) in found} - NESTED <= set(VALUES)


@pytest.mark.sampled(24)
@pytest.mark.parametrize("place", ASKED)
@pytest.mark.parametrize("type_", VALUES)
def test_each_is_answered_as_by_duckdb_or_its_hints_lead_there(type_, place):
    con, first = create(type_)
    sql, table, schema = ASKED[place].format(first.replace("T", " ")), "t", None
    for _ in range(4):
        try:
            if place == "domain" and not schema and "hour" not in sql:
                found = declared(con, sql, table)
            else:
                found = ask(con, sql, schema)
        except dpsql.DpsqlError as error:
            sql, table, schema = follow(con, error.hint, sql, table)
            continue
        right = counts(con.execute(sql).fetchall())
        assert found == right or ((schema or table == "t_stored") and sum(found) == sum(right))
        return
    raise AssertionError("the hints never end")
