"""Translators and writers that are wrong in one place are found by random statements.

Each is a part of which something is left out. Some give other answers, and some change more than
one unit's rows, or more than is charged for.
"""

from __future__ import annotations

import random

import pytest

from dpsql.engines.duckdb.relations import DuckDBRelations
from dpsql.engines.table_relations import TableRelation
from dpsql.errors import InternalError
from dpsql.rel.nodes import Bound, Filter
from dpsql.sql.algebra import asides, meeting, queries, selects
from dpsql.sql.algebra.described import DescribedRelation
from tests.helpers.random_related import RelatedDatabase
from tests.release.test_related_rows import differing, kept, tables_of

MOST_SEEDS = 400


def changes_others(seed):
    """Whether a unit takes other rows with it than its own, or more than are charged for."""
    rng = random.Random(seed)  # noqa: S311
    database = RelatedDatabase(rng)
    script, con = database.questions().script(), database.connect()
    tables = tables_of(con, database, script)
    fewer = None if tables is None else database.connect(without=database.apart)
    for table in tables or ():
        names = [*table.alone.columns, *table.alone.undeclared]
        before, after = kept(con, table, names), kept(fewer, table, names)
        most = table.unit_rows
        if not after <= before or (most is not None and (before - after).total() > most):
            return True
    return False


def is_wrong(property_, seed):
    try:
        return bool(property_(seed))
    except InternalError:  # what is trusted has refused it
        return True


# ── Translators that give other answers ──────────────────────────────────────────────────────────


def no_equality_of_units(patch):
    patch.setattr(meeting._Meeting, "_check_unit", lambda *_: None)
    patch.setattr(DescribedRelation, "telling", lambda *_: True)


def everything_tells_the_unit(patch):
    patch.setattr(
        queries.Queries,
        "keys_told",
        lambda self, table: {
            name: frozenset({queries.UNIT})
            for name in (*table.alone.columns, *table.alone.undeclared)
        },
    )


def conditions_that_are_lost_before_groups(patch):
    class Without(selects.RowsOfSelect):
        def group(self, keys):
            self.where = ()
            super().group(keys)

    patch.setattr(queries, "RowsOfSelect", Without)


def windows_that_see_what_is_left_out(patch):
    given = selects.WindowCall
    patch.setattr(selects, "WindowCall", lambda *parts: given(*parts[:-1], None))


def conditions_of_the_right_that_are_lost(patch):
    patch.setattr(meeting._Meeting, "_materialize", lambda self, part: None)


def conditions_of_subqueries_that_are_lost(patch):
    patch.setattr(asides, "Filter", lambda relation, where: relation)


def left_joins_that_lose_rows(patch):
    given = meeting.Join
    patch.setattr(meeting, "Join", lambda left, right, on, kind="inner": given(left, right, on))


ANSWERS = [
    no_equality_of_units, everything_tells_the_unit, conditions_that_are_lost_before_groups,
    windows_that_see_what_is_left_out, conditions_of_the_right_that_are_lost,
    conditions_of_subqueries_that_are_lost, left_joins_that_lose_rows,
]  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("mutate", ANSWERS)
def test_other_answers_are_found(monkeypatch, mutate):
    mutate(monkeypatch)
    assert any(is_wrong(differing, seed) for seed in range(MOST_SEEDS))


# ── Writers, and what is trusted ─────────────────────────────────────────────────────────────────


def no_bound(patch):
    patch.setattr(TableRelation, "with_bound", lambda self, table: self)


def bounds_that_keep_one_row_more(patch):
    given = DuckDBRelations.kept
    patch.setattr(
        DuckDBRelations,
        "kept",
        lambda self, of, rows, line, agree=(): given(self, of, rows + 1, line, agree),
    )


def bounds_below_what_adds_rows(patch):
    """Keeps rows before they meet others."""
    given = TableRelation.with_bound

    def below(self, table):
        made = given(self, table)
        node = made.relation
        while isinstance(node, Bound | Filter):
            node = node.of
        return made.above(node)

    patch.setattr(TableRelation, "with_bound", below)


def joins_of_other_units(patch):
    given = DuckDBRelations.part
    patch.setattr(
        DuckDBRelations,
        "part",
        lambda self, name, sql, *, once: given(
            self, name, sql.replace("l.u = r.u AND", ""), once=once
        ),
    )


ROWS = [
    no_bound, bounds_that_keep_one_row_more, bounds_below_what_adds_rows, joins_of_other_units,
]  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("mutate", ROWS)
def test_rows_of_other_units_and_too_many_are_found(monkeypatch, mutate):
    mutate(monkeypatch)
    assert any(is_wrong(changes_others, seed) for seed in range(MOST_SEEDS))
