"""Queries for relations: one writer of SQL, and what each database says otherwise. Trusted.

Guarantees:
    Of a relation R that `rel/check.py` lets through, the query returns the rows of [R](u) for every
    unit u, with the id of u beside each, and no others: as multisets of all columns of R, in
    whatever order rows are read, in how many pieces and threads, whatever statistics there are. It
    doesn't fail for what a row says.

    *Proof.* By induction over the nodes. Each is written as a query with a column of ids, `u`, and
    one for each column of R.

    - `Scan`: the dialect gives each (row, u) of the way to the unit once (`way_to_unit`). Columns
      of rows along the way are those of rows that this joins: along FOREIGN KEYs there is one for
      each row, of the same unit. So they follow from the columns of the first step, and add nothing
      to a line that has these.
    - `Public`: constants.
    - `Filter`, `Project`: conditions and values are total functions of the row (`rows/write.py`),
      and `u` is passed on.
    - `Join`: pairs of equal ids are pairs of rows of one unit, and all of them, as ids are told
      apart byte for byte; the condition is total, and columns of exact types are equal if they are
      stored alike. Of a left join a row meets rows of its own unit,
      or NULLs. Public rows are the same for all units.
    - `GroupJoin`: the rows on the right are put into groups by `u` and by the columns that are
      equal, of types whose values are equal only if they are the same (`rel/keys.py`), so that a
      row meets at most one group, of its own unit, and stays one row. Where the condition says
      more, each row on the left has a number that no other row has, rows on the right are met by
      it, and groups are made by that number: which number it is says nothing of what is computed.
      The numbered rows are computed once, and read twice.
    - `Window`: PARTITION BY begins with `u`. A function by values is one of the multiset of rows.
      One that looks at rows one by one has the line of R's input at the end of ORDER BY, and the
      proof of `rows/windows.py` holds for it: see below.
    - `Group`: GROUP BY `u` and the keys, texts by their bytes. Each aggregate is a function of the
      multiset of its group; keys that agree are the same, so any of them is shown.
    - `Union`: UNION ALL of columns of one type.
    - `Bound`: the rule of stretches, which keeps at most k rows of a unit, by its id and by their
      places in the line of R's input (`bounded.py`). For a limit it is the same, of the rows
      of a unit in the same cells, which follow from the row. The input may be computed more than
      once: all rows of one unit are taken from one of these times, and counted in another, and
      their number is the same.

    *The line of a relation* is a list of columns: rows of a unit that agree in all of these, texts
    as bytes and zeros by their signs, are the same in all columns that anything above reads. Others
    are left out of the query, as soon as nothing above reads them. So is the line, where nothing
    above looks at rows one by one, as a bound does and some windows; what is said of the rows holds
    of the columns that are left. Of a scan the line is its columns without the id of the unit, of
    which rows of a unit have the same: those with a domain, and then, kind by kind, further ones,
    up to the last kind of which one is read; so there may be none. Of a filter, a window by values
    and a bound they are those of the input; of a group join those of the left side, as what is
    added follows from the row; of a join those of both sides, and of one by a key (`rel/keys.py`)
    those of the left; of a group its keys; of a union its columns; of a projection its columns, and
    the places of its input.

    *The same rows are kept whatever is read of a relation.* What is read says no more of a line
    than where it ends: columns of pairs are sorted by their kinds as well, with all of a kind or
    none, whichever side they are of. Rows that tie in a line which ends before another one are the
    same in all that the statement reads; in the other line they stand at the same places. ∎

    A window that looks at rows one by one adds, if the rows are not *placed*, the place of each row
    in the line. Then they are: no two rows of a unit have one place, and the line is that place.
    Two rows that are equal have places in any order, and an exchange of them exchanges all that is
    computed of their places as well, so that the multiset of rows with their places is determined.
    Placed rows stay so wherever each row gives one row or none, with its places passed on; pairs of
    placed rows are placed by both places; all others are not, and get places of their own when they
    are needed. ∎

    Columns have names of the writer's own, so that no name of a column, whatever it is, can stand
    for another one. That privacy doesn't rest on these proofs being about the right tree is the
    matter of `rel/check.py`: whatever passes has a meaning for each unit alone.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from dpsql.engines import table_relations
from dpsql.engines.table_relations import TableRelation
from dpsql.rel.check import check, check_kept
from dpsql.rel.facts import Known, RelationFacts, columns_of_rows, kinds_of_columns
from dpsql.rel.keys import equal_columns, meets_one
from dpsql.rel.nodes import (
    ONLY,
    Agg,
    Bound,
    CellLimit,
    Filter,
    Group,
    GroupJoin,
    Id,
    Join,
    NodeVisitor,
    Project,
    Public,
    Relation,
    Scan,
    Union,
    Window,
    expressions,
    inputs,
    read_by,
    walk,
)
from dpsql.rel.rename import renamed, renamed_aggregate, renamed_call
from dpsql.rows.expression import NOTHING, RowCast, RowColumn, RowExpression, all_if_any
from dpsql.rows.expression import columns as columns_of
from dpsql.rows.typed import RowAggregate, RowValue
from dpsql.rows.types import BIGINT, row_type
from dpsql.rows.windows import RowsWindow, aggregated, rows_window
from dpsql.rows.write import RowWriter
from dpsql.schema.domain import Domain
from dpsql.schema.table import Table

UNIT = "u"
"""The column of the ids of units."""
TO_KEEP = "b_"
"""Beginning of the names of columns that a dialect computes to keep rows: no other one has it."""
_FOUND = "found"
"""The column of a group that is there if the group is."""


@dataclass(frozen=True, slots=True)
class Query:
    """A query for the rows of a relation, with the ids of their units in the column `UNIT`.

    Args:
        sql: SELECT, with what stands before it.
        columns: id of a column → its name there.
    """

    sql: str
    columns: Mapping[Id, str]


@dataclass(frozen=True, slots=True)
class WrittenNode:
    """A node that has been written: what it is called, and what its columns are.

    Args:
        name: of the query.
        columns: id → the name of the column.
        line: the columns in which rows of a unit agree only if they are the same.
        places: those of the line that are places in one; they have no id.
        placed: whether no two rows of a unit agree in these.
    """

    name: str
    columns: Mapping[Id, str]
    line: tuple[str, ...]
    places: tuple[str, ...] = ()
    placed: bool = False

    @property
    def shown(self) -> list[str]:
        """All columns but the ids of units."""
        return [*self.columns.values(), *self.places]


class RelationWriter(NodeVisitor[WrittenNode]):
    """Writes the query for one relation. A dialect says what its database spells otherwise."""

    def __init__(self) -> None:
        self._known = Known()
        self._uses: dict[Relation, _Use] = {}
        self._read: frozenset[Id] = frozenset()
        """The columns that anything in the tree reads, or that are asked for."""
        self._beside: dict[Scan, frozenset[Scan]] = {}
        """Tables whose rows stand in one line as pairs."""
        self._parts: list[str] = []
        self._kinds: dict[str, int] = {}
        """Name of a column in the query → its kind, if it is one of a table's line."""
        self._types: dict[str, str] = {}
        """Name of a column in the query → its type."""

    def query(
        self,
        relation: Relation,
        columns: Iterable[Id] | None = None,
        charged: Table | None = None,
    ) -> Query:
        """Write the query for some columns of a relation.

        Args:
            relation: the relation, which is checked.
            columns: the ids of the columns; None for all of them.
            charged: the table whose rows are counted, of which no unit may have more there than it
                is charged for; None where all rows of units are looked at.

        Raises:
            UnsupportedSqlError: the relation has no meaning for each unit alone.
            InternalError: a unit may have more rows.
        """
        check(relation, self._known)
        if charged is not None:
            check_kept(relation, charged, self._known)
        asked = list(self._known.of(relation).columns if columns is None else columns)
        self._read = frozenset(asked).union(*map(self._read_by, walk(relation)))
        self._find_uses(relation, frozenset(asked))
        self._find_lines(relation)
        written = self.visit(relation)
        shown = {name: written.columns[name] for name in asked}
        names = ", ".join([UNIT, *shown.values()])
        return Query(f"WITH {', '.join(self._parts)} SELECT {names} FROM {written.name}", shown)

    def kept_rows(self, table: Table, names: Sequence[str]) -> str:
        """Write the query for columns of the rows of a table that count.

        Raises:
            InternalError: the table has no privacy unit, or more rows of one would count.
        """
        return self._of_table(table_relations.kept_rows(table, names), names, charged=table)

    def rows_of_units(self, table: Table, names: Sequence[str], unit: str) -> str:
        """Write the query for columns of all rows of a table that belong to units.

        Args:
            table: whose rows they are.
            names: what is read of them.
            unit: what the column with the ids is called; see `others.unit_name`.
        """
        return self._of_table(table_relations.rows_of_units(table, names), names, unit)

    def _of_table(
        self,
        rows: TableRelation,
        names: Sequence[str],
        unit: str | None = None,
        charged: Table | None = None,
    ) -> str:
        """Write the query for columns of rows, under their names in the table."""
        ids = {name: rows.id_of(name) for name in names}
        query = self.query(rows.relation, ids.values(), charged)
        shown = [f"{query.columns[id_]} AS {self.quoted(name)}" for name, id_ in ids.items()]
        shown += [] if unit is None else [f"{UNIT} AS {self.quoted(unit)}"]
        return f"SELECT {', '.join(shown) or '0'} FROM ({query.sql})"

    def _read_by(self, node: Relation) -> frozenset[Id]:
        """Return the columns that a node reads: a union all that its parts have."""
        if isinstance(node, Union):
            return frozenset(name for part in node.parts for name in self._known.of(part).columns)
        return read_by(node)

    def _find_uses(self, relation: Relation, asked: frozenset[Id]) -> None:
        """Note of each node what those above it look at."""
        self._uses[relation] = _Use(asked)
        for node in walk(relation):  # each before those that it is made of
            use = self._uses[node]
            above = _Use(use.columns | self._read_by(node), use.lined or _looks_at_line(node))
            for side in inputs(node):
                read = above.columns & self._known.of(side).columns.keys()
                lined = above.lined and not self._has_own_line(node, side)
                before = self._uses.get(side, _Use())
                self._uses[side] = _Use(before.columns | read, before.lined or lined)

    def _find_lines(self, relation: Relation) -> None:
        """Note of each table those whose columns rows stand in line by together with its own."""
        standing = dict[Relation, frozenset[Scan]]()
        for node in reversed(list(walk(relation))):  # what it is made of before itself
            sides = (side for side in inputs(node) if not self._has_own_line(node, side))
            scans = frozenset[Scan]().union(*(standing[side] for side in sides))
            match node:
                case Scan():
                    standing[node] = frozenset({node})
                case Project():
                    standing[node] = frozenset()
                case _:
                    standing[node] = scans
            self._beside |= dict.fromkeys(standing[node], standing[node])

    def _has_own_line(self, node: Relation, side: Relation) -> bool:
        """Whether the line of a node says nothing of that of one of its sides."""
        match node:
            case Group() | Union():
                return True
            case GroupJoin():
                return side is node.right
            case Join():
                return side is node.right and meets_one(node, self._known)
            case _:
                return False

    # ── One method for each node ────────────────────────────────────────────────────────────────

    def _scan(self, node: Scan) -> WrittenNode:
        source, id_, known = self.rows_with_units(node.source.table)
        types, shown, columns = self._known.of(node).types, list[str](), dict[Id, str]()
        use, line = self._uses[node], self._line_of(node)
        for i, (of, prefix) in enumerate([(node.source, node.prefix), *node.along]):
            for name, stored in columns_of_rows(of, prefix).items():
                if name in line or name in use.columns:
                    columns[name] = self._column(types[name])
                    stored_as = self.stored(f"t{i}", stored, types[name])
                    shown.append(f"{stored_as} AS {columns[name]}")
        kinds = kinds_of_columns(node.source, node.prefix)
        self._kinds |= {columns[name]: kinds[name] for name in line}
        sql = f"SELECT {_listed(f'{id_} AS {UNIT}', *shown)} FROM {source} WHERE {known}"
        return self._named(sql, columns, (columns[name] for name in line))

    def _line_of(self, node: Scan) -> list[Id]:
        """Return the columns of a table by which its rows stand in line, if anything looks at that.

        Those with a domain are among them, whatever is read. Where nothing is read of a further
        kind its columns have no say: rows that agree in all others are the same in all that is
        read. What is read beside these rows, of others that are paired with them, counts as well,
        so that pairs stand in the same line whatever is read of them. The id of their unit, which
        all rows have, has no say.
        """
        if not self._uses[node].lined:
            return []
        kinds = kinds_of_columns(node.source, node.prefix)
        read = self._kinds_read(self._beside[node])
        unit = node.source.table.unit
        ids = () if unit is None or unit.joins else (name for name, _ in unit.columns)
        rest = kinds.keys() - {node.prefix + name for name in ids}
        return [name for name, kind in kinds.items() if name in rest and kind <= read]

    def _kinds_read(self, scans: Iterable[Scan]) -> int:
        """Return the last kind of columns of which something is read."""
        last = 0
        for scan in scans:
            read, unit = self._read, scan.source.table.unit
            if scan.along and unit is not None:  # which rows these are, the first step says
                read |= {scan.prefix + name for name in unit.joins[0].columns}
            kinds = kinds_of_columns(scan.source, scan.prefix).items()
            last = max([last, *(kind for name, kind in kinds if name in read)])
        return last

    def _public(self, node: Public) -> WrittenNode:
        columns = {name: self._column(type_) for name, type_ in node.columns}
        rows = node.rows or ((NOTHING,) * len(columns),)
        selects = []
        for row in rows:
            pairs = zip(row, columns.values(), strict=True)
            cast = ((RowCast(v, row_type(self._types[name])), name) for v, name in pairs)
            selects.append("SELECT " + _listed(*(f"{self._sql(v)} AS {name}" for v, name in cast)))
        sql = " UNION ALL ".join(selects) + ("" if node.rows else " WHERE false")
        return self._named(sql, columns, columns.values())

    def _filter(self, node: Filter) -> WrittenNode:
        of = self.visit(node.of)
        left = self._passed_on(node, of)
        sql = f"SELECT {_listed(UNIT, *left.shown)} FROM {of.name} WHERE {self._of(node.where, of)}"
        return self._after(left, sql, left.columns)

    def _project(self, node: Project) -> WrittenNode:
        of = self.visit(node.of)
        facts, use = self._known.of(node), self._uses[node]
        shown_all = use.lined and not of.placed
        given = [pair for pair in node.columns if shown_all or pair[0] in use.columns]
        columns = {name: self._column(facts.types[name]) for name, _ in given}
        shown = [f"{self._passed(value, of)} AS {columns[name]}" for name, value in given]
        sql = f"SELECT {_listed(UNIT, *of.places, *shown)} FROM {of.name}"
        if of.placed:
            return self._after(of, sql, columns)
        return self._named(sql, columns, (*of.places, *columns.values()), of.places)

    def _join(self, node: Join) -> WrittenNode:
        left, right = self.visit(node.left), self.visit(node.right)
        met = self._meeting(node, {**left.columns, **right.columns})
        is_single, names = meets_one(node, self._known), (left.name, right.name)
        left, right = self._passed_on(node, left), self._passed_on(node, right, lined=not is_single)
        columns = {**left.columns, **right.columns}
        kind = "LEFT JOIN" if node.kind == "left" else "JOIN"
        shown = [f"l.{UNIT} AS {UNIT}", *left.shown, *right.shown]
        sql = f"SELECT {_listed(*shown)} FROM {names[0]} AS l {kind} {names[1]} AS r ON {met}"
        if is_single:
            return self._after(left, sql, columns)
        line = sorted((*left.line, *right.line), key=lambda name: self._kinds.get(name, 0))
        joined = self._named(sql, columns, line, left.places + right.places)
        return replace(joined, placed=left.placed and right.placed)

    def _group_join(self, node: GroupJoin) -> WrittenNode:
        left, right = self.visit(node.left), self.visit(node.right)
        met = _Met.of(node, self._known.of(node.left), self._known.of(node.right))
        if met is None:
            return self._met_one_by_one(node, left, right)
        return self._met_by_groups(node, left, right, met)

    def _window(self, node: Window) -> WrittenNode:
        of = self.visit(node.of)
        calls = {
            name: rows_window(name, renamed_call(call, of.columns), self._types)
            for name, call in node.adds
        }
        if any(call.lined for call in calls.values()) and not of.placed:
            of = self._placed(of, self._uses[node.of].columns)
        columns = {name: self._column(call.type) for name, call in calls.items()}
        shown = [f"{self._windowed(calls[n], of)} AS {column}" for n, column in columns.items()]
        left = self._passed_on(node, of)
        sql = f"SELECT {_listed(UNIT, *left.shown, *shown)} FROM {of.name}"
        return self._after(left, sql, {**left.columns, **columns})

    def _group(self, node: Group) -> WrittenNode:
        of, facts = self.visit(node.of), self._known.of(node)
        columns = {name: self._column(type_) for name, type_ in facts.types.items()}
        keys = [f"{self._passed(value, of)} AS {columns[name]}" for name, value in node.keys]
        inner = f"SELECT {_listed(UNIT, *of.columns.values(), *keys)} FROM {of.name}"
        told = [self._identity(columns[name]) for name, _ in node.keys]
        shown = [f"{self.call('any_value', columns[n])} AS {columns[n]}" for n, _ in node.keys]
        shown += [f"{self._aggregate(agg, of.columns)} AS {columns[n]}" for n, agg in node.adds]
        sql = f"SELECT {_listed(UNIT, *shown)} FROM ({inner}) AS g GROUP BY {_listed(UNIT, *told)}"
        return self._named(sql, columns, (columns[name] for name, _ in node.keys))

    def _union(self, node: Union) -> WrittenNode:
        types = self._known.of(node).types
        columns = {name: self._column(types[name]) for name in node.columns}
        parts = []
        for part in map(self.visit, node.parts):
            pairs = zip(part.columns.values(), columns.values(), strict=True)
            shown = [f"{value} AS {column}" for value, column in pairs]
            parts.append(f"SELECT {_listed(UNIT, *shown)} FROM {part.name}")
        return self._named(" UNION ALL ".join(parts), columns, columns.values())

    def _bound(self, node: Bound) -> WrittenNode:
        of = self.visit(node.of)
        if any(isinstance(below, Window | Group | GroupJoin) for below in walk(node.of)):
            rows = f"SELECT {_listed(UNIT, *of.shown)} FROM {of.name}"  # dear, and read three times
            of = replace(of, name=self._part(rows, once=True))
        of = self._limited(of, node.limits)
        left = self._passed_on(node, of)
        return self._after(left, self.kept(left, node.rows, self._line_keys(of)), left.columns)

    def _limited(self, of: WrittenNode, limits: Sequence[CellLimit]) -> WrittenNode:
        """Keep no more rows of a unit than limits allow, each of what the one before has left.

        What later steps leave out leaves no more rows in any cells.
        """
        if not limits:
            return of
        cells = {cells.column: cells for limit in limits for cells in limit.cells}
        names = {name: self._column(BIGINT.sql) for name in cells}
        placed = [
            PlacedColumn(of.columns[name], names[name], cell.domain, cell.leaves_out)
            for name, cell in cells.items()
        ]
        limited = replace(of, places=(*of.places, *names.values()))
        limited = replace(limited, name=self._part(self.with_cells(of, placed), once=True))
        for limit in limits:
            agree = [names[cell.column] for cell in limit.cells]
            kept = self.kept(limited, limit.rows, self._line_keys(of), agree)
            limited = replace(limited, name=self._part(kept, once=True))
        return replace(of, name=limited.name)

    # ── What nodes have in common ───────────────────────────────────────────────────────────────

    def _meeting(self, node: Join | GroupJoin, columns: Mapping[Id, str]) -> str:
        """Write the condition under which rows `l` and `r` meet: of one unit, if both have one."""
        left, right = self._known.of(node.left), self._known.of(node.right)
        pairs, rest = equal_columns(node.on, left, right)
        same = [f"l.{UNIT} = r.{UNIT}"] if right.private else []
        pairs = _but_units(pairs, left, right)
        sides = ((self._identity(columns[name]) for name in pair) for pair in pairs)
        same += map(" = ".join, sides)
        return _all(same + [self._sql(renamed(part, columns)) for part in rest])

    def _met_by_groups(
        self, node: GroupJoin, left: WrittenNode, right: WrittenNode, met: _Met
    ) -> WrittenNode:
        """Write groups of the right, of which each row on the left meets one at most."""
        unit = [UNIT] if self._known.of(node.right).private else []
        identities = [self._identity(left.columns[a]) for a, _ in met.pairs]
        keys = [self._identity(right.columns[b]) for _, b in met.pairs]
        adds = self._added(node, right.columns)
        shown = [*unit, *(f"{key} AS k{i}" for i, key in enumerate(keys))]
        groups = f"SELECT {_listed(*shown, *_values(adds))} FROM {right.name}"
        groups += "" if met.rest is None else f" WHERE {self._of(met.rest, right)}"
        groups += f" GROUP BY {_listed(*unit, *keys)}" if unit or keys else ""
        same = [f"l.{UNIT} = g.{UNIT}"] if unit else []
        same += [f"{key} = g.k{i}" for i, key in enumerate(identities)]
        return self._with_groups(left.name, self._passed_on(node, left), adds, groups, same)

    def _met_one_by_one(
        self, node: GroupJoin, left: WrittenNode, right: WrittenNode
    ) -> WrittenNode:
        """Write a group for each row on the left, by what tells it from others."""
        both = {**left.columns, **right.columns}
        looked = [left.columns[name] for name in left.columns if name in read_by(node)]
        told = self.told_one_by_one(left, looked)
        adds, by = self._added(node, both), _listed(*(f"l.{key}" for key in told.keys))
        groups = f"SELECT {_listed(by, *_values(adds))} FROM {told.met} AS l "
        groups += f"JOIN {right.name} AS r ON {self._meeting(node, both)} GROUP BY {by}"
        return self._with_groups(told.rows, self._passed_on(node, left), adds, groups, told.same)

    def _added(self, node: GroupJoin, of: Mapping[Id, str]) -> list[_AddedColumn]:
        """Write the columns that are added: what each is in its group, and of no rows."""
        types = self._known.of(node).types
        return [
            _AddedColumn(
                name,
                self._column(types[name]),
                self._aggregate(agg, of),
                self.spelled(self._made(agg, of).empty),
            )
            for name, agg in node.adds
        ]

    def _with_groups(
        self,
        rows: str,
        left: WrittenNode,
        adds: list[_AddedColumn],
        groups: str,
        same: Sequence[str],
    ) -> WrittenNode:
        """Write rows with what is computed of the group that each meets, or of no rows."""
        columns = {**left.columns, **{added.name: added.column for added in adds}}
        shown = [f"l.{UNIT} AS {UNIT}", *left.shown]
        for added in adds:
            value = f"CASE WHEN g.{_FOUND} IS NULL THEN {added.empty} ELSE g.{added.column} END"
            shown.append(f"{value} AS {added.column}")
        sql = f"SELECT {_listed(*shown)} FROM {rows} AS l LEFT JOIN ({groups}) AS g ON {_all(same)}"
        return self._after(left, sql, columns)

    def _windowed(self, call: RowsWindow, of: WrittenNode) -> str:
        """Write a window: of rows that it doesn't see it is what it is of no rows."""
        seen = None if call.condition is None else self.spelled(call.condition)
        agree = [UNIT, *([] if seen is None else [seen])]
        agree += [self._identity(name) for name, _ in call.told]
        agree += [self.spelled(part) for part in call.partition]
        order = [
            f"{self.spelled(key.value)} {'DESC' if key.descending else 'ASC'} "
            f"NULLS {'FIRST' if key.nulls_first else 'LAST'}"
            for key in call.order
        ]
        order += map(_least_first, of.line) if call.lined else ()
        value = self.over(call, agree, order)
        if seen is None:
            return value
        return f"CASE WHEN {seen} THEN {value} ELSE {self.spelled(call.value.empty)} END"

    def _passed_on(self, node: Relation, of: WrittenNode, *, lined: bool = True) -> WrittenNode:
        """Leave out of a node's input what nothing above looks at."""
        use = self._uses[node]
        line, places = (of.line, of.places) if use.lined and lined else ((), ())
        read = {n: c for n, c in of.columns.items() if n in use.columns or c in line}
        return replace(of, columns=read, line=line, places=places)

    def _placed(self, of: WrittenNode, read: Collection[Id]) -> WrittenNode:
        """Give each row its place in the line of its unit, of which only that is told further."""
        place = self._column(BIGINT.sql)
        number = f"{self.place(self._line_keys(of))} AS {place}"
        columns = {name: column for name, column in of.columns.items() if name in read}
        sql = f"SELECT {_listed(UNIT, *columns.values(), number)} FROM {of.name}"
        return replace(self._named(sql, columns, (place,), (place,)), placed=True)

    def _line_keys(self, of: WrittenNode) -> list[str]:
        """Write keys in which rows of a unit agree only if they are the same."""
        return [key for name in of.line for key in self.told_apart(name, self._types[name])]

    def _aggregate(self, agg: Agg, of: Mapping[Id, str]) -> str:
        """Write an aggregate of the rows of a group."""
        if agg.function == ONLY and isinstance(agg.value, RowColumn):
            value = self.call("any_value", of[agg.value.name])
            return f"CASE WHEN {self.call('count', '*')} = 1 THEN {value} END"
        made = self._made(agg, of)
        where = "" if agg.where is None else f" FILTER (WHERE {self._sql(renamed(agg.where, of))})"
        if made.function == "exists":
            counted = where.join(self.aggregate_parts(RowAggregate("count", BIGINT)))
            return f"({counted} > 0)"
        return where.join(self.aggregate_parts(made))

    def _made(self, agg: Agg, of: Mapping[Id, str]) -> RowAggregate:
        given = renamed_aggregate(agg, of)
        return aggregated(given.function, given.value, RowWriter(self._types))

    def _passed(self, value: RowExpression, of: WrittenNode) -> str:
        """Write a value of a row; a column is passed on as it is stored."""
        if isinstance(value, RowColumn):
            return of.columns[value.name]
        return self._of(value, of)

    def _of(self, value: RowExpression, of: WrittenNode) -> str:
        return self._sql(renamed(value, of.columns))

    def _sql(self, value: RowExpression) -> str:
        """Write an expression of columns that have their names in the query."""
        return self.spelled(RowWriter(self._types).write(value))

    def _identity(self, column: str) -> str:
        """Write what tells the values of a column apart where equal ones are to be the same."""
        return self.identity(column, self._types[column])

    def _column(self, type_: str) -> str:
        """Return the name of a new column."""
        name = f"c{len(self._types)}"
        self._types[name] = type_
        return name

    def _after(self, of: WrittenNode, sql: str, columns: Mapping[Id, str]) -> WrittenNode:
        """Name a query whose rows stand in line as those stand that they are made of."""
        return replace(of, name=self._part(sql), columns=columns)

    def _named(
        self,
        sql: str,
        columns: Mapping[Id, str],
        line: Iterable[str],
        places: tuple[str, ...] = (),
    ) -> WrittenNode:
        return WrittenNode(self._part(sql), columns, tuple(line), places)

    def _part(self, sql: str, *, once: bool = False) -> str:
        name = f"n{len(self._parts)}"
        self._parts.append(self.part(name, sql, once=once))
        return name

    # ── What a dialect says ─────────────────────────────────────────────────────────────────────

    def over(self, call: RowsWindow, agree: Sequence[str], order: Sequence[str]) -> str:
        """Write a window over the rows that agree in something, in an order."""
        by = f" ORDER BY {_listed(*order)}" if order else ""
        frame = "" if call.frame is None else f" {call.frame.sql}"
        window = f" OVER (PARTITION BY {_listed(*agree)}{by}{frame})"
        return window.join(self.aggregate_parts(call.value))

    def told_one_by_one(self, of: WrittenNode, looked: Sequence[str]) -> RowsApart:
        """Write rows with a number that no other row has.

        Args:
            of: the rows.
            looked: their columns that are looked at, so that rows of a unit that agree in all of
                these may be told as one.
        """
        number = f"{self.call('row_number')} OVER () AS n"
        rows = self._part(f"SELECT *, {number} FROM {of.name}", once=True)
        return RowsApart(rows, rows, ("n",), ("l.n = g.n",))

    @abstractmethod
    def rows_with_units(self, table: Table) -> tuple[str, str, str]:
        """Write what stands after FROM for the rows of a table, each as often as it has units.

        Returns:
            That, in which the row is `t0`; the unit's id; whether there is one.
        """

    @abstractmethod
    def quoted(self, name: str) -> str:
        """Write the name of a column."""

    @abstractmethod
    def stored(self, row: str, column: str, type_: str) -> str:
        """Write a column of a stored row, as queries pass it on.

        Args:
            row: the name of the row.
            column: that of the column in its table.
            type_: its type.
        """

    @abstractmethod
    def part(self, name: str, sql: str, *, once: bool) -> str:
        """Write a named query of WITH; `once` if it has to be computed once, and no more."""

    @abstractmethod
    def spelled(self, value: RowValue) -> str:
        """Write a value of a row."""

    @abstractmethod
    def aggregate_parts(self, made: RowAggregate) -> tuple[str, ...]:
        """Write an aggregate in pieces: FILTER, or OVER, belongs between them."""

    @abstractmethod
    def call(self, function: str, *arguments: str) -> str:
        """Write a call of a function of the database."""

    @abstractmethod
    def identity(self, column: str, type_: str) -> str:
        """Write what is equal only of values that are the same: the bytes of a text."""

    @abstractmethod
    def told_apart(self, column: str, type_: str) -> Sequence[str]:
        """Write the keys of an order in which values agree only if they are the same."""

    @abstractmethod
    def place(self, line: Sequence[str]) -> str:
        """Write the place of a row among those of its unit, by the keys of an order, from 1."""

    @abstractmethod
    def with_cells(self, of: WrittenNode, placed: Sequence[PlacedColumn]) -> str:
        """Write the query for rows with the numbers of the cells that they are in, or -1."""

    @abstractmethod
    def kept(
        self, of: WrittenNode, rows: int, line: Sequence[str], agree: Sequence[str] = ()
    ) -> str:
        """Write the query for the rows that are kept where at most so many of a unit count.

        Args:
            of: the rows.
            rows: how many count.
            line: the keys of the order in which they stand in line, from the least, NULL first.
            agree: columns of numbers: so many count of those that agree in these.
        """


@dataclass(frozen=True, slots=True)
class RowsApart:
    """Rows that are told apart, so that groups can be made of what each of them meets.

    Args:
        rows: the name of all of them.
        met: that of what meets other rows in their place.
        keys: the columns of this that tell them apart.
        same: whether a row `l` is the one of a group `g`, which has these columns.
    """

    rows: str
    met: str
    keys: tuple[str, ...]
    same: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PlacedColumn:
    """A column of which rows get the numbers of their cells: these are in a column of their own."""

    column: str
    cell: str
    domain: Domain
    leaves_out: bool


@dataclass(frozen=True, slots=True)
class _Use:
    """The use that is made of a node: columns that are read above it; whether its line is."""

    columns: frozenset[Id] = frozenset()
    lined: bool = False


@dataclass(frozen=True, slots=True)
class _AddedColumn:
    """A column that a group join adds: its value in a group, and of no rows."""

    name: Id
    column: str
    value: str
    empty: str


@dataclass(frozen=True, slots=True)
class _Met:
    """The condition of a group join that says which columns are equal, and more of the right alone.

    Args:
        pairs: columns of the left and of the right that are equal, of one exact type.
        rest: what else is true of the right.
    """

    pairs: tuple[tuple[Id, Id], ...]
    rest: RowExpression | None

    @classmethod
    def of(cls, node: GroupJoin, left: RelationFacts, right: RelationFacts) -> _Met | None:
        """Read the condition of a node; None if it says something else, or adds it."""
        pairs, rest = equal_columns(node.on, left, right)
        added = expressions(replace(node, on=None))
        if not all(columns_of(value) <= right.columns.keys() for value in (*rest, *added)):
            return None
        return cls(_but_units(pairs, left, right), all_if_any([*rest]))


def _but_units(
    pairs: tuple[tuple[Id, Id], ...], left: RelationFacts, right: RelationFacts
) -> tuple[tuple[Id, Id], ...]:
    """Leave out that rows have the id of one unit, which is true of all that meet."""
    return tuple((a, b) for a, b in pairs if not (left.is_unit(a) and right.is_unit(b)))


def _looks_at_line(node: Relation) -> bool:
    """Whether a node looks at rows one by one, as they stand in line."""
    calls = node.adds if isinstance(node, Window) else ()
    return isinstance(node, Bound) or any(call.lined for _, call in calls)


def _values(adds: Iterable[_AddedColumn]) -> list[str]:
    return [*(f"{added.value} AS {added.column}" for added in adds), f"1 AS {_FOUND}"]


def _least_first(key: str) -> str:
    return f"{key} ASC NULLS FIRST"


def _listed(*parts: str) -> str:
    return ", ".join(parts)


def _all(conditions: Sequence[str]) -> str:
    return " AND ".join(conditions) or "true"
