"""Every accepted query, contracted with exact counts, equals DuckDB's own answer."""

import pytest

from dpsql.sql import KeyColumn, ValueColumn, compile_script, split_script
from tests.sql import reference

STATEMENTS = [
    (f"{path.stem}/{name}", sql)
    for path in sorted((reference.FIXTURES / "accepted").glob("*.sql"))
    for name, sql in split_script(path.read_text())
]


@pytest.fixture(scope="module")
def con():
    return reference.connect()


def test_enough_queries():
    assert len(STATEMENTS) >= 40


@pytest.mark.parametrize(("name", "sql"), STATEMENTS, ids=[name for name, _ in STATEMENTS])
def test_equals_duckdb(con, name, sql):
    script = reference.compile_one(con, sql, name)
    (statement,) = script.statements
    ours = reference.answer(con, script, statement)
    theirs = reference.duckdb_answer(con, sql, statement)
    assert set(theirs) <= set(ours)
    running = "OVER" in sql
    for group, values in ours.items():
        if group in theirs:
            assert values == theirs[group], group
        elif not running:
            assert set(values) == {0.0}, group


@pytest.mark.parametrize(("name", "sql"), STATEMENTS, ids=[name for name, _ in STATEMENTS])
def test_shapes_agree(con, name, sql):
    script = reference.compile_one(con, sql, name)
    (statement,) = script.statements
    assert (statement.name, statement.sql) == (name, sql)
    for column in statement.columns:
        if isinstance(column, KeyColumn):
            assert len(column.codes) == statement.shape[column.block]
        else:
            family = script.workload.families[column.family]
            assert family.shape == statement.shape
            assert family.name == name


def test_output_names_are_duckdbs(con):
    for name, sql in STATEMENTS:
        script = reference.compile_one(con, sql, name)
        ours = [
            c.alias if isinstance(c, ValueColumn) else c.name for c in script.statements[0].columns
        ]
        theirs = [d[0] for d in con.execute(sql).description]
        con.fetchall()
        for mine, other in zip(ours, theirs, strict=True):
            if "(" not in other:  # DuckDB calls an unnamed count "count_star()"
                assert mine.lower() == other.lower()


def test_default_names(con):
    sql = "SELECT age, COUNT(*), SUM(COUNT(*)) OVER (ORDER BY age) FROM people GROUP BY age"
    columns = reference.compile_one(con, sql).statements[0].columns
    assert [c.alias for c in columns[1:]] == ["count", "cumulative_count"]


def test_everything_in_one_script(con):
    script = compile_script(STATEMENTS, lambda parts: reference.read_table(con, parts))
    assert [s.name for s in script.statements] == [name for name, _ in STATEMENTS]
    families = [c.family for s in script.statements for c in s.columns if hasattr(c, "family")]
    assert families == list(range(len(script.workload.families)))
    assert list(script.workload.domain) == [
        c for c in script.table.columns if c in script.workload.domain
    ]


def test_plain_keys_stay_factors(con):
    sql = "SELECT sex, age, COUNT(*) FROM people GROUP BY sex, age"
    (family,) = reference.compile_one(con, sql).workload.families
    assert [b.attributes for b in family.blocks] == [("sex",), ("age",)]


def test_shared_columns_become_one_block(con):
    sql = "SELECT sex, COUNT(*) FROM people WHERE age > hours AND hours < years GROUP BY sex"
    (family,) = reference.compile_one(con, sql).workload.families
    assert [b.attributes for b in family.blocks] == [("sex",), ("age", "hours", "years")]


def test_impossible_groups_are_left_out(con):
    sql = "SELECT hours, COUNT(*) FROM people WHERE hours + years > 18 GROUP BY hours"
    script = reference.compile_one(con, sql)
    assert script.statements[0].columns[0].codes.tolist() == [11, 12]


def test_empty_total_is_one_zero_row(con):
    script = reference.compile_one(con, "SELECT COUNT(*) FROM people WHERE 1 = 2")
    (family,) = script.workload.families
    assert family.shape == (1,)
    assert not family.blocks[0].queries.matrix.any()
