"""Cells that no statement tells apart, found before joint cells are made of them.

What couples several columns is evaluated over their joint cells, and cells that all matrices treat
alike are merged afterwards (`classes.py`). Of `(price < 10 AND day > 5) OR (price > 90 AND day =
1)` that would be every price with every day. Where joint cells are too many, each expression is
looked at first: of the price it takes no more than whether it is below 10, and above 90. One value
then stands for all that are alike in this, and joint cells are made of those alone.

Let a column be seen through some *parts* of the expressions in which it stands: the largest ones
that depend on nothing else. Whatever is computed of a row is a function of the values of these
parts and of the other columns, so values of the column for which each part has one value are alike:
what a row adds is the same in each joint cell of theirs. A public table that is joined by an
equality of the column with something that has another value in each of its rows depends on nothing
else either. A value has one row of it, or none, and which it is, is the same for each part that has
columns of the table; where there is none, nothing is added.

Values are compared as text, which tells apart what equality doesn't, like 0.0 and −0.0. NULL, and
rows outside the domain, keep their own cells.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from sqlglot import exp

from dpsql.linalg.arrays import Ints
from dpsql.schema import Domain, Table
from dpsql.sql.binding.core import Core, Relation, expressions
from dpsql.sql.binding.expressions import BoundExpr, Expr, render
from dpsql.sql.lowering.lookups import implied_equalities
from dpsql.sql.sandbox.database import Sandbox
from dpsql.workload.cells import common_refinement

MOST_VALUES = 2**23
"""Values of a column that are written out to be looked at; a gigabyte holds no more of them."""


@dataclass(frozen=True, slots=True)
class SomeValues(Domain):
    """Some values of a domain, each for all that are alike; the domain itself was checked."""

    def __post_init__(self) -> None:
        pass


def alike_cells(
    sandbox: Sandbox, table: Table, cores: Iterable[Core], split: Mapping[str, Ints]
) -> dict[str, Ints]:
    """Return the class of each cell of a domain, for the columns with fewer classes than cells.

    Classes are numbered in the order of their first cells, as fine as those of `split`.

    Raises:
        SandboxError: DuckDB can't compute a part of an expression.
    """
    found: dict[str, list[Ints]] = {}
    for core in cores:
        looking = _ColumnParts(sandbox, table, core)
        for name in looking.names:
            found.setdefault(name, []).append(looking.classes(name))
    for name, classes in found.items():
        if name in split:
            classes.append(split[name][: table.columns[name].size])
    joint = {name: common_refinement(classes) for name, classes in found.items()}
    return {name: of for name, of in joint.items() if of.max() + 1 < len(of)}


def with_one_of_each(table: Table, alike: Mapping[str, Ints]) -> Table:
    """Return a table in whose domains one value stands for all that are alike: the first."""
    return replace(table, columns={**table.columns} | {n: _one(table, n, alike[n]) for n in alike})


def _one(table: Table, name: str, classes: Ints) -> SomeValues:
    domain = table.columns[name]
    first = np.unique(classes, return_index=True)[1]
    values = tuple(domain.values[int(i)] for i in first[: len(first) - domain.nullable])
    return SomeValues(
        domain.type,
        values,
        domain.nullable,
        domain.outside,
        column_type=domain.column_type,
        zone=domain.zone,
    )


def of_all(table: Table, alike: Mapping[str, Ints], over: Mapping[str, Ints]) -> dict[str, Ints]:
    """Return what is said of each class of cells, as it is of each cell.

    Args:
        table: the table.
        alike: the classes.
        over: for some columns the class into which each of these falls, if not one by one.
    """
    found = dict(over)
    for name, classes in alike.items():
        cells = classes
        if table.leaves_out(name):
            cells = np.append(classes, classes.max() + 1)
        found[name] = over[name][cells] if name in over else cells
    return found


def of_first(table: Table, alike: Mapping[str, Ints], split: Mapping[str, Ints]) -> dict[str, Ints]:
    """Return what is said of each cell, as it is of each class."""
    found = dict(split)
    for name in alike.keys() & split.keys():
        first = np.unique(alike[name], return_index=True)[1]
        outside = [len(alike[name])] if table.leaves_out(name) else []
        found[name] = split[name][np.append(first, outside).astype(np.int64)]
    return found


class _ColumnParts:
    """Looks at the columns of one core."""

    def __init__(self, sandbox: Sandbox, table: Table, core: Core) -> None:
        self._sandbox, self._table = sandbox, table
        self._nodes = [bound.node for bound in _expressions(core)]
        self._places = {f"__a{i}": name for i, name in enumerate(table.columns)}
        self._joined = dict(self._lookups(core))
        seen = {part.name for node in self._nodes for part in node.find_all(exp.Column)}
        hard = {
            part.name
            for node in self._nodes
            if node.find(exp.Query)
            for part in node.find_all(exp.Column)
        }
        self.names = [
            name
            for place, name in self._places.items()
            if place in seen - hard
            and _is_plain(table.columns[name])
            and table.columns[name].size <= MOST_VALUES
        ]

    def classes(self, name: str) -> Ints:
        """Return the class of each cell of a column."""
        index = list(self._table.columns).index(name)
        own, joins = {f"__a{index}"}, []
        told = [f"v.__a{index} IS NULL"]
        for relation, (place, equal, key) in self._joined.items():
            if place == f"__a{index}":
                own |= {f"__r{relation.number}_{j}" for j in range(len(relation.columns))}
                joins.append(f"LEFT JOIN {relation.table} ON {equal}")
                told.append(f"({key}) IS NULL")
        parts = {render(part) for node in self._nodes for part in _parts(node, own)}
        told += [f"({part})::VARCHAR" for part in sorted(parts)]
        domain = self._sandbox.domain(index, self._table.columns[name])
        values = f"(SELECT code, value AS __a{index} FROM {domain}) AS v"
        found = self._sandbox.arrays(
            f"SELECT code, min(code) OVER (PARTITION BY {', '.join(told)}) AS first "
            f"FROM {' '.join([values, *joins])} ORDER BY code"
        )
        return np.unique(found["first"], return_inverse=True)[1].astype(np.int64)

    def _lookups(self, core: Core) -> Iterator[tuple[Relation, tuple[str, str, str]]]:
        """Return relations of which each value of a column has at most one row.

        With each comes the column, the equality by which it is joined, and the side of that which
        is the relation's.
        """
        equalities = [node for _, node in implied_equalities(core.conjuncts).values()]
        for relation in core.relations:
            if relation.kind != "inner":
                continue
            prefix = f"__r{relation.number}_"
            sides = [
                (one.unnest(), other, node)
                for node in equalities
                if isinstance(node, exp.EQ)
                for one, other in ((node.this, node.expression), (node.expression, node.this))
            ]
            for one, other, node in sides:
                names = [part.name for part in other.find_all(exp.Column)]
                keyed = names and all(name.startswith(prefix) for name in names)
                if not isinstance(one, exp.Column) or one.name not in self._places or not keyed:
                    continue
                if not other.find(exp.Query) and self._is_unique(relation, render(other)):
                    yield relation, (one.name, render(node), render(other))
                    break

    def _is_unique(self, relation: Relation, key: str) -> bool:
        query = f"SELECT count({key}) = count(DISTINCT {key}) FROM {relation.table}"
        return bool(self._sandbox.rows(query)[0][0])


def _is_plain(domain: Domain) -> bool:
    """Whether each cell of a domain is a value that SQL sees, whatever other values there are."""
    coarse = domain.coarse or domain.instant
    return not coarse and domain.other is None and domain.type not in {"ENUM", "BOOLEAN"}


def _expressions(core: Core) -> Iterator[BoundExpr]:
    """Return all expressions of a core."""
    yield from (*core.keys, *core.conjuncts, *core.by_row, *core.derived)
    for relation in core.relations:
        yield from relation.on
    for statistic in core.statistics:
        yield from expressions(statistic)


def _parts(node: Expr, own: set[str]) -> Iterator[Expr]:
    """Return the largest parts of an expression that depend on some columns alone."""
    names = {part.name for part in node.find_all(exp.Column)}
    if not names & own:
        return
    # WHEN … THEN … is no value: what comes after it depends on its condition.
    branch = isinstance(node, exp.If) and isinstance(node.parent, exp.Case)
    if names <= own and isinstance(node, exp.Condition) and not branch:
        yield node
        return
    for child in node.iter_expressions():
        yield from _parts(child, own)
