"""Hypothesis strategies for tables and their domains."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

from hypothesis import strategies as st

from dpsql.schema import Domain, Table
from dpsql.schema.domain import ZONED
from dpsql.schema.sequences import GRAINS
from dpsql.schema.units import KeyStep, ResolvedUnit

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
labels = st.lists(texts, min_size=1, max_size=6, unique=True)
nullable = st.booleans()
days = st.dates(max_value=date(9999, 12, 26))
integers = st.integers(-(2**63), 2**63 - 1)
finite = st.floats(allow_nan=False, allow_infinity=False).map(lambda x: x + 0.0)


def _rules(draw, *, ordered: bool) -> dict:
    null = draw(nullable)
    allowed = [None, "drop", *(["null"] if null else []), *(["clamp"] if ordered else [])]
    return {"nullable": null, "outside": draw(st.sampled_from(allowed))}


@st.composite
def declared_domains(draw) -> Domain:
    """Domains as `Schema` takes them."""
    kind = draw(st.sampled_from(["integers", "decimals", "dates", "bins", "labels", "boolean"]))
    if kind == "boolean":
        return Domain.boolean(nullable=draw(nullable))
    if kind == "labels":
        listed = draw(labels)
        if draw(st.booleans()):
            return Domain.labels(listed, other=draw(st.sampled_from(listed)))
        return Domain.labels(listed, **_rules(draw, ordered=False))
    rules = _rules(draw, ordered=True)
    if kind == "integers":
        return Domain.integers(*sorted([draw(integers), draw(integers)]), **rules)
    if kind == "dates":
        first, last = sorted([draw(days), draw(days)])
        grain, zone = draw(st.sampled_from(GRAINS)), draw(st.sampled_from([None, "Europe/Berlin"]))
        return Domain.dates(first, last, grain, zone=zone, **rules)
    if kind == "bins":
        edges = draw(st.lists(finite, min_size=2, max_size=6, unique=True))
        return Domain.bins(sorted(edges), **rules)
    low, step, count, scale = (
        draw(st.integers(*ends)) for ends in [(-(10**17), 10**17), (1, 10**6), (0, 10**6), (0, 18)]
    )
    exact = [Decimal(f"{n}E-{scale}") for n in (low, low + count * step, step)]
    return Domain.decimals(*exact, **rules)


_COLUMNS = {
    "DOUBLE": ["DOUBLE", "FLOAT", "DECIMAL(9,2)", "UBIGINT"],
    "DATE": ["DATE", "TIMESTAMP"],
    "TIMESTAMP": ["TIMESTAMP"],
}


@st.composite
def stored_domains(draw) -> Domain:
    """Domains as the catalog gives them, too."""
    domain = draw(declared_domains())
    if isinstance(domain.values, range) and draw(st.booleans()):
        return _listed_integers(draw)
    if domain.type == "VARCHAR" and domain.other is None:
        return draw(st.sampled_from([domain, domain.as_type("ENUM")]))
    if domain.zone is not None:
        return domain.of_column(ZONED)
    types = _COLUMNS.get(domain.type)
    return domain if types is None else domain.of_column(draw(st.sampled_from(types)))


def _listed_integers(draw) -> Domain:
    type_, low, high = draw(st.sampled_from([("UBIGINT", 0, 2**64 - 1), ("TINYINT", -128, 127)]))
    listed = draw(st.lists(st.integers(low, high), min_size=1, max_size=5, unique=True))
    return Domain(type_, tuple(listed), **_rules(draw, ordered=False))


paths = st.lists(texts, min_size=0, max_size=3).map(tuple)
joins = st.lists(st.builds(KeyStep, texts, paths, texts, texts), max_size=3).map(tuple)
units = st.builds(ResolvedUnit, texts, texts, texts, joins, st.integers(1, 1_000_000))


@st.composite
def tables(draw, domains=stored_domains) -> Table:
    names = draw(st.lists(texts, min_size=1, max_size=6, unique=True))
    cut = draw(st.integers(0, len(names)))
    columns = {name: draw(domains()) for name in names[:cut]}
    types = st.sampled_from(["VARCHAR", "BLOB", "DECIMAL(9,3)", 'STRUCT("a\nb" INTEGER)', "DATE"])
    undeclared = {name: draw(types) for name in names[cut:]}
    enforced = frozenset(name for name in columns if draw(st.booleans()))
    return Table(draw(texts), columns, undeclared, draw(paths), draw(st.none() | units), enforced)
