"""Places of rows among those of their unit: by conditions on them a unit has fewer rows.

    SELECT … FROM (SELECT *, row_number() OVER (PARTITION BY cid ORDER BY id) AS r FROM o)
    WHERE r <= 2

counts two rows of each unit at most, whatever is declared of orders. If a row meets several others
they all have its place, so that it says nothing of their number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from dpsql.rel.facts import Known, known_places
from dpsql.rel.keys import same_rows
from dpsql.rel.nodes import Filter, Id, Window
from dpsql.rows.expression import RowExpression, all_of
from dpsql.schema import Table
from dpsql.schema.grain import declared_type
from dpsql.sql.algebra.described import DescribedRelation, integers_between


def chosen_by_places(
    of: DescribedRelation,
    said: Sequence[RowExpression],
    places: Mapping[Id, RowExpression | None],
    known: Known,
) -> DescribedRelation | None:
    """Return those rows of which conditions are true; None if a unit has as many as before.

    Args:
        of: the rows.
        said: the conditions.
        places: columns with the place of each row among those of its unit → of which of them.
        known: the facts about relations.
    """
    below = [node for node in same_rows(of.relation, known) if isinstance(node, Window)]
    own = places.keys() & {name for node in below for name, _ in node.adds}
    left = {name: (first, last) for name, first, last in known_places(said) if name in own}
    if not left or any(first > last for first, last in left.values()):
        return None
    among = (places[name] for name in left)  # other rows have places of their own
    holds = all_of([*said, *(one for one in among if one is not None)])
    many = [last - first + 1 for first, last in left.values()]
    most = min([*many, *(() if of.most is None else (of.most,))])
    found = of.over(Filter(of.relation, holds), most=most)
    return replace(found, table=_with_places(of.table, left))


def _with_places(table: Table, left: Mapping[Id, tuple[int, int]]) -> Table:
    """Return columns of which some have no other places than are left."""
    columns, undeclared = dict(table.columns), dict(table.undeclared)
    for name, (first, last) in left.items():
        domain = integers_between((Fraction(first), Fraction(last)), declared_type(table, name))
        if domain is not None:
            columns[name] = replace(domain, nullable=False)
            undeclared.pop(name, None)
    places = left.keys() & columns.keys()
    bounds = {name: ends for name, ends in table.bounds.items() if name not in places}
    return replace(
        table,
        columns=columns,
        undeclared=undeclared,
        bounds=bounds,
        enforced=table.enforced | places,
        filled=table.filled | places,
    )
