"""Relations that have no meaning for each unit alone are refused, whatever is around them."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from dpsql.engines.duckdb.relations import DuckDBRelations, kept_rows
from dpsql.engines.table_relations import TableRelation
from dpsql.errors import DpsqlError, InternalError, SqlLimitError, UnsupportedSqlError
from dpsql.rel.check import MOST_LEVELS, MOST_RELATIONS, check, check_kept
from dpsql.rel.facts import Known
from dpsql.rel.identity import digest
from dpsql.rel.nodes import (
    ONLY,
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
    Union,
    Window,
)
from dpsql.rows.expression import RowCall, RowColumn, RowConstant
from dpsql.rows.windows import WindowCall, WindowFrame, WindowOrder
from dpsql.schema.domain import Domain
from dpsql.schema.units import RowLimit
from tests.rel.random_relations import Relations, Shop
from tests.rel.shown import shown

REFUSED = (DpsqlError, InternalError)
SHOP = Shop("INTEGER")
ONE, TRUE = RowConstant("INTEGER", "1"), RowConstant("BOOLEAN", "true")
NOPE, DOUBLE, PRICE, DAY, MARK = map(RowColumn, ("nope", "x.w", "x.price", "x.day", "x.mark"))
PUBLIC = Public((("g", "INTEGER"),), ((ONE,),))
VISITS, ORDERS = Scan(SHOP.source("visits"), "x."), Scan(SHOP.source("orders"), "x.")
MARKED = Scan(SHOP.source("orders"), "y.")
ORDER = (WindowOrder(DAY, descending=False, nulls_first=False),)


def scan(name, prefix, **table):
    source = SHOP.source(name)
    return Scan(replace(source, table=replace(source.table, **table)), prefix)


def other_units():
    source = replace(SHOP.source("visits"), ids=("staff", ("id",)))
    return Scan(source, "y.")


def other_type():
    return Scan(Shop("VARCHAR").source("visits"), "y.")


def rank(**more):
    return Window(VISITS, (("r", WindowCall("rank", **{"order": ORDER, **more})),))


def total(**more):
    given = {"arguments": (DAY,), "frame": WindowFrame(False, None, None), **more}
    return Window(VISITS, (("r", WindowCall("sum", **given)),))


ITEMS, CUSTOMERS = SHOP.source("items"), SHOP.source("customers")
NOTES = Scan(SHOP.source("notes"), "y.")
COUNT = (("n", Agg("count")),)


def beside(sign):
    return RowCall(sign, (MARK, RowColumn("y.mark")))


def cells(name):
    return CellsOf(f"x.{name}", Domain("INTEGER", range(3)), True)


def limited(*of, rows=1):
    return Bound(VISITS, 3, (CellLimit(of, rows),))


BAD = {
    "public rows stand alone": lambda: PUBLIC,
    "public rows are filtered": lambda: Filter(PUBLIC, TRUE),
    "public rows are projected": lambda: Project(PUBLIC, (("h", RowColumn("g")),)),
    "public rows are kept by a join": lambda: Join(PUBLIC, VISITS, None),
    "public rows are kept by a left join": lambda: Join(PUBLIC, VISITS, None, "left"),
    "public rows are kept by a group join": lambda: GroupJoin(PUBLIC, VISITS, None, COUNT),
    "public rows are numbered": lambda: Window(PUBLIC, (("r", WindowCall("rank")),)),
    "public rows are grouped": lambda: Group(PUBLIC, (("h", RowColumn("g")),)),
    "public rows are bounded": lambda: Bound(PUBLIC, 1),
    "public rows are put beside private ones": lambda: Union(
        (Project(VISITS, (("a", DAY),)), PUBLIC), ("u",)
    ),
    "units are others": lambda: Join(VISITS, other_units(), None),
    "units are others in a group join": lambda: GroupJoin(VISITS, other_units(), None, COUNT),
    "ids of units are of another type": lambda: Join(VISITS, other_type(), None),
    "the database is another one": lambda: Join(
        VISITS, scan("visits", "y.", path=("b", "c", "visits")), None
    ),
    "a table has no units": lambda: scan("visits", "x.", unit=None),
    "a filter reads what isn't there": lambda: Filter(VISITS, RowCall("=", (NOPE, ONE))),
    "a projection reads what isn't there": lambda: Project(VISITS, (("a", NOPE),)),
    "a join reads what isn't there": lambda: Join(VISITS, NOTES, RowCall("=", (NOPE, ONE))),
    "an aggregate reads what isn't there": lambda: Group(VISITS, (), (("n", Agg("max", NOPE)),)),
    "an aggregate is of rows that aren't there": lambda: Group(
        VISITS, (), (("n", Agg("count", None, RowCall("=", (NOPE, ONE)))),)
    ),
    "a key isn't there": lambda: Group(VISITS, (("k", NOPE),)),
    "a part isn't there": lambda: rank(partition=(NOPE,)),
    "an order isn't there": lambda: rank(order=(WindowOrder(NOPE, False, False),)),
    "what is told apart isn't there": lambda: rank(told=(("nope", "INTEGER"),)),
    "a window is of rows that aren't there": lambda: rank(holds=RowCall("=", (NOPE, ONE))),
    "a table is joined with itself by one name": lambda: Join(
        VISITS, Scan(SHOP.source("visits"), "x."), None
    ),
    "a tree has a part twice": lambda: Join(VISITS, VISITS, None),
    "a projection has an id twice": lambda: Project(VISITS, (("a", DAY), ("a", DAY))),
    "a window takes an id that there is": lambda: Window(VISITS, (("x.day", WindowCall("rank")),)),
    "a group takes an id that there is": lambda: Group(VISITS, (("x.day", DAY),)),
    "a condition is a number": lambda: Filter(VISITS, DAY),
    "a condition of a join is a number": lambda: Join(VISITS, NOTES, DAY),
    "a condition of an aggregate is a number": lambda: Group(
        VISITS, (), (("n", Agg("count", None, DAY)),)
    ),
    "a condition of a window is a number": lambda: rank(holds=DAY),
    "doubles are added up": lambda: Group(VISITS, (), (("n", Agg("sum", DOUBLE)),)),
    "doubles are added up along a window": lambda: total(arguments=(DOUBLE,)),
    "rows are grouped by doubles": lambda: Group(VISITS, (("k", DOUBLE),)),
    "windows are parted by doubles": lambda: rank(partition=(DOUBLE,)),
    "any value is taken": lambda: Group(VISITS, (), (("n", Agg("any_value", DAY)),)),
    "values are listed": lambda: Group(VISITS, (), (("n", Agg("string_agg", DAY)),)),
    "a window has no name": lambda: Window(VISITS, (("r", WindowCall("random")),)),
    "a running total has no frame": lambda: total(order=ORDER, frame=None),
    "the last of equal rows is asked for": lambda: Window(
        VISITS,
        (("r", WindowCall("last_value", (DAY,), order=ORDER, frame=WindowFrame(False, None, 0))),),
    ),
    "the only row has an expression": lambda: Group(
        VISITS, (), (("n", Agg(ONLY, RowCall("+", (DAY, ONE)))),)
    ),
    "the only row is of some": lambda: Group(VISITS, (), (("n", Agg(ONLY, DAY, TRUE)),)),
    "the only row is joined": lambda: GroupJoin(
        VISITS, NOTES, None, (("n", Agg(ONLY, RowColumn("y.mark"))),)
    ),
    "types of a union differ": lambda: Union(
        (Project(VISITS, (("a", DAY),)), Project(ORDERS, (("b", RowColumn("x.kind")),))), ("u",)
    ),
    "columns of a union are too few": lambda: Union(
        (Project(VISITS, (("a", DAY),)), Project(ORDERS, (("b", PRICE), ("c", PRICE)))), ("u",)
    ),
    "a union has one part": lambda: Union((Project(VISITS, (("a", DAY),)),), ("u",)),
    "a number of parts is missing": lambda: Window(VISITS, (("r", WindowCall("ntile")),)),
    "there are no parts": lambda: Window(VISITS, (("r", WindowCall("ntile", numbers=(0,))),)),
    "a rank has an argument": lambda: Window(VISITS, (("r", WindowCall("rank", (DAY,))),)),
    "nothing is looked back at": lambda: Window(VISITS, (("r", WindowCall("lag")),)),
    "a row is too far away": lambda: Window(VISITS, (("r", WindowCall("lag", (DAY,), (10**9,))),)),
    "no row is the zeroth": lambda: Window(
        VISITS,
        (("r", WindowCall("nth_value", (DAY,), (0,), frame=WindowFrame(True, None, None))),),
    ),
    "public rows have no columns": lambda: Join(VISITS, Public((), ((), ())), None),
    "no row is kept": lambda: Bound(VISITS, 0),
    "too many rows are kept": lambda: Bound(VISITS, 10**9),
    "an opaque value is compared by order": lambda: Join(VISITS, MARKED, beside("<")),
    "an opaque value is compared in a row": lambda: Filter(VISITS, RowCall("=", (MARK, MARK))),
    "rows are sorted by an opaque value": lambda: rank(
        order=(WindowOrder(MARK, descending=False, nulls_first=False),)
    ),
    "an opaque value is an argument": lambda: Group(VISITS, (), (("n", Agg("count", MARK)),)),
    "a limit is for no cells": lambda: Bound(VISITS, 3, (CellLimit((), 1),)),
    "a limit keeps nothing": lambda: limited(cells("day"), rows=0),
    "a limit is for cells that aren't there": lambda: limited(cells("missing")),
    "a limit is for cells of another type": lambda: limited(cells("ok")),
    "a limit is for the cells of a column twice": lambda: limited(cells("day"), cells("day")),
    "limits are for other cells of one column": lambda: Bound(
        VISITS,
        3,
        (
            CellLimit((cells("day"),), 1),
            CellLimit((cells("day")._replace(domain=Domain("INTEGER", range(1, 2))),), 2),
        ),
    ),
    "the way has no such step": lambda: Scan(SHOP.source("orders"), "x.", ((CUSTOMERS, "y."),)),
    "the way leads elsewhere": lambda: Scan(ITEMS, "x.", ((CUSTOMERS, "y."),)),
    "a step is by a column that can't be read": lambda: Scan(
        replace(ITEMS, table=replace(ITEMS.table, undeclared={"order_id": "TIMESTAMPTZ"})),
        "x.",
        ((SHOP.source("orders"), "y."),),
    ),
    "a step isn't enforced": lambda: Scan(
        SHOP.source("notes"), "x.", ((SHOP.source("orders"), "y."),)
    ),
}


def around(relation, rng):
    """Put a relation, whatever it is, into a larger one."""
    relations = Relations(rng, SHOP)
    relations._count = 1000
    outer = relations.tree(rng.randint(0, 2))
    return rng.choice(
        [
            lambda: Join(outer, relation, None),
            lambda: GroupJoin(outer, relation, None, (("outer", Agg("exists")),)),
            lambda: Join(Bound(relation, 3), outer, None),
            lambda: Filter(relation, TRUE),
        ]
    )()


@pytest.mark.parametrize("name", BAD)
def test_what_has_no_meaning_is_refused(name):
    with pytest.raises(REFUSED):
        check(BAD[name]())


@pytest.mark.parametrize("name", [name for name in BAD if not name.startswith("public rows stand")])
def test_it_is_refused_wherever_it_stands(name):
    rng = random.Random(name)  # noqa: S311
    for _ in range(20):
        try:
            inner = BAD[name]()
        except InternalError:  # it can't even be written
            return
        with pytest.raises(REFUSED):
            check(around(inner, rng))


def test_what_a_statement_can_say_has_a_hint():
    for bad in (BAD["public rows are kept by a join"], BAD["units are others"]):
        with pytest.raises(UnsupportedSqlError) as caught:
            check(bad())
        assert caught.value.hint


def test_a_tree_may_be_large_and_not_larger():
    relation = VISITS
    for _ in range(MOST_LEVELS - 1):
        relation = Filter(relation, TRUE)
    check(relation)
    assert len(DuckDBRelations().query(relation).columns) == 6
    assert len(digest(relation)) == 64
    assert len(shown(relation).splitlines()) == MOST_LEVELS
    with pytest.raises(SqlLimitError, match="steps"):
        check(Filter(relation, TRUE))


def test_a_tree_may_have_many_parts_and_not_more():
    def put_together(count):
        parts = [
            Project(Scan(SHOP.source("visits"), f"v{i}."), ((f"p{i}", RowColumn(f"v{i}.day")),))
            for i in range(count)
        ]
        return Union(tuple(parts), ("u",))

    check(put_together((MOST_RELATIONS - 1) // 2))
    with pytest.raises(SqlLimitError, match="steps"):
        check(put_together(MOST_RELATIONS // 2))


def test_good_neighbors_of_the_bad_ones_pass():
    check(Join(VISITS, PUBLIC, RowCall("=", (DAY, RowColumn("g"))), "left"))
    check(GroupJoin(VISITS, PUBLIC, RowCall("=", (DAY, RowColumn("g"))), (("n", Agg("exists")),)))
    check(Scan(ITEMS, "x.", ((SHOP.source("orders"), "y."),)))
    check(total(order=ORDER))
    check(rank())
    check(limited(cells("day")))
    check(Join(VISITS, MARKED, beside("=")))
    check(Group(VISITS, (("k", MARK),), (("m", Agg(ONLY, MARK)),)))


BOUND = Bound(ORDERS, 3)
BY_KEY = RowCall("=", (RowColumn("x.id"), RowColumn("k.id")))
KEYED = Scan(SHOP.source("orders"), "k.")
DAYS, HOURS = Domain("INTEGER", range(7)), Domain("INTEGER", range(24))


def in_cells_of(*domains):
    cells = [CellLimit((CellsOf("x.price", of, False),), 2) for of in domains]
    return Bound(ORDERS, 3, tuple(cells))


def charged(rows, *limits):
    """Return a table of which so many rows count of a unit, and so many in the same cells."""
    table = SHOP.source("orders").table
    columns = {f"c{i}": domain for i, (_, domain) in enumerate(limits)}
    said = tuple(RowLimit((f"c{i}",), most) for i, (most, _) in enumerate(limits))
    return replace(table, columns=columns, unit=replace(table.unit, max_rows=rows, limits=said))


KEPT = {
    "bound": BOUND,
    "fewer": Bound(ORDERS, 2),
    "filter": Filter(BOUND, RowCall(">", (PRICE, ONE))),
    "columns": Project(BOUND, (("p", PRICE),)),
    "window": Window(BOUND, (("r", WindowCall("rank", order=())),)),
    "counts of others": GroupJoin(BOUND, NOTES, None, COUNT),
    "rows by a key": Join(BOUND, KEYED, BY_KEY, "left"),
}
MORE = {
    "nothing": ORDERS,
    "more": Bound(ORDERS, 4),
    "each with all others": Join(BOUND, NOTES, None),
    "by no key": Join(BOUND, MARKED, beside("=")),
    "bounded on the right alone": Join(NOTES, Bound(KEYED, 3), None),
    "rows that count others": GroupJoin(ORDERS, BOUND, None, COUNT),
    "union": Union((Project(BOUND, (("p", PRICE),)),) * 2, ("p",)),
    "groups": Group(ORDERS, (("p", PRICE),)),
    "limits that nobody is charged for": in_cells_of(DAYS),
}


@pytest.mark.parametrize("what", KEPT)
def test_no_more_rows_are_kept_than_are_charged_for(what):
    check_kept(KEPT[what], charged(3), Known())


@pytest.mark.parametrize("what", MORE)
def test_more_rows_than_are_charged_for_are_refused(what):
    with pytest.raises(InternalError, match="rows of"):
        check_kept(MORE[what], charged(3), Known())


@pytest.mark.parametrize("table", [charged(None), replace(charged(3), unit=None)])
def test_no_rows_are_kept_where_nothing_is_charged(table):
    with pytest.raises(InternalError, match="than are charged"):
        check_kept(BOUND, table, Known())


def test_limits_are_those_that_are_charged_for():
    check_kept(in_cells_of(DAYS, HOURS), charged(3, (2, DAYS), (2, HOURS)), Known())
    for wrong in ([], [(2, DAYS)], [(1, DAYS), (2, HOURS)], [(2, HOURS), (2, DAYS)]):
        with pytest.raises(InternalError, match="than are charged"):
            check_kept(in_cells_of(DAYS, HOURS), charged(3, *wrong), Known())


@pytest.mark.parametrize("forgotten", ["bound", "limits", "rows"])
def test_what_an_adapter_forgets_is_seen(forgotten, monkeypatch):
    real = TableRelation.with_bound

    def with_bound(of, table):
        node = real(of, table).relation
        wrong = {"bound": node.of, "limits": replace(node, limits=()), "rows": Bound(node.of, 99)}
        return of.above(wrong[forgotten])

    table = SHOP.source("visits").table
    unit = replace(table.unit, max_rows=3, limits=(RowLimit(("day",), 2),))
    rest = {name: type_ for name, type_ in table.undeclared.items() if name != "day"}
    table = replace(table, columns={"day": DAYS}, undeclared=rest, unit=unit)
    assert kept_rows(table, ["day"])
    monkeypatch.setattr(TableRelation, "with_bound", with_bound)
    with pytest.raises(InternalError, match="would be counted"):
        kept_rows(table, ["day"])
