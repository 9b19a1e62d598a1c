"""DuckDB's SQL for rows that are made of rows of private tables. Trusted.

Guarantees:
    1. `of_each_unit` has one row for each unit with rows in a table: its id, and how many they are,
       or the nearest number that is told apart; the largest one, if limits cut it. To add or to
       remove a unit with all of its rows adds or removes its row, and changes no other one.

       *Proof.* `rows_of_units` has (row, u) once for each row and each unit u that its way leads
       to, and adding or removing u leaves (row, v) for v ≠ u as it is (`engines/relations.py`). So
       each group by the id, alone or with cells of a limit's columns, is made of what one unit has
       alone, and there is one group by the id for each, which these groups are put into. ∎

    2. `of_no_unit` has the rows of a table that belong to nobody. To add or to remove a unit with
       all of its rows changes none of them, and to add or remove one of them changes no other one.

       *Proof.* Each step of the way is a FOREIGN KEY (`unit_rows.rows_without_unit` refuses
       others), so a row refers to one row or, where a column of the key is NULL, to none: it leads
       to one unit, or the way ends at a NULL, in itself or in one of the rows that it leads to.
       Such rows stay as they are when a unit comes or goes, as only rows come and go whose way
       leads to it, and these aren't among them. A LEFT JOIN with rows of which no two have the key
       keeps each row once. ∎
"""

from __future__ import annotations

from dpsql.engines.duckdb.coding import Coding, with_cells
from dpsql.engines.duckdb.columns import Parameters, whole
from dpsql.engines.duckdb.relations import has_unit, rows_of_units, way_of_all
from dpsql.engines.others import unit_name
from dpsql.engines.unit_rows import ROWS, RowsOfEachUnit, RowsWithoutUnit
from dpsql.errors import InternalError
from dpsql.rows.typed import call
from dpsql.schema.names import quoted_name, quoted_text
from dpsql.schema.units import UNIT, RowLimit

_COUNT = "system.main.count(*)"


def of_each_unit(made: RowsOfEachUnit) -> str:
    """Write what stands after FROM for units with the number of their rows."""
    unit_column = unit_name(made.table)
    unit = quoted_name(unit_column)
    rows = call("least", call("max", "n"), whole(made.most, "BIGINT"))
    rows = call("greatest", rows, whole(made.least, "BIGINT"))
    all_rows = rows_of_units(made.table, [], unit_column)
    queries = [f"SELECT {unit}, {_COUNT} AS n FROM ({all_rows}) GROUP BY {unit}"]
    queries += [_cut_by(limit, made, unit_column) for limit in made.limits]
    return (
        f"(SELECT {unit} AS {UNIT}, {rows} AS {ROWS} FROM ({' UNION ALL '.join(queries)}) "
        f"GROUP BY {unit})"
    )


def _cut_by(limit: RowLimit, made: RowsOfEachUnit, unit_column: str) -> str:
    """Write the query for units of whose rows a limit leaves some out, with the largest number.

    An earlier limit may have left them out already; but then the unit is cut by that.
    """
    prefix, unit = unit_column.removesuffix("unit"), quoted_name(unit_column)
    read = [unit, *map(quoted_name, limit.columns)]
    rows = rows_of_units(made.table, limit.columns, unit_column)
    coding = Coding(made.table)
    rows = with_cells(f"({rows})", coding, limit.columns, read, prefix, _Written())
    cells = (f"{prefix}c{i}" for i in range(len(limit.columns)))
    return (
        f"SELECT {unit}, {whole(made.most, 'BIGINT')} AS n FROM ({rows}) "
        f"GROUP BY {', '.join([unit, *cells])} HAVING {_COUNT} > {limit.rows}"
    )


class _Written(Parameters):
    """Parameters that are written where they are named: a text after FROM has none of its own."""

    def bind(self, key: tuple[str, str], value: object) -> str:
        """Return a value, which is a list, as it is written.

        Raises:
            InternalError: it is of another kind.
        """
        if not isinstance(value, list):
            raise InternalError("a value can't be written")
        return f"[{', '.join(map(_written, value))}]"


def _written(value: object) -> str:
    if isinstance(value, bytes):
        return quoted_text("".join(f"\\x{byte:02X}" for byte in value))  # as a BLOB is written
    return quoted_text(str(value))


def of_no_unit(made: RowsWithoutUnit) -> str:
    """Write what stands after FROM for rows that belong to nobody."""
    unit = made.table.unit
    if unit is None:
        raise InternalError("each row of a table without units is protected by itself")
    return f"(SELECT {whole(0)} AS n FROM {way_of_all(made.table)} WHERE NOT ({has_unit(unit)}))"
