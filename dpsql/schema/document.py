"""Write what is public about tables as a schema file, for people; `Schema.load` reads it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from dpsql.errors import SchemaError, printable
from dpsql.schema.declared import from_declaration
from dpsql.schema.domain import INTEGER_TYPES, Domain, NumberBounds
from dpsql.schema.drafts import (
    drafted,
    drafted_bounds,
    is_id,
    is_of_person,
    says_range,
    singles_out,
    sums_only,
    whose,
)
from dpsql.schema.entries import WIDTH, as_entry, listed, toml_key, toml_text
from dpsql.schema.groups import Groups
from dpsql.schema.names import folded
from dpsql.schema.proposals import Proposal
from dpsql.schema.table import Table
from dpsql.schema.toml import parse_toml

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
        written[folded(name)] = _section(name, table, (proposals or {}).get(table.path), told)
    head = _HEAD + _TYPES * typed + _READ * bool(found)
    decide = _DECIDE if any(TODO in section for section in written.values()) else ""
    return "\n".join([head + decide, *written.values()])


def _name(table: Table) -> str:
    """Name a table as a schema file does: with its schema, unless that is `main`."""
    schema = table.path[-2] if len(table.path) > 1 else "main"
    return table.name if schema == "main" else f"{schema}.{table.name}"


def _section(name: str, table: Table, proposal: Proposal | None, found: _Found) -> str:
    key = toml_key(name)
    drafts = (f"{TODO}{printable(line)}" for line in _drafts(table, proposal or Proposal()))
    of_rows = [*drafts, *_of_rows(table)]
    lines = [f"[{key}]", *of_rows, ""] if of_rows else []
    lines.append(f"[{key}.columns]")
    lines += [_column(name, domain) for name, domain in table.columns.items()]
    for name, type_ in table.undeclared.items():
        if name in table.bounds:
            lines.append(as_entry(name, table.bounds[name]))
        elif name in found:
            lines.append(f"{as_entry(name, found[name])}  # {FOUND}")
        else:
            lines.append(_undeclared(name, type_))
    if table.expressions:
        lines += ["", f"[{key}.expressions]"]
        lines += [as_entry(text, bounds) for text, bounds in table.expressions.items()]
    return "\n".join(lines) + "\n"


def _of_rows(table: Table) -> Iterator[str]:
    """Write what a table declares besides its columns."""
    if table.unit is not None:
        yield f"unit = {toml_text(table.unit.name)}"
        bounds = {"max_rows": table.unit.max_rows, "max_groups": table.unit.max_groups}
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
    if isinstance(read, NumberBounds):
        return False
    if domain.column_type == "FLOAT":
        return from_declaration(name, "FLOAT", generated=False, domain=read) == domain
    return read == replace(domain, type=type_, column_type="")


def _undeclared(name: str, type_: str) -> str:
    """Draft what a column without a domain may declare; no character of it may end the comment."""
    type_, shown = type_ or "unknown type", _comment(type_)
    draft = drafted(name, type_)
    if draft is None:
        return f"# {_comment(name)} is a column of type {shown}: it can't have a domain."
    if is_id(name):
        return f"# {_comment(name)} is {shown}: ids need no entry. A short list of codes does."
    note = f"{shown}: {draft.size:,} cells"
    entry = as_entry(name, draft)
    if sums_only(type_, draft) and not singles_out(name):
        cells = entry.partition(" = ")[2]
        entry = as_entry(name, drafted_bounds(name, type_))
        note = f"{shown}: to be added up. To group by it, too: {cells}"
        if not says_range(name):
            note = f"{shown}: which ends it has; these are no guess. To group by it, too: {cells}"
    elif draft.type == "VARCHAR":
        note = f"{shown}: list its texts"
    elif isinstance(draft.values, range) and not says_range(name):
        note = f"{shown}: which ends it has; these are no guess"
    if singles_out(name):
        note = f"{shown}: does it tell persons apart? Then delete this, or make it the unit"
    return f"{TODO}{printable(entry)}  # {note}"


def _comment(text: str) -> str:
    return printable(text if len(text) <= WIDTH else f"{text[:WIDTH]}…")
