"""DuckDB's SQL for distinct values by groups. Trusted.

Guarantees:
    *With units.* What is read are the values that units have in groups, each once: at most m groups
    of a unit, with at most k values of each, or l·m pairs of a group and a value in all. Which
    these are follows from the rows of the unit alone. How many of the values units cover is the
    matter of `engines/distinct.py`, which says what a unit changes: l in each group, and l·m in
    all of them.

    *Proof.* The rows are those of `units.py`, each of one unit, and so are the groups; a value is
    a total function of its row. DISTINCT leaves one row for each unit, group and value. Groups of
    a unit are numbered by a window that is PARTITION BY its id, in the order of an MD5 of id and
    group and then of the group, and those with numbers from 1 to m stay; values are numbered among
    those of the unit, or of the unit and group, in the order of an MD5 of all three and then of
    both, and those with numbers from 1 to k stay. That is done where there are more of them; of
    all others each has such a number. No two rows of one unit tie. Values are compared by bytes,
    and NULL is none. ∎

    *Without units* each row is one, in at most m groups by the cells that it lies in. It has one
    value, which adds one to the number of values of a group or nothing, and never takes one away.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.ma  # which DuckDB's arrays are; not when the budget is gone

from dpsql.engines.base import Counts, Marginal, Measures, Words
from dpsql.engines.cover import tally
from dpsql.engines.distinct import check_groups_of_a_row, covered, values_of
from dpsql.engines.duckdb.bounded import in_order
from dpsql.engines.duckdb.catalog import check_bound
from dpsql.engines.duckdb.coding import Coding
from dpsql.engines.duckdb.columns import whole
from dpsql.engines.duckdb.units import UnitsInGroups
from dpsql.errors import InternalError
from dpsql.rel.distinct import DistinctValues
from dpsql.rows.typed import call, text_of

if TYPE_CHECKING:
    import duckdb

BATCH = 100_000
"""Groups of units that are read together."""


@dataclass(frozen=True, slots=True)
class DistinctScan:
    """A statement that reads which values units have in groups.

    Args:
        sql: the statement, as rows of (g, v) with v a list; of (g, n) if rows are units.
        parameters: its parameters.
        marginal: the groups, and what says that values are counted.
        shape: how many there are of each.
        values: what is counted.
    """

    sql: str
    parameters: tuple[Any, ...]
    marginal: Marginal
    shape: tuple[int, ...]
    values: DistinctValues
    steps: int = field(default=1, init=False)
    """The number of steps in which progress is told."""

    @classmethod
    def of(
        cls, coding: Coding, marginal: Marginal, name: str, groups: DistinctValues, of: Measures
    ) -> DistinctScan:
        """Write it.

        Args:
            coding: how rows get their cells.
            marginal: the groups, and `name`.
            name: what says that values are counted.
            groups: which values, and of which groups.
            of: what is computed row by row, of which one may be a condition.

        Raises:
            InternalError: rows are not those of units, where units are meant.
        """
        rows = groups.of_rows
        if rows:
            check_groups_of_a_row(groups)
        written = UnitsInGroups(coding, groups, of, groups.value, of_rows=rows)
        sql = _of_rows(written) if rows else _of_units(written, groups)
        shape = tuple(1 if axis == name else groups.count for axis in marginal)
        return cls(sql, tuple(written.parameters.values), marginal, shape, groups)

    def check(self, con: duckdb.DuckDBPyConnection) -> None:
        """Have DuckDB bind the statement and its parameters; see `fetching.check_bound`."""
        check_bound(con, self.sql, self.parameters)

    def run(
        self, con: duckdb.DuckDBPyConnection, on_step: Callable[[int], None] = lambda _: None
    ) -> tuple[dict[Marginal, Counts], dict[Marginal, Words]]:
        """Run the statement, in one step; return the numbers of values."""
        if self.values.of_rows:
            read = con.execute(self.sql, list(self.parameters)).fetchnumpy()
            counts = tally(self.shape, _plain(read["g"]), _plain(read["n"]))
            return {self.marginal: counts}, {}
        values = values_of(con.sql(self.sql, params=list(self.parameters)).to_arrow_table(BATCH))
        covers = covered(values, self.values.count, self.values.each)
        return {self.marginal: covers.reshape(self.shape)}, {}


def _plain(column: Any) -> Counts:
    """Return a column of BIGINTs that has no NULL."""
    return np.ma.filled(column, 0).astype(np.int64)


def _of_rows(written: UnitsInGroups) -> str:
    count = call("count_star")
    return f"SELECT g, {count} AS n FROM ({written.each()}) GROUP BY g"


def _of_units(written: UnitsInGroups, groups: DistinctValues) -> str:
    """Write which values units have in groups, as far as these count."""
    if groups.kept_of_all and groups.kept > groups.each * groups.most:
        raise InternalError("more values of a unit are looked at than may be")
    pairs = written.each()
    shown = _joined("u::VARCHAR", "g::VARCHAR")
    if not groups.kept_of_all and groups.most < groups.count:
        order = in_order([_md5(shown), "g"])
        place = f"{call('dense_rank')} OVER (PARTITION BY u ORDER BY {order})"
        pairs = _first(pairs, place, groups.most)
    among = "u" if groups.kept_of_all else "u, g"
    order = in_order([_md5(_joined(shown, call("hex", "v"))), "g", "v"])
    place = f"{call('row_number')} OVER (PARTITION BY {among} ORDER BY {order})"
    many = f"SELECT {among} FROM found GROUP BY {among} HAVING {call('count_star')} > "
    many += whole(groups.kept, "BIGINT")
    crowded = _first(f"SELECT * FROM found SEMI JOIN many USING ({among})", place, groups.kept)
    return (
        f"WITH found AS MATERIALIZED ({pairs}), many AS MATERIALIZED ({many}), "
        f"kept AS (SELECT u, g, v FROM found ANTI JOIN many USING ({among}) UNION ALL {crowded}) "
        f"SELECT g, {call('list', 'v')} AS v FROM kept GROUP BY u, g"
    )


def _first(pairs: str, place: str, most: int) -> str:
    numbered = f"SELECT u, g, v, {place} AS r FROM ({pairs})"
    return f"SELECT u, g, v FROM ({numbered}) WHERE r <= {whole(most, 'BIGINT')}"


def _joined(first: str, second: str) -> str:
    return call("concat", first, text_of(" "), second)


def _md5(text: str) -> str:
    return call("md5_number", call("encode", text))
