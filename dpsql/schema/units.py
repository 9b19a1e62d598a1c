"""Privacy units: whose rows are protected together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Any, NamedTuple

from dpsql.errors import SchemaError, printable
from dpsql.hints import Hint, option
from dpsql.schema.entries import is_of_texts, is_ours, read_comment, references_of
from dpsql.schema.sequences import shown

UNIT = "unit"
"""The column with the ids of units, in rows that are made of those of tables."""
MAX_ROWS = 1_000_000
BOUNDS = ("max_rows", "max_groups", "max_values", "max_rows_per")
"""Words that stand beside `unit` in a schema file, and in a comment on a table."""


class EachRow(Enum):
    """The owner's declaration that a table's rows belong to nobody who has rows elsewhere."""

    EACH_ROW = "each row"

    def __repr__(self) -> str:
        return "dpsql.EACH_ROW"


EACH_ROW = EachRow.EACH_ROW
"""In place of a unit: each row of this table is protected by itself, although other tables of its
account have units. Without it such a table is refused."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A privacy unit: who is protected, and how many rows of each count.

        dpsql.Unit("person_id", max_rows=3)

    `key` is the column that tells to whom a row belongs. It may be in another table that
    FOREIGN KEYs lead to: "customers" (the referenced key of that table) or "orders.customer_id".
    Of each unit's rows at most `max_rows` are kept. Rows whose key is NULL belong to nobody and
    are left out.

    Units of several tables, which may be joined along their FOREIGN KEYs, have a bound for each
    whose rows are counted:

        dpsql.Unit("customers", max_rows={"customers": 1, "orders": 10})

    Without a bound rows of a table can be looked into, and units counted that have some; and
    `Session.rows_per_unit` tells what bound to choose.

    `references` are the keys that the database doesn't know, as of views and of tables without
    FOREIGN KEYs: the column that refers to a row → the column that it refers to. Of a key of
    several columns, these are listed: "orders.shop, orders.nr".

        dpsql.Unit("customers", {"orders": 10}, references={"orders.customer_id": "customers.id"})

    `max_groups` is for COUNT(DISTINCT unit): in how many groups of a statement a unit counts at
    most; by default in as many as it has rows that count.

    `max_values` is for COUNT(DISTINCT x) of other columns: how many values of a unit count at most
    in each group; by default as many as it has rows that count.

    `max_rows_per` says how many rows of a unit count at most of those that agree in columns with a
    domain. What is asked by such columns has less noise then, as no unit has all of its rows in one
    cell: 3.5 times less, for example, with 15 of 180.

        dpsql.Unit("tailnum", 180, max_rows_per={"month": 15})
    """

    key: str
    max_rows: int | Mapping[str, int] | None = None
    references: Mapping[str, str] = field(default_factory=dict, hash=False)
    max_groups: int | None = None
    max_rows_per: Mapping[str, int] = field(default_factory=dict, hash=False)
    max_values: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.key, str) or not self.key.strip():
            refuse_several(self.key)
            raise SchemaError(
                f"{shown(self.key)} does not name a column.",
                hint='for example dpsql.Unit("person_id", max_rows=3).',
            )
        if isinstance(self.max_rows, Mapping):
            object.__setattr__(self, "max_rows", _bounds(self.max_rows))
        elif self.max_rows is not None and not _is_bound(self.max_rows):
            raise _no_bound("max_rows", self.max_rows)
        if self.max_groups is not None and not _is_bound(self.max_groups):
            raise _no_bound("max_groups", self.max_groups)
        if self.max_values is not None and not _is_bound(self.max_values):
            raise _no_bound("max_values", self.max_values)
        object.__setattr__(self, "max_rows_per", _checked_limits(self.max_rows_per))
        several = isinstance(self.max_rows, Mapping)
        for columns in self.max_rows_per:
            if several and not all("." in column for column in columns.split(",")):
                raise SchemaError(
                    f"max_rows_per of {printable(columns)} doesn't say in which table.",
                    hint='write it before the columns, for example {"orders.month": 15}.',
                )
        object.__setattr__(self, "references", checked_references(self.references))

    def __repr__(self) -> str:
        rows = dict(self.max_rows) if isinstance(self.max_rows, Mapping) else self.max_rows
        further = f", references={dict(self.references)!r}" if self.references else ""
        further += f", max_groups={self.max_groups!r}" if self.max_groups is not None else ""
        further += f", max_rows_per={dict(self.max_rows_per)!r}" if self.max_rows_per else ""
        further += f", max_values={self.max_values!r}" if self.max_values is not None else ""
        return f"Unit(key={self.key!r}, max_rows={rows!r}{further})"

    @classmethod
    def given(
        cls,
        unit: UnitLike,
        max_rows: int | Mapping[str, int] | None,
        references: Mapping[str, str] | None = None,
        max_groups: int | None = None,
        max_values: int | None = None,
    ) -> Unit | EachRow | None:
        """Make a unit of the arguments of these names; None if all are missing.

        `unit` is a column's name, whose `max_rows` stand beside it, and `references`, `max_groups`
        and `max_values` if there are any; a `Unit`, or a sequence of one; or `EACH_ROW`.

        Raises:
            SchemaError: one of them is missing, or not what it should be; or there are several
                units.
        """
        if isinstance(unit, Sequence) and not isinstance(unit, str):
            unit = _only(unit)
        if isinstance(unit, (Unit, EachRow)):
            if max_rows is not None:
                raise SchemaError(
                    f"{unit!r} has no bound on rows beside it.",
                    hint="leave " + option("max_rows") + " out.",
                )
            if references is not None:
                raise SchemaError(
                    f"{unit!r} has no references beside it.",
                    hint='pass dpsql.Unit("customers", 3, references={"orders.customer_id": '
                    '"customers.id"}).',
                )
            if max_groups is not None:
                raise SchemaError(
                    f"{unit!r} has no bound on groups beside it.",
                    hint='pass dpsql.Unit("person_id", 3, max_groups=5).',
                )
            if max_values is not None:
                raise SchemaError(
                    f"{unit!r} has no bound on values beside it.",
                    hint='pass dpsql.Unit("person_id", 3, max_values=5).',
                )
            return unit
        if unit is None and all(
            of is None for of in (max_rows, references, max_groups, max_values)
        ):
            return None
        if unit is None:
            raise SchemaError(
                "A limit on the rows of a unit needs the column that identifies the unit.",
                hint="pass both, for example "
                + option("unit", "person_id")
                + Hint(", ", " ")
                + option("max_rows", 3)
                + ".",
            )
        return cls(unit, max_rows, references or {}, max_groups, max_values=max_values)


def unit_of_entry(entry: Mapping[str, Any]) -> Unit:
    """Make a unit of an entry for a table, which has more than that.

    Raises:
        SchemaError: something of it is not what it should be.
    """
    return Unit(entry["unit"], **{bound: entry[bound] for bound in BOUNDS if bound in entry})


def _is_bound(rows: object) -> bool:
    return type(rows) is int and 1 <= rows <= MAX_ROWS


def _no_bound(what: str, rows: object) -> SchemaError:
    return SchemaError(
        f"{what} can't be {shown(rows)}.",
        hint=f"use a whole number from 1 to {MAX_ROWS:,}; the privacy cost grows with its square.",
    )


def _bounds(given: Mapping[str, int]) -> Mapping[str, int]:
    """Check the bounds of several tables."""
    if not given or not all(isinstance(table, str) and table.strip() for table in given):
        raise SchemaError(
            "max_rows maps tables to how many rows of a unit count in each.",
            hint='for example max_rows={"customers": 1, "orders": 10}.',
        )
    for table, rows in given.items():
        if not _is_bound(rows):
            raise _no_bound(f"max_rows of {printable(table)}", rows)
    return MappingProxyType(dict(given))


def _checked_limits(given: Mapping[str, int]) -> Mapping[str, int]:
    """Check the form of limits: what columns they name, the catalog tells.

    Raises:
        SchemaError: they are no mapping of texts to bounds.
    """
    if not isinstance(given, Mapping) or not all(isinstance(k, str) and k.strip() for k in given):
        raise SchemaError(
            f"{shown(given)} is not a mapping of columns to how many rows count that have the "
            "same values in them.",
            hint='for example max_rows_per={"month": 15}; of several, "month, carrier".',
        )
    for columns, rows in given.items():
        if not _is_bound(rows):
            raise _no_bound(f"max_rows_per of {printable(columns)}", rows)
    return MappingProxyType(dict(given))


def checked_references(given: Mapping[str, str]) -> Mapping[str, str]:
    """Check the form of references: what columns they name, the catalog tells.

    Raises:
        SchemaError: they are no mapping of texts to texts.
    """
    if not is_of_texts(given):
        raise SchemaError(
            f"{shown(given)} is not a mapping of columns to the columns that they refer to.",
            hint='for example references={"orders.customer_id": "customers.id"}.',
        )
    return MappingProxyType(dict(given))


DeclaredUnit = Unit | EachRow | None
"""A unit whose rows are protected together, as it is declared of a table; None if nothing is."""
UnitLike = str | Unit | Sequence[Unit] | EachRow | None
"""Values that `unit=` takes everywhere: a column's name, with `max_rows` beside it; a `Unit`; a
sequence of one, as there will be several; `EACH_ROW`; or None, for what the schema or the comment
says."""


def _only(units: Sequence[object]) -> Unit:
    """Return the only one of some units.

    Raises:
        SchemaError: there are none or several, or it is not a unit.
    """
    refuse_several(units)
    if not units or not isinstance(units[0], Unit):
        raise SchemaError(
            "A sequence of units has dpsql.Unit as items.",
            hint='for example unit=[dpsql.Unit("person_id", max_rows=3)].',
        )
    return units[0]


def refuse_several(units: object) -> None:
    """Refuse several units, wherever they are given: in a call, a schema file or a comment.

    Raises:
        SchemaError: there are several.
    """
    if isinstance(units, (list, tuple)) and len(units) > 1:
        raise SchemaError(
            "A table with several privacy units is not supported yet.",
            hint="name one of them; its rows are then protected together.",
        )


class KeyPair(NamedTuple):
    """A column that refers to a row by a column of it."""

    column: str
    """The referencing column."""
    key: str
    """The referenced one."""
    type: str
    """The DuckDB type of the referenced one."""


@dataclass(frozen=True, slots=True)
class KeyStep:
    """One step along a key, from a row to the one row that it refers to."""

    column: str
    """The referencing column, of the table that the path has come to."""
    path: tuple[str, ...]
    """Database, schema and name of the referenced table."""
    key: str
    """The referenced column."""
    type: str
    """The DuckDB type of the referenced column."""
    further: tuple[KeyPair, ...] = ()
    """The other columns of a key of several."""
    enforced: bool = True
    """Whether the database sees to it that it refers to one row at most, which is there: it is a
    FOREIGN KEY. Else several rows may have the same key, whatever was declared."""

    @property
    def pairs(self) -> tuple[KeyPair, ...]:
        """All columns of the key."""
        return (KeyPair(self.column, self.key, self.type), *self.further)

    @property
    def columns(self) -> tuple[str, ...]:
        """The referencing columns."""
        return tuple(pair.column for pair in self.pairs)

    @property
    def keys(self) -> tuple[str, ...]:
        """The referenced columns."""
        return tuple(pair.key for pair in self.pairs)

    def __repr__(self) -> str:
        """Write it as it always was, where nothing newer is said: fingerprints are made of it."""
        own = f"column={self.column!r}, path={self.path!r}, key={self.key!r}, type={self.type!r}"
        own += f", further={self.further!r}" if self.further else ""
        return f"Join({own}{'' if self.enforced else ', enforced=False'})"


class RowLimit(NamedTuple):
    """A limit on the rows of a unit that agree in some columns: how many count at most."""

    columns: tuple[str, ...]
    rows: int


@dataclass(frozen=True, slots=True)
class ResolvedUnit:
    """A privacy unit as the engine finds it."""

    name: str
    """For people: `person_id`, or `orders.customer_id` if that is in another table."""
    column: str
    """The column with the id, in the last table of the path."""
    type: str
    """The DuckDB type of that column."""
    joins: tuple[KeyStep, ...]
    """The way to that table; none if it is the table itself."""
    max_rows: int | None
    """The most rows of it that count; None if nothing says so, and they can't be counted."""
    further: tuple[tuple[str, str], ...] = ()
    """The other columns of an id of several, with their types."""
    max_groups: int | None = None
    """In how many groups it counts at most where units are counted; None for `max_rows`. It has
    no say in which rows are kept."""
    limits: tuple[RowLimit, ...] = ()
    """The most rows that count of those that agree in some columns with a domain. Without
    `max_rows` that is for rows which a statement chooses, as no others count."""
    max_values: int | None = None
    """The most values of it that count in a group where distinct values are counted; None for
    `max_rows`. It has no say in which rows are kept, either."""
    stated: ResolvedUnit | None = field(default=None, compare=False)
    """The same as it is stated for all tables, where the database lets it have one row of this."""
    root: tuple[str, tuple[str, ...]] = field(default=("", ()), compare=False)
    """The table of units that the id refers to, by whatever keys, and the columns of the id there;
    empty if it refers to none. It is for people: what is kept of a table leaves it out."""

    @property
    def columns(self) -> tuple[tuple[str, str], ...]:
        """All columns of the id, with their types."""
        return ((self.column, self.type), *self.further)

    @property
    def named_by(self) -> tuple[str, ...]:
        """The columns of a row that say of which unit it is; none if another row has to."""
        if len(self.joins) > 1:
            return ()
        return self.joins[0].columns if self.joins else self._ids

    def __repr__(self) -> str:
        """Write it as it always was, where nothing newer is said: fingerprints are made of it.

        Without `max_groups` and `max_values`, on which no cell and no row depends: counts of units
        and of values say them of themselves (`workload.unit_groups`). And without limits for rows
        that can't be counted: chosen ones among them have a unit with a bound, and these limits.
        """
        own = f"name={self.name!r}, column={self.column!r}, type={self.type!r}"
        own += f", joins={self.joins!r}, max_rows={self.max_rows!r}"
        own += f", further={self.further!r}" if self.further else ""
        limits = tuple(map(tuple, self.limits)) if self.max_rows is not None else ()
        own += f", limits={limits!r}" if limits else ""
        return f"ResolvedUnit({own})"

    @property
    def shown(self) -> str:
        """Who is protected, for people: by the table of units, if there is one."""
        table, columns = self.root
        return ", ".join(f"{table}.{column}" for column in columns) or self.name

    def way(self, table: str) -> str:
        """Word the way from a row to its unit: `items.order_id → orders.customer_id → customers`.

        Args:
            table: what the table of the row is called.
        """
        steps, at = list[str](), table
        for columns, to in [*((j.columns, j.path[-1]) for j in self.joins), (self._ids, "")]:
            steps.append(", ".join(f"{at}.{column}" for column in columns))
            at = to
        held = self.joins[-1].path[-1] if self.joins else table
        return " → ".join([*steps, self.root[0]] if self.root[0] not in {"", held} else steps)

    @property
    def _ids(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.columns)


def neighbours_of(unit: Unit) -> str:
    """Word the neighboring relation: what may come or go without being noticed."""
    changed = f"add or remove one {printable(unit.key)} with all of its rows"
    if not isinstance(unit.max_rows, int):
        return changed
    kept = "1 is" if unit.max_rows == 1 else f"{unit.max_rows:,} are"
    return f"{changed}, of which at most {kept} kept"


# ── The unit that the rows of a table belong to, as a comment on it says ─────────────────────────


def of_comment(table: str, comment: str | None, declared: DeclaredUnit) -> DeclaredUnit:
    """Return what goes before a table's comment, or what the comment says.

    `EACH_ROW` of a session is passed for all tables that it asks, and meant for those without a
    unit. So it doesn't go before a comment that names one.

    Raises:
        SchemaError: the comment is needed and not understood, or names a unit of such a table.
    """
    if isinstance(declared, Unit):
        return declared
    noted = from_comment(table, comment)
    if declared is not None and isinstance(noted, Unit):
        raise SchemaError(
            f"The comment on the table {printable(table)} says that its rows belong to units, of "
            f"{printable(noted.key)}, so they can't be protected one by one.",
            hint="leave "
            + Hint("dpsql.EACH_ROW", "--each-row")
            + " out for this table; or, if the comment is wrong, change that.",
        )
    return declared or noted


def from_comment(table: str, comment: str | None) -> DeclaredUnit:
    """Read a unit from a table's comment; None if the comment is not meant for dpsql.

    Raises:
        SchemaError: it is meant for dpsql and not understood.
    """
    if not is_ours(comment):
        return None
    read = read_comment(comment)
    if isinstance(read, dict):
        references_of(table, comment)
        others = [read.pop(key, None) for key in ("expressions", "references")]
        if not read and others != [None, None]:
            return None
    if isinstance(read, dict) and set(read) == {"each_row"} and read["each_row"] is True:
        return EACH_ROW
    if not isinstance(read, dict) or read.keys() - {*BOUNDS} != {"unit"}:
        raise SchemaError(
            f"The comment on the table {table} is not understood.",
            hint='write COMMENT ON TABLE … IS \'dpsql: {"unit": "person_id", "max_rows": 3}\'.',
        )
    return unit_of_entry(read)
