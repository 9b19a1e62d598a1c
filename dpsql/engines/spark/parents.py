"""Spark's rows with the columns that they have of other rows of their units. Trusted.

Guarantees:
    For each row there is one row, with its unit's data alone.

    *Proof.* Let a row of a table be (row, u) for each unit u that its way leads to; u's rows are
    those, and (row, v) for v ≠ u stays as it is when u comes or goes. No key is enforced here.
    `_with_ids` gives each (row, u) once, as it meets the distinct (key, u) of the rows that have
    the key. A row meets at most one row of a parent's table: those of its own unit whose key no
    other row of that unit has, of which there is one for each (key, u) (`_alone`). Of other rows of
    its unit it meets one group at most: groups are of ids of units and of columns that tell rows
    apart, one row for each. All joins of these are LEFT JOINs, so that the number of rows stays;
    and their conditions begin with the equality of all columns of the ids, so that by induction
    over the steps all that a row has is a function of its unit's rows.

    Where rows are chosen by what the row itself has, too (`_with_each`), it is computed for each
    combination of an id and of all values that are looked at, of which there is one row each, and
    rows meet that of their own. In it a double is its text, which tells -0.0 from 0.0 and is read
    as the same double, and a text its bytes, so rows of one combination agree in all that is read.
    A number of a row, as DuckDB's SQL has it, would be another one if part of a job ran again.

    Chosen rows are those of all rows of the table, with their ids, in which a column is between two
    numbers and a condition is true. Both are columns by what is said above and in `windows.py`.

    What is read before a `groupBy` and after it is the same, and no order has a say: `first` is of
    one row. Names that begin with `own` are of no table that is met; others are names of columns
    which the grain has once. ∎
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpsql.engines.lines import line_columns
from dpsql.engines.others import names_met, others_of, places_of
from dpsql.engines.spark.aggregates import aggregate_sql, empty_sql
from dpsql.engines.spark.lines import FLOATS, line_order, place_in_line
from dpsql.engines.spark.sessions import functions_of
from dpsql.engines.spark.sql.expressions import spark_sql
from dpsql.engines.spark.sql.text import identity, quoted, whole
from dpsql.engines.spark.tables import SparkTables
from dpsql.engines.spark.windows import with_windows
from dpsql.errors import InternalError
from dpsql.rows.within import RowsWithin
from dpsql.schema import Table
from dpsql.schema.grain import stored_type
from dpsql.schema.names import unused
from dpsql.schema.table import Parent
from dpsql.schema.units import KeyStep, ResolvedUnit
from dpsql.schema.windows import OUTSIDE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class OwnedRows:
    """Rows with the ids of their units.

    Args:
        tables: where rows come from.
        own: what no column's name begins with.
    """

    tables: SparkTables
    own: str

    @classmethod
    def of(cls, tables: SparkTables, table: Table) -> OwnedRows:
        """Return those of a table, with what they have of all others that they meet."""
        return cls(tables, unused(names_met(table)))

    @property
    def line(self) -> str:
        """The column with the places of rows in the line of their unit."""
        return f"{self.own}line"

    def ids(self, table: Table) -> list[str]:
        """Return the columns with the ids of units."""
        return [f"{self.own}id{i}" for i in range(len(unit_of(table).columns))]

    def told(self, table: Table) -> list[tuple[str, str]]:
        """Return what the ids of units are made of, with its types; bytes stand for texts.

        What is made of rows has the ids of these in one column, which is taken apart.
        """
        made = table
        while made.made_of:
            made = made.made_of[0]
        types, ids = [type_ for _, type_ in unit_of(made).columns], self.ids(table)
        if len(ids) < len(types):
            ids = [f"{ids[0]}.i{i}" for i in range(len(types))]
        return list(zip(ids, types, strict=True))

    def rows(self, table: Table, names: Collection[str], *, lined: bool = False) -> DataFrame:
        """Return all rows that belong to units, with the ids of these, and with columns of others.

        Args:
            table: the table.
            names: what is read of them: also of their parents, and of other rows of their units.
            lined: whether there is a column with their places in the line of their unit as well.
        """
        if table.chosen is not None:
            return self._chosen(table, names, lined=lined)
        others = others_of(table, names)
        counted = lined or any(window.lined for window in others.windows)
        line = list(line_columns(table.alone, others.stored)) if counted else []
        read = list(dict.fromkeys([*others.joined, *line]))
        found = self.with_ids(table.alone, list(dict.fromkeys([*others.stored, *line])))
        found = self.with_others(found, table, read)
        ids = self.ids(table)
        if counted:
            place = place_in_line(line_order(table.alone, others.stored), ids)
            found = found.selectExpr("*", f"{place} AS {self.line}")
        found = with_windows(found, others.windows, ids, self.line)
        return found.select(*map(quoted, names), *ids, *([self.line] if lined else []))

    def _chosen(self, table: Table, names: Collection[str], *, lined: bool) -> DataFrame:
        """Return those rows that have one of some places: `rows` of chosen ones."""
        places, chosen = places_of(table), table.chosen
        if chosen is None:
            raise InternalError("nothing says which rows are chosen")
        read = dict.fromkeys([*names, places.name, *sorted(places.columns)])
        found = self.rows(table.whole, list(read), lined=lined)
        ends = f"{whole(chosen.first)} AND {whole(chosen.last)}"
        holds = [f"{quoted(places.name)} BETWEEN {ends}"]
        if places.condition is not None:
            holds.append(f"({spark_sql(places.condition)}) IS TRUE")
        kept = found.where(" AND ".join(holds))
        line = [self.line] if lined else []
        return kept.select(*map(quoted, names), *self.ids(table), *line)

    def with_ids(self, table: Table, names: Sequence[str]) -> DataFrame:
        """Return stored columns of the rows that belong to units, with the ids of these."""
        unit, rows, ids = unit_of(table), self.tables.rows(table), self.ids(table)
        if not unit.joins:
            return _known(rows, unit).selectExpr(*map(quoted, names), *self._ids_of(unit))
        met = self._on_way(unit, 0)
        same = _same(unit.joins[0], "", self._keys(0, unit.joins[0]))
        return _joined(rows, met, same, "inner").select(*map(quoted, names), *ids)

    def _ids_of(self, unit: ResolvedUnit) -> list[str]:
        columns = enumerate(unit.columns)
        return [f"{identity(quoted(c), t)} AS {self.own}id{i}" for i, (c, t) in columns]

    def _keys(self, step: int, join: KeyStep) -> list[str]:
        return [f"{self.own}k{step}_{i}" for i in range(len(join.pairs))]

    def _on_way(self, unit: ResolvedUnit, step: int) -> DataFrame:
        """Return each key of the rows that a step leads to, once with each unit that it is of."""
        join, ids = unit.joins[step], [f"{self.own}id{i}" for i in range(len(unit.columns))]
        types, last = {pair.key: pair.type for pair in join.pairs}, step + 1 == len(unit.joins)
        rows = self.tables.at(join.path, types | (dict(unit.columns) if last else {}))
        keys = [
            f"{identity(quoted(pair.key), pair.type)} AS {key}"
            for pair, key in zip(join.pairs, self._keys(step, join), strict=True)
        ]
        if last:
            return _known(rows, unit).selectExpr(*keys, *self._ids_of(unit)).distinct()
        # These tables have other columns besides, which could have our names.
        onward, referred = unit.joins[step + 1], f"{self.own}r"
        refers = enumerate(onward.pairs)
        shown = [f"{identity(quoted(p.column), p.type)} AS {referred}{i}" for i, p in refers]
        met = enumerate(self._keys(step + 1, onward))
        same = [f"{referred}{i} = {key}" for i, key in met]
        found = _joined(rows.selectExpr(*keys, *shown), self._on_way(unit, step + 1), same, "inner")
        return found.selectExpr(*self._keys(step, join), *ids).distinct()

    def with_others(self, rows: DataFrame, table: Table, names: Collection[str]) -> DataFrame:
        """Add to rows with ids what they have of other rows of their units.

        Args:
            rows: what is stored of them.
            table: the table with the columns of others.
            names: what is read of both.
        """
        others, ids = others_of(table, names), self.ids(table)
        if others.windows or any(parent.on_way for parent in others.parents):
            raise InternalError("windows come later, and no key of Spark is enforced")
        needed = [*others.needed, *names]
        for parent in others.parents:
            rows = self._with_parent(rows, parent, others.parents, needed)
        for one in others.within:
            rows = self._with_each(rows, table, one) if one.outside else self._with_group(rows, one)
        return rows.select(*map(quoted, dict.fromkeys(names)), *ids)

    def _with_parent(
        self, rows: DataFrame, parent: Parent, parents: Sequence[Parent], needed: Collection[str]
    ) -> DataFrame:
        """Add the columns of the rows that rows refer to, of those that are alone of their unit."""
        own, join, before = self.own, parent.join, rows.columns
        read = {of for of, name in parent.names.items() if name in needed}
        read |= {name for p in parents if p.above == parent.prefix for name in p.join.columns}
        listed, ids = sorted(read), self.ids(parent.table)
        met = self._alone(parent, listed)
        units = [f"{id_} = {own}u{i}" for i, id_ in enumerate(ids)]
        keys = [f"{own}k{i}" for i in range(len(join.pairs))]
        same = [*units, *_same(join, parent.above, keys)]
        shown = [f"{own}v{i} AS {quoted(parent.prefix + of)}" for i, of in enumerate(listed)]
        shown.append(f"CASE WHEN {own}u0 IS NOT NULL THEN true END AS {quoted(parent.matched)}")
        return _joined(rows, met, same, "left").selectExpr(*map(quoted, before), *shown)

    def _alone(self, parent: Parent, names: Sequence[str]) -> DataFrame:
        """Return the rows of a parent's table that have a key alone among those of their unit."""
        own, join, ids = self.own, parent.join, self.ids(parent.table)
        read = list(dict.fromkeys([*names, *join.keys]))
        rows = self.with_ids(parent.table.alone, read)
        pairs = enumerate(join.pairs)
        keys = [f"{identity(quoted(p.key), p.type)} AS {own}k{i}" for i, p in pairs]
        units = [f"{id_} AS {own}u{i}" for i, id_ in enumerate(ids)]
        values = [f"{quoted(name)} AS {own}v{i}" for i, name in enumerate(names)]
        found = rows.selectExpr(*keys, *units, *values)
        by = [f"{own}k{i}" for i in range(len(keys))] + [f"{own}u{i}" for i in range(len(units))]
        functions = functions_of(rows)
        added = [functions.count(functions.lit(1)).alias(f"{own}n")]
        # The aggregate is of one row: of several it would be left open which of them it is of.
        firsts = [functions.first(f"{own}v{i}").alias(f"{own}v{i}") for i in range(len(values))]
        return found.groupBy(*by).agg(*added, *firsts).where(f"{own}n = {whole(1)}")

    def _with_group(self, rows: DataFrame, one: RowsWithin) -> DataFrame:
        """Add what is computed of the rows of the unit that agree in some columns."""
        own, ids, paired = self.own, self.ids(one.table), [inner for _, inner in one.pairs]
        found = self.rows(one.table, list(dict.fromkeys([*sorted(one.columns), *paired])))
        if one.condition is not None:
            found = found.where(spark_sql(one.condition))
        keys = [identity(quoted(inner), stored_type(one.table, inner)) for inner in paired]
        named = [f"{key} AS {own}k{i}" for i, key in enumerate(keys)]
        units = [f"{id_} AS {own}u{i}" for i, id_ in enumerate(ids)]
        by = [f"{own}u{i}" for i in range(len(ids))] + [f"{own}k{i}" for i in range(len(keys))]
        groups = _grouped(found.selectExpr("*", *units, *named), by, one, own)
        same = [f"{id_} = {own}u{i}" for i, id_ in enumerate(ids)]
        for i, (outer, inner) in enumerate(one.pairs):
            same.append(f"{identity(quoted(outer), stored_type(one.table, inner))} = {own}k{i}")
        return self._with_found(rows, groups, same, one)

    def _with_each(self, rows: DataFrame, table: Table, one: RowsWithin) -> DataFrame:
        """Add what is computed of rows of the unit for which something is true beside the row."""
        own, ids, paired = self.own, self.ids(table), [inner for _, inner in one.pairs]
        looked = list(dict.fromkeys([*(outer for outer, _ in one.pairs), *one.outside]))
        types = {name: stored_type(table, name) for name in looked}
        keys = {name: key_of(quoted(name), types[name]) for name in looked}
        places = {name: f"{own}o{i}" for i, name in enumerate(looked)}
        units = [f"{id_} AS {own}u{i}" for i, id_ in enumerate(ids)]
        asked = rows.selectExpr(*units, *(f"{keys[n]} AS {places[n]}" for n in looked)).distinct()
        read = list(dict.fromkeys([*sorted(one.columns), *paired]))
        same = [f"{id_} = {own}u{i}" for i, id_ in enumerate(ids)]
        for outer, inner in one.pairs:
            sides = value_of(places[outer], types[outer]), quoted(inner)
            same.append(" = ".join(identity(s, stored_type(one.table, inner)) for s in sides))
        met = _joined(asked, self.rows(one.table, read), same, "inner")
        outside = [
            f"{value_of(places[name], types[name])} AS {quoted(OUTSIDE + name)}"
            for name in one.outside
        ]
        by = [*(f"{own}u{i}" for i in range(len(ids))), *places.values()]
        met = met.selectExpr(*by, *map(quoted, read), *outside)
        if one.condition is not None:
            met = met.where(spark_sql(one.condition))
        groups = _grouped(met, by, one, own)
        same = [f"{id_} = {own}u{i}" for i, id_ in enumerate(ids)]
        same += [f"{keys[name]} <=> {places[name]}" for name in looked]
        return self._with_found(rows, groups, same, one)

    def _with_found(
        self, rows: DataFrame, groups: DataFrame, same: Sequence[str], one: RowsWithin
    ) -> DataFrame:
        """Add what is computed of groups, or of no rows where there is none."""
        own, before = self.own, rows.columns
        missing = f"{own}u0 IS NULL"
        value = f"CASE WHEN {missing} THEN {empty_sql(one.value)} ELSE {own}v END"
        met = _joined(rows, groups, same, "left")
        return met.selectExpr(*map(quoted, before), f"{value} AS {quoted(one.name)}")


def unit_of(table: Table) -> ResolvedUnit:
    """Return the unit that rows are of."""
    if table.unit is None:
        raise InternalError("the rows of a table without a unit have none")
    return table.unit


def _known(rows: DataFrame, unit: ResolvedUnit) -> DataFrame:
    """Leave out rows that belong to nobody."""
    return rows.where(" AND ".join(f"{quoted(name)} IS NOT NULL" for name, _ in unit.columns))


def _same(join: KeyStep, above: str, keys: Sequence[str]) -> list[str]:
    """Write that a row refers to another one, of which keys are known as they are told apart."""
    return [
        f"{identity(quoted(above + pair.column), pair.type)} = {key}"
        for pair, key in zip(join.pairs, keys, strict=True)
    ]


def _joined(rows: DataFrame, met: DataFrame, same: Sequence[str], how: str) -> DataFrame:
    return rows.join(met, functions_of(rows).expr(" AND ".join(same)), how)


def _grouped(rows: DataFrame, by: Sequence[str], one: RowsWithin, own: str) -> DataFrame:
    value = functions_of(rows).expr("".join(aggregate_sql(one.value))).alias(f"{own}v")
    if one.value.function == "exists":  # which is no function of Spark's, but what a group says
        return rows.select(*by).distinct().selectExpr("*", f"true AS {own}v")
    return rows.groupBy(*by).agg(value)


def key_of(column: str, type_: str) -> str:
    """Write what tells values apart, and can be read as the value."""
    if type_ in FLOATS:
        return f"CAST(CAST({column} AS DOUBLE) AS STRING)"
    return identity(column, type_)


def value_of(key: str, type_: str) -> str:
    """Write the value that a key stands for."""
    if type_ == "VARCHAR":
        return f"CAST({key} AS STRING)"
    return f"CAST({key} AS {type_})" if type_ in FLOATS else key
