"""Writers that are wrong in one place are found by random relations.

Each is a part that a dialect is mixed with.
"""

from __future__ import annotations

import duckdb
import pytest

from dpsql.engines.duckdb.relations import DuckDBRelations
from tests.rel.test_units import by_meaning, by_sql, cases

MOST_SEEDS = 60


class JoinsOtherUnits:
    """Forgets that both rows are of one unit."""

    def part(self, name, sql, *, once):
        return super().part(name, sql.replace("ON l.u = r.u", "ON true"), once=once)


class WindowsOverAll:
    """Forgets the unit in PARTITION BY."""

    def part(self, name, sql, *, once):
        return super().part(name, sql.replace("PARTITION BY u", "PARTITION BY 1"), once=once)


class NoLine:
    """Leaves it open which of two rows is first."""

    def told_apart(self, column, type_):
        return ()

    def _line_keys(self, of):
        return []


class LineWithoutSigns:
    """Takes the two zeros for one."""

    def told_apart(self, column, type_):
        return super().told_apart(column, type_)[:1]


class LineOfOneColumn:
    def _line_keys(self, of):
        return super()._line_keys(of)[:1]


class CollatedTexts:
    """Takes texts for the same that a collation does."""

    def identity(self, column, type_):
        return column


class CollatedLine:
    def told_apart(self, column, type_):
        return (column,)


class LosesRows:
    """Leaves rows out that meet nothing."""

    def part(self, name, sql, *, once):
        return super().part(name, sql.replace(" LEFT JOIN ", " JOIN "), once=once)


class KeepsOfAll:
    """Keeps one row too many of each unit."""

    def kept(self, of, rows, line, agree=()):
        return super().kept(of, rows + (not agree), line, agree)


class LimitsOverAll:
    """Forgets that a limit is for the rows of a unit in the same cells."""

    def kept(self, of, rows, line, agree=()):
        return super().kept(of, rows, line)


class LimitsForgotten:
    """Keeps one row too many of those in the same cells."""

    def kept(self, of, rows, line, agree=()):
        return super().kept(of, rows + bool(agree), line, agree)


MUTANTS = [
    JoinsOtherUnits, WindowsOverAll, NoLine, LineWithoutSigns, LineOfOneColumn, CollatedTexts,
    CollatedLine, LosesRows, KeepsOfAll, LimitsOverAll, LimitsForgotten,
]  # fmt: skip


def _is_wrong(writer, relation, database, con, rng):
    try:
        return by_sql(con, relation, writer) != by_meaning(database, relation, rng)
    except duckdb.Error:
        return True


@pytest.mark.parametrize("writer", MUTANTS)
def test_a_wrong_writer_is_found(writer):
    wrong = type(writer.__name__, (writer, DuckDBRelations), {})
    found = any(
        _is_wrong(wrong, relation, *places[0], rng)
        for seed in range(MOST_SEEDS)
        for relation, places, rng in cases(seed, 25)
    )
    assert found
