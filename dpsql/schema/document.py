"""Write what is public about tables as a schema file, for people; `Schema.load` reads it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from dpsql.errors import SchemaError, printable
from dpsql.schema.declarations import Schema, parse_toml
from dpsql.schema.domain import INTEGER_TYPES, Domain, NumberBounds, UnknownBounds, UnknownKeys
from dpsql.schema.drafts import (
    PERSONS,
    drafted,
    drafted_bounds,
    is_id,
    is_number,
    is_of_person,
    knows_range,
    singles_out,
    sums_only,
    whose,
    with_times,
)
from dpsql.schema.entries import WIDTH, as_entry, listed, toml_key, toml_text
from dpsql.schema.facts import Catalog
from dpsql.schema.fitting import from_declaration
from dpsql.schema.groups import Groups
from dpsql.schema.keys import KeyCatalog, check_way, comparable, read_keys, references_for
from dpsql.schema.names import folded
from dpsql.schema.references import ids_of, leads_to, resolve_unit
from dpsql.schema.table import Table
from dpsql.schema.units import Unit

_HEAD = "# What is public about the tables, for dpsql.Schema.load and --schema.\n"
TODO = "# TODO "
"""Before each line that needs a decision; without these characters it is an entry."""
_ROWS = "max_rows = 3  # how many rows of each are counted; to choose: dpsql rows"
_DECIDE = """\
# Each line with TODO needs a decision. What it says is a guess, by the column's name and type only:
# write what holds whatever rows there are, and take "# TODO " away; or delete the line. A column
# without an entry can't be grouped by or added up. Entries: docs/reference/schema-file.md.
"""


_TYPES = """\
# The types of columns were found by looking at the rows of these files, and nothing else was. A
# column without an entry is read as text.
"""
_READ = """\
# Values were read from rows: keep this file as private as the data, or look at each line that says
# so, and strike out what isn't known to everybody. What is left is taken to be public.
"""
FOUND = "read from rows"
"""The remark behind each entry that rows have told."""
_Found = Mapping[str, Domain | NumberBounds]


def write_toml(
    tables: Iterable[Table],
    proposals: Mapping[tuple[str, ...], Proposal] | None = None,
    found: Mapping[tuple[str, ...], _Found] | None = None,
    *,
    typed: bool = False,
) -> str:
    """Write a schema file that declares what is known of some tables.

    `Schema.load` reads it back to the same domains and units. A column without a domain becomes a
    comment with a draft of what to declare, after `TODO`, and so do the privacy unit, where keys
    lead to one or a column looks like one, and references. What only the catalog can describe
    becomes a comment, too.

    Args:
        tables: the tables.
        proposals: path of a table → what may be declared of it, see `proposals.proposed`.
        found: path of a table → column → what rows have told of it, for the owner.
        typed: whether types were found by looking at rows.

    Raises:
        SchemaError: two tables have the same name.
    """
    written: dict[str, str] = {}
    for table in tables:
        name = _name(table)
        if folded(name) in written:
            raise SchemaError(
                f"There are two tables {printable(name)}.",
                hint="a schema file is for the tables of one database.",
            )
        told = (found or {}).get(table.path, {})
        written[folded(name)] = _section(
            name, table, (proposals or {}).get(table.path), told, typed=typed
        )
    head = _HEAD + _TYPES * typed + _READ * bool(found)
    decide = _DECIDE if any(TODO in section for section in written.values()) else ""
    return "\n".join([head + decide, *written.values()])


def _name(table: Table) -> str:
    """Name a table as a schema file does: with its schema, unless that is `main`."""
    schema = table.path[-2] if len(table.path) > 1 else "main"
    return table.name if schema == "main" else f"{schema}.{table.name}"


def _section(
    name: str, table: Table, proposal: Proposal | None, found: _Found, *, typed: bool
) -> str:
    key = toml_key(name)
    drafts = (f"{TODO}{printable(line)}" for line in _drafts(table, proposal or Proposal()))
    of_rows = [*drafts, *_of_rows(table)]
    lines = [f"[{key}]", *of_rows, ""] if of_rows else []
    lines.append(f"[{key}.columns]")
    lines += [_column(name, domain) for name, domain in table.columns.items()]
    for name, type_ in table.undeclared.items():
        known = table.bounds.get(name) or table.unknown.get(name)
        if known is not None:
            lines.append(as_entry(name, known))
        elif name in found:
            told = found[name]
            if typed and isinstance(told, Domain):
                told = with_times(told, type_)
            lines.append(f"{as_entry(name, told)}  # {FOUND}")
        else:
            lines.append(_undeclared(name, type_, typed=typed))
    if table.expressions:
        lines += ["", f"[{key}.expressions]"]
        lines += [as_entry(text, bounds) for text, bounds in table.expressions.items()]
    return "\n".join(lines) + "\n"


def _of_rows(table: Table) -> Iterator[str]:
    """Write what a table declares besides its columns."""
    if table.unit is not None:
        yield f"unit = {toml_text(table.unit.name)}"
        names = ("max_rows", "max_groups", "max_values")
        bounds = {name: getattr(table.unit, name) for name in names}
        yield from (f"{name} = {most}" for name, most in bounds.items() if most is not None)
        per = [f"{toml_key(', '.join(of.columns))} = {of.rows}" for of in table.unit.limits]
        if per:
            yield f"max_rows_per = {{ {', '.join(per)} }}"
    if table.each_row:
        yield "each_row = true"
    if table.groups:
        yield listed("groups", map(_groups, table.groups))


def _drafts(table: Table, proposal: Proposal) -> Iterator[str]:
    """Draft what a table may declare besides its columns."""
    if proposal.references:
        pairs = (
            f"{toml_key(name)} = {toml_text(key)}" for name, key in proposal.references.items()
        )
        yield f"references = {{ {', '.join(pairs)} }}  # by their names; no FOREIGN KEY says so"
    if table.unit is not None or table.each_row:
        return
    root = proposal.root
    if not root:
        likely = whose((*table.columns, *table.undeclared))
        if likely:
            yield _unit(*likely)
            yield _ROWS
    elif proposal.lacking:
        yield f"# its rows are of rows of {root}, by another file: give it their {proposal.lacking}"
    elif not proposal.unit:
        yield f"each_row = true  # if its rows belong to nobody in {root}; or name it in public="
    elif root == table.name:
        leading = ", ".join(proposal.leading)
        yield f"unit = {toml_text(proposal.unit)}  # to protect each with its rows in {leading}"
        yield "max_rows = 1  # each is one row here"
    else:
        also = f"; or {', '.join(map(toml_text, proposal.others))}" if proposal.others else ""
        yield f"unit = {toml_text(proposal.unit)}  # whose each row is: a row of {root}{also}"
        yield _ROWS


def _unit(first: str, *others: str) -> str:
    """Draft a unit by columns that may say whose a row is, the likeliest first."""
    note = "if one may have several rows; else delete both lines"
    if not is_of_person(first):
        named = ", ".join(map(toml_text, (first, *others)))
        note = f"decide whose each row is: {named} may tell other things than persons apart"
    elif also := [name for name in others if is_of_person(name) and is_id(name)]:
        note = f"decide whose each row is; or {', '.join(map(toml_text, also))}"
    return f"unit = {toml_text(first)}  # {note}"


def _groups(groups: Groups) -> str:
    columns = ", ".join(map(toml_text, groups.columns))
    if isinstance(groups.of, str):
        return f"{{ columns = [{columns}], of = {toml_text(groups.of)} }}"
    rows = ", ".join(f"[{', '.join(map(toml_text, row))}]" for row in groups.of)
    return f"{{ columns = [{columns}], rows = [{rows}] }}"


def _column(name: str, domain: Domain) -> str:
    line = as_entry(name, domain)
    if _declares(line, name, domain):
        return line
    return f"# {_comment(name)}: only the table itself can declare {_comment(str(domain))}."


def _declares(line: str, name: str, domain: Domain) -> bool:
    """Whether a line is read back as the domain, but for the type that the column gives it."""
    type_ = {"ENUM": "VARCHAR"}.get(domain.type, domain.type)
    type_ = "BIGINT" if type_ in INTEGER_TYPES else type_
    try:
        read = parse_toml(f"[t.columns]\n{line}").tables["t"][name]
    except SchemaError:
        return False
    if not isinstance(read, Domain):
        return False
    if domain.column_type == "FLOAT":
        return from_declaration(name, "FLOAT", generated=False, domain=read) == domain
    return read == replace(domain, type=type_, column_type="")


def _undeclared(name: str, type_: str, *, typed: bool) -> str:
    """Draft what a column without a domain may declare; no character of it may end the comment."""
    type_, shown = type_ or "unknown type", _comment(type_)
    draft = drafted(name, type_)
    if draft is None:
        return f"# {_comment(name)} is a column of type {shown}: it can't have a domain."
    if is_id(name):
        return f"# {_comment(name)} is {shown}: ids need no entry. A short list of codes does."
    draft = with_times(draft, type_) if typed else draft
    entry, note = as_entry(name, draft), f"{shown}: {draft.size:,} cells"
    cells = entry.partition(" = ")[2]
    if draft.type == "VARCHAR":
        entry = as_entry(name, UnknownKeys())
        note = f"{shown}: found for a part of each budget. If its texts are known: {cells}"
    elif is_number(type_) and not singles_out(name):
        bounds, known = drafted_bounds(name, type_), knows_range(name, type_)
        if not known:
            ends, entry = (
                as_entry(name, bounds).partition(" = ")[2],
                as_entry(name, UnknownBounds()),
            )
            note = f"{shown}: found for a part of each budget. If its ends are known: {ends}. "
            note += f"To group by it, too: {cells}"
        elif sums_only(type_, draft):
            entry = as_entry(name, bounds)
            note = f"{shown}: to be added up. To group by it, too: {cells}"
    if singles_out(name):
        note = f"{shown}: does it tell persons apart? Then delete this, or make it the unit"
    return f"{TODO}{printable(entry)}  # {note}"


def _comment(text: str) -> str:
    return printable(text if len(text) <= WIDTH else f"{text[:WIDTH]}…")


# ── Proposals for the owner's declarations: guesses at whose the rows are, and what refers to what
#
# They are made of FOREIGN KEYs and of names and types of columns. No row is read, so nothing about
# the data can be in them. What is guessed together can be declared together: each unit is looked
# for as it will be, with all references that are guessed.


_KEY = re.compile(r"(?P<of>.+?)_*(?P<end>id|key|nr|no|num|number|code|uuid)", re.IGNORECASE)
_OF_ANYTHING = frozenset({"id", "ids", "uuid", "guid", "name", "serial", "address"})
_SIGNS = frozenset(".,\"'")
"""Signs that mean something in a reference."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A proposal for the declarations of one table."""

    unit: str = ""
    """The key of its unit; empty if none is likely."""
    root: str = ""
    """The table whose rows are the units, where its name or FOREIGN KEYs say so."""
    others: tuple[str, ...] = ()
    """Other keys that may be meant."""
    leading: tuple[str, ...] = ()
    """If it is the root: the tables that lead to it."""
    lacking: str = ""
    """The column of the root that its rows should have, if they lead there by other files alone."""
    references: Mapping[str, str] = field(default_factory=dict)
    """Column of it → the column of another table that it looks like."""


def proposed(
    catalog: Catalog, tables: Sequence[Table], declared: Schema | None = None
) -> dict[tuple[str, ...], Proposal]:
    """Propose units and references for tables of which nothing says them.

    Args:
        catalog: tells of the tables.
        tables: the tables, as described.
        declared: what is declared already.

    Returns:
        Path of a table → what may be declared of it, if there is something.

    Raises:
        SchemaError: the catalog can't be read.
    """
    proposals: dict[tuple[str, ...], Proposal] = {}
    for place in dict.fromkeys(table.path[:2] for table in tables):
        tables_there = [table for table in tables if table.path[:2] == place]
        proposals |= _Proposals(catalog, tables_there, declared).of_tables()
    return proposals


class _Proposals:
    """Proposes for the tables of one schema."""

    def __init__(self, catalog: Catalog, tables: Sequence[Table], declared: Schema | None) -> None:
        path = tables[0].path
        known = references_for(catalog, path, declared, None)
        self._facts, self._tables = catalog, tables
        self._stored = catalog.keys(path)
        self._guessed = dict(_guessed(read_keys(self._stored, path, known)))
        self._references = known | {
            f"{table}.{column}": key for (table, column), key in self._guessed.items()
        }
        self._catalog = read_keys(self._stored, path, self._references)

    def of_tables(self) -> Iterator[tuple[tuple[str, ...], Proposal]]:
        """Yield what may be declared, with the path of each table."""
        roots = self._roots()
        for table in self._tables:
            keys = {c: key for (name, c), key in self._guessed.items() if name == table.name}
            unit = Proposal()
            if roots and table.unit is None and not table.each_row:
                unit = self._unit(table, roots)
            if keys or unit.root:
                yield table.path, replace(unit, references=keys)

    def _roots(self) -> list[str]:
        """Return tables whose rows may be units, the likeliest first.

        Those that look like persons by their name; else those to which the most tables lead.
        """
        lead = {name: leads_to(self._catalog, name) for name in self._catalog.columns}
        likely = [name for name in lead if lead[name] or _is_of_persons(name)]
        likely.sort(key=lambda name: (not _is_of_persons(name), -len(lead[name]), name))
        likely = likely if likely and lead[likely[0]] else []
        return [name for name in likely if lead[name]]

    def _unit(self, table: Table, roots: Sequence[str]) -> Proposal:
        """Propose a unit: the likeliest root, or a column that refers to it."""
        root = roots[0]
        if table.name == root:
            leading = leads_to(self._catalog, root)
            return Proposal(next(self._valid(table, [root]), ""), root, leading=leading)
        if table.name not in leads_to(self._catalog, root):
            return Proposal(root=root)
        key, *others = [*self._valid(table, [root, *ids_of(self._catalog, table.name, root)]), ""]
        if not key:
            id_, *_ = self._catalog.own_key(root) or ("id",)
            return Proposal(root=root, lacking=id_)
        further = [name for name in roots[1:] if table.name in leads_to(self._catalog, name)]
        others = [name for name in others if name and key != root]
        also = [name for name in self._valid(table, further) if _is_of_persons(name)]
        return Proposal(key, root, (*others, *also))

    def _valid(self, table: Table, keys: Sequence[str]) -> Iterator[str]:
        """Yield those keys that could be declared as the unit of a table."""
        for key in keys:
            with suppress(SchemaError):
                unit = resolve_unit(self._stored, table.path, Unit(key, 1, self._references))
                check_way(self._facts, table.name, unit)
                yield key


def _guessed(catalog: KeyCatalog) -> Iterator[tuple[tuple[str, str], str]]:
    """Yield columns that look like keys of other tables, each with the column that is meant."""
    for table, columns in catalog.columns.items():
        edges = catalog.edges.get(table, ())
        referring = {column for edge in edges for column in edge.columns}
        met = {edge.parent for edge in edges}
        for column in columns:
            if column in referring or not _SIGNS.isdisjoint(table + column):
                continue
            meant = [each for each in _keys(catalog, table, column) if each[0] not in met]
            if len(meant) == 1:
                yield (table, column), ".".join(meant[0])


def _keys(catalog: KeyCatalog, table: str, column: str) -> Iterator[tuple[str, str]]:
    """Yield the columns of other tables whose values a column may have."""
    for other, columns in catalog.columns.items():
        if other == table or not _SIGNS.isdisjoint(other):
            continue
        for key in _own_keys(catalog, other, column):
            types = catalog.type(table, column), catalog.type(other, key)
            if key in columns and _SIGNS.isdisjoint(key) and comparable(*types):
                yield other, key
                break


def _own_keys(catalog: KeyCatalog, other: str, column: str) -> Iterator[str]:
    """Yield the columns of a table that one of another table may mean, the likeliest first.

    `customer_id` is `customers.id` or `customers.customer_id`; `tailnum` that of the table of which
    it is the PRIMARY KEY.
    """
    names = {folded(name): name for name in catalog.columns[other]}
    primary = catalog.primary.get(other, ())
    same = names.get(folded(column))
    if same is not None and primary == (same,) and _says_whose(column):
        yield same
    parts = _KEY.fullmatch(column)
    if parts is not None and _singular(other) == folded(parts["of"]).rstrip("_"):
        yield from (names[n] for n in (folded(parts["end"]), folded(column)) if n in names)


def _says_whose(column: str) -> bool:
    """Whether a column of this name tells rows apart, and says of what."""
    return singles_out(column) and folded(column) not in _OF_ANYTHING


def _is_of_persons(table: str) -> bool:
    return _singular(table) in PERSONS


def _singular(name: str) -> str:
    """Return the singular of a table's name, as far as spelling tells it."""
    name = folded(name)
    if name in PERSONS:
        return name
    for ending, single in (("ies", "y"), ("sses", "ss"), ("xes", "x"), ("ches", "ch"), ("s", "")):
        if name.endswith(ending) and not name.endswith("ss"):
            return name.removesuffix(ending) + single
    return name
