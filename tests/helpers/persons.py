"""Persons of whom one may be left out: the same found of both databases, all else is compared."""

from __future__ import annotations

import duckdb

from tests.helpers.charging import charged
from tests.release.test_random_databases import check_within_charge
from tests.release.test_sums_of_neighbors import recorded_in


def persons(column, rows, without=None):
    """Return a table t of the rows of persons `p`, with a column and a number x from 0 to 3."""
    con = duckdb.connect()
    con.execute(f"CREATE TABLE t (p INTEGER NOT NULL, {column}, x INTEGER NOT NULL "
                "CHECK (x BETWEEN 0 AND 3))")  # fmt: skip
    for row in rows:
        if row[0] != without:
            con.execute("INSERT INTO t VALUES (?, ?, ?)", row)
    return con


def check_found_alike(sessions, script, told, **how):
    """Check that sessions differ by what is charged, if the same is told of their rows.

    Args:
        sessions: the whole, and that without a person.
        script: the statements.
        told: makes a context in which that is told.
        how: options of the release.

    Returns:
        What either has been charged, as ρ and δ.
    """
    seen, charges = [], []
    for session in sessions:
        with told():
            seen.append(recorded_in(session, script, **how))
        charges.append(charged(session))
    check_within_charge(*seen)
    assert charges[0] == charges[1]
    return charges[0]
