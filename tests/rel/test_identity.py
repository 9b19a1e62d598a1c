"""Relations with one digest have the same rows; names that analysts choose change nothing."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from dpsql.rel.identity import digest, text_of
from dpsql.rel.nodes import (
    Agg,
    Bound,
    CellLimit,
    CellsOf,
    Filter,
    Group,
    GroupJoin,
    Join,
    Project,
    Public,
    Scan,
    Window,
)
from dpsql.rows.expression import RowCall, RowColumn, RowConstant
from dpsql.rows.windows import WindowCall, WindowFrame, WindowOrder
from dpsql.schema.domain import Domain
from tests.rel.random_relations import Relations, Shop
from tests.rel.shown import shown

SHOP = Shop("INTEGER")
DAYS = Domain("INTEGER", range(3))
ONE, TWO = RowConstant("INTEGER", "1"), RowConstant("INTEGER", "2")


def visits(prefix="v.", **table):
    source = SHOP.source("visits")
    return Scan(replace(source, table=replace(source.table, **table)), prefix)


def ordered(descending=False, nulls_first=False, prefix="v.", frame=None):
    order = (WindowOrder(RowColumn(prefix + "day"), descending, nulls_first),)
    frame = frame or WindowFrame(True, None, 0)
    call = WindowCall("sum", (RowColumn(prefix + "day"),), order=order, frame=frame)
    return Window(visits(prefix), (("w", call),))


def limited(name="day", domain=DAYS, rows=1, *, leaves_out=True):
    return Bound(visits(), 3, (CellLimit((CellsOf(f"v.{name}", domain, leaves_out),), rows),))


def at_least(prefix, sign=">=", value=ONE):
    return RowCall(sign, (RowColumn(prefix + "day"), value))


def both(a, b):
    return RowCall("and", (a, b))


SAME = {
    "names of scans": lambda prefix: Filter(visits(prefix), at_least(prefix)),
    "names of columns": lambda prefix: Project(visits("v."), ((prefix, RowColumn("v.day")),)),
    "names of windows": lambda prefix: ordered(prefix=prefix),
    "the name of the database": lambda prefix: visits(path=(prefix, "main", "visits")),
}


@pytest.mark.parametrize("case", SAME)
def test_names_are_not_in_it(case):
    assert digest(SAME[case]("a.")) == digest(SAME[case]("b."))


def test_conditions_that_all_hold_have_no_order():
    one, other = at_least("v."), at_least("v.", "<", TWO)
    made = [Filter(visits(), both(one, other)), Filter(visits(), both(other, one))]
    assert digest(made[0]) == digest(made[1])


def along(of, steps):
    """Join items, perhaps with columns of their orders, to visits; show one column."""
    orders = ((SHOP.source("orders"), "o."),) if steps else ()
    joined = Join(Scan(SHOP.source("items"), "i.", orders), visits(), None)
    return Project(joined, (("a", RowColumn(of)),))


DIFFERENT = [
    visits(),
    visits(undeclared={**SHOP.source("visits").table.undeclared, "day": "VARCHAR"}),
    Scan(SHOP.source("items")),
    Scan(SHOP.source("items"), "i.", ((SHOP.source("orders"), "o."),)),
    *(along(f"o.{name}", True) for name in SHOP.source("orders").table.undeclared),
    *(along(f"v.{name}", False) for name in SHOP.source("visits").table.undeclared),
    *(along(f"v.{name}", True) for name in SHOP.source("visits").table.undeclared),
    visits(path=("memory", "main", "visits2")),
    visits(path=("memory", "other", "visits")),
    Scan(SHOP.source("orders")),
    Filter(visits(), at_least("v.")),
    Filter(visits(), at_least("v.", ">")),
    Filter(visits(), at_least("v.", ">=", TWO)),
    Filter(visits(), at_least("v.", ">=", RowConstant("VARCHAR", "1"))),
    Filter(visits(), RowCall("or", (at_least("v."), at_least("v.", "<", TWO)))),
    Filter(visits(), both(at_least("v."), at_least("v.", "<", TWO))),
    Project(visits(), (("a", RowColumn("v.day")),)),
    Project(visits(), (("a", RowColumn("v.x")),)),
    Project(visits(), (("a", RowColumn("v.day")), ("b", RowColumn("v.x")))),
    Project(visits(), (("a", RowColumn("v.x")), ("b", RowColumn("v.day")))),
    ordered(),
    ordered(descending=True),
    ordered(nulls_first=True),
    ordered(frame=WindowFrame(True, None, 1)),
    ordered(frame=WindowFrame(False, None, 0)),
    Join(visits("a."), visits("b."), RowCall("=", (RowColumn("a.day"), RowColumn("b.day")))),
    Join(visits("a."), visits("b."), RowCall("<", (RowColumn("a.day"), RowColumn("b.day")))),
    Join(visits("a."), visits("b."), RowCall("<", (RowColumn("b.day"), RowColumn("a.day")))),
    Join(visits("a."), visits("b."), None, "left"),
    Join(visits("a."), visits("b."), None),
    GroupJoin(visits("a."), visits("b."), None, (("n", Agg("count")),)),
    GroupJoin(visits("a."), visits("b."), None, (("n", Agg("exists")),)),
    GroupJoin(visits("a."), visits("b."), None, (("n", Agg("count", RowColumn("a.day"))),)),
    GroupJoin(visits("a."), visits("b."), None, (("n", Agg("count", RowColumn("b.day"))),)),
    Group(visits(), (("k", RowColumn("v.day")),), (("n", Agg("count")),)),
    Group(visits(), (("k", RowColumn("v.day")),)),
    Group(visits(), (), (("n", Agg("count")),)),
    Bound(visits(), 3),
    Bound(visits(), 2),
    limited(),
    limited(rows=2),
    limited(leaves_out=False),
    limited("x"),
    limited(domain=Domain("INTEGER", range(4))),
    limited(domain=Domain("INTEGER", range(3), nullable=True)),
    Bound(visits(), 3, (*limited().limits, *limited("x").limits)),
    Bound(visits(), 3, (*limited("x").limits, *limited().limits)),
    *(
        Join(visits(), Public((("g", type_),), rows), None)
        for type_ in ("INTEGER", "VARCHAR")
        for rows in ((), ((ONE,),), ((TWO,),), ((ONE,), (TWO,)), ((RowConstant("VARCHAR", "1"),),))
    ),
]


def test_relations_of_other_rows_are_told_apart():
    assert len({text_of(relation) for relation in DIFFERENT}) == len(DIFFERENT)


@pytest.mark.parametrize("name", ['a", "b', "a]", "[a", "a', 'b", "1", "-", "é", "a,b", "Scan("])
def test_names_can_not_be_forged(name):
    """A table whose name or column is written like what stands around it is another table."""
    texts = [text_of(relation) for relation in DIFFERENT]
    forged = visits(path=("memory", "main", name))
    column = visits(undeclared={"customer_id": "INTEGER", name: "INTEGER", "day": "INTEGER"})
    assert text_of(forged) not in texts
    assert text_of(column) not in texts
    assert text_of(forged) != text_of(column)


def test_random_relations_with_one_text_look_alike():
    """Numbers of columns in place of ids lose nothing that is shown of a relation."""
    rng, found = random.Random(3), dict[str, Counter]()  # noqa: S311
    for number in range(300):
        relation = Relations(rng, SHOP).tree(number % 4)
        other = Relations(rng, SHOP).tree(number % 4)
        same = shown(relation) == shown(other)
        assert not same or text_of(relation) == text_of(other)
        found.setdefault(text_of(relation), Counter())[type(relation).__name__] += 1
    assert all(len(kinds) == 1 for kinds in found.values())


def test_a_relation_is_shown_as_a_tree():
    relation = Filter(ordered(), RowCall(">", (RowColumn("w"), ONE)))
    assert shown(relation).splitlines() == [
        "Filter w > 1",
        '  Window w = sum("v.day") over (order "v.day" ROWS BETWEEN UNBOUNDED PRECEDING AND '
        "CURRENT ROW)",
        "    Scan visits as v",
    ]
