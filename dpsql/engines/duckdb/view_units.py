"""The units of views: the unit of a view is told by columns of the table below.

These are shown by the view as they stand there, so that the rows of a unit are the same rows under
all names.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from dpsql.engines.duckdb.projection import Layer
from dpsql.errors import SchemaError, printable
from dpsql.schema import Table, Unit
from dpsql.schema.facts import Catalog, StoredKeys
from dpsql.schema.keys import KeyCatalog, read_keys
from dpsql.schema.lookup import storing
from dpsql.schema.names import closest
from dpsql.schema.references import resolve_unit
from dpsql.schema.units import DeclaredUnit, ResolvedUnit, RowLimit

FILES = "files"
"""Name of the files that a view reads, where a table would have its own."""


def unit_below(catalog: Catalog, layer: Layer, said: DeclaredUnit) -> DeclaredUnit:
    """Name the unit of a view by the columns below.

    Raises:
        SchemaError: they are no columns of the view that are shown as they are below.
    """
    if not isinstance(said, Unit):
        return said
    view = printable(layer.path[-1])
    shown = list[str]()
    for own in _unit_columns(catalog, layer, said):
        plain = layer.plain(own)
        if plain is None or layer.below is None:
            raise SchemaError(
                f"The column {own} of the view {view} is computed, so it can't be its unit.",
                hint="show the column of the table below unchanged, and name that column.",
            )
        shown.append(plain)
    names = names_below(catalog, layer)
    key = names.spelled(names.path, tuple(shown))
    if key is None:
        raise SchemaError(
            f"No name means {printable(', '.join(shown))} of {printable(names.path[-1])} alone, "
            f"which the view {view} shows as its unit.",
            hint="rename it there.",
        )
    return Unit(key, said.max_rows, max_groups=said.max_groups, max_values=said.max_values)


def names_below(catalog: Catalog, layer: Layer) -> KeyCatalog:
    """Return what names mean of what is below a view: files, a table or another view."""
    below = layer if layer.below is None else layer.below
    if below.files is not None:
        return read_keys(StoredKeys({FILES: below.types}), ("", "", FILES))
    return read_keys(catalog.keys(below.path), below.path)


def _unit_columns(catalog: Catalog, layer: Layer, said: Unit) -> list[str]:
    """Return the columns of a view that have the id of its unit, by declared references too.

    Raises:
        SchemaError: there are none.
    """
    view, stored = printable(layer.path[-1]), catalog.keys(layer.path)
    names = read_keys(stored, layer.path, said.references)
    own = [one.columns for one in names.means(said.key) if one.path == names.path]
    if not any(own) and not said.references:
        raise SchemaError(
            f"The view {view} has no column {printable(said.key)} that could be its unit.",
            hint=closest(said.key, layer.columns),
        )
    found = resolve_unit(stored, layer.path, said)
    if found.joins and layer.below is not None and layer.below.files is not None:
        raise SchemaError(
            f"The rows of {view} belong to units by rows of another table, "
            f"{printable(found.joins[0].path[-1])}, which files can't lead to.",
            hint="put the rows of all into one DuckDB file, in Python "
            f'duckdb.connect("all.duckdb").execute("CREATE TABLE {view} AS FROM …"), and ask '
            "that, with the same references; or pass a frame in place of each file.",
        )
    if found.joins:
        raise SchemaError(
            f"The unit of the view {view} is in another table, {printable(found.joins[0].path[-1])}"
            ", which is not supported for views.",
            hint="show the column that has the id in the view's table; or store its rows: "
            f"{storing(catalog, layer.path[1:], layer.path)}",
        )
    return [name for name, _ in found.columns]


def unit_above(layer: Layer, inner: Table, domains: Collection[str]) -> ResolvedUnit | None:
    """Name the unit of what is below by the view's own column.

    Of the limits on rows that agree in columns below, those stay that are for columns which the
    view shows as they are: no others can be told of its rows.

    Args:
        layer: the view.
        inner: what is below.
        domains: the columns of the view with a domain.

    Raises:
        SchemaError: the view doesn't show it.
    """
    unit = inner.unit
    if unit is None:
        return None
    shown = {layer.plain(name): name for name in reversed(list(layer.columns))}
    known = {layer.plain(name): name for name in reversed(list(layer.columns)) if name in domains}
    limits = (
        RowLimit(tuple(sorted(known[name] for name in limit.columns)), limit.rows)
        for limit in unit.limits
        if all(name in known for name in limit.columns)
    )
    if not unit.joins and all(name in shown for name, _ in unit.columns):
        (column, _), *further = [(shown[name], type_) for name, type_ in unit.columns]
        name = ", ".join(shown[name] for name, _ in unit.columns)
        own = tuple(sorted(limits))
        return replace(unit, name=name, column=column, further=tuple(further), limits=own)
    raise SchemaError(
        f"The rows of {printable(inner.name)} belong to units, of {printable(unit.name)}, which "
        f"the view {printable(layer.path[-1])} doesn't show.",
        hint="create the view again with that column, unchanged.",
    )
