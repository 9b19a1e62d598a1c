"""Domains: their values, the ends of their cells, and what is refused."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal, localcontext

import pytest

from dpsql.errors import SchemaError
from dpsql.schema import Domain, Schema, Table
from dpsql.schema.sequences import DateRange, DecimalRange


class TestValues:
    def test_decimals(self):
        domain = Domain.decimals("-0.50", 1, Decimal("0.25"))
        assert domain.type == "DECIMAL(3,2)"
        assert list(domain.values) == [Decimal(x) for x in ("-0.5", "-0.25", "0", "0.25", "0.5",
                                                             "0.75", "1")]  # fmt: skip
        assert domain.uppers is None
        assert domain.size == 7
        assert str(domain) == "DECIMAL(3,2) {-0.50..1.00 by 0.25}"

    @pytest.mark.parametrize(
        ("arguments", "type_"),
        [
            ((0, 9, 1), "DECIMAL(1,0)"),
            ((0, 10, 1), "DECIMAL(2,0)"),
            (("0.001", "0.002", "0.001"), "DECIMAL(3,3)"),
            (("0", "0", "0.1"), "DECIMAL(1,1)"),
            ((0, "1e3", "1E2"), "DECIMAL(4,0)"),
            (("0.10", "0.30", "0.10"), "DECIMAL(1,1)"),
            (("1" + "0" * 30, "2" + "0" * 30, "1" + "0" * 30), "DECIMAL(31,0)"),
        ],
    )
    def test_the_type_of_decimals_is_the_narrowest(self, arguments, type_):
        assert Domain.decimals(*arguments).type == type_

    def test_decimals_do_not_depend_on_the_decimal_context(self):
        with localcontext() as context:
            context.prec = 3
            domain = Domain.decimals("123456.75", "123457.25", "0.25")
            assert [str(v) for v in domain.values] == ["123456.75", "123457.00", "123457.25"]

    def test_millions_of_decimals_take_no_room(self):
        domain = Domain.decimals(0, 10**15, "0.01")
        assert domain.size == 10**17 + 1
        assert domain.values[10**17] == 10**15
        assert len(repr(domain)) < 200
        assert hash(domain) == hash(Domain.decimals(0, 10**15, "0.01"))

    def test_hours(self):
        domain = Domain.dates("2020-02-28 22:30", date(2020, 2, 29), "hour", zone="Asia/Tokyo")
        assert domain.size == len(domain.values) == 26
        assert domain.values[0] == datetime(2020, 2, 28, 22)
        assert domain.values[-1] == datetime(2020, 2, 29, 23)
        assert domain.uppers[-1] == datetime(2020, 2, 29, 23, 59, 59, 999999)
        assert str(domain) == "TIMESTAMP {2020-02-28 22:00..2020-02-29 23:00 by hour} in Asia/Tokyo"

    def test_minutes(self):
        domain = Domain.dates(datetime(9999, 12, 31, 23, 58), "9999-12-31", "minute")
        assert [value.minute for value in domain.values] == [58, 59]
        assert domain.uppers[-1] == datetime.max

    def test_dates(self):
        domain = Domain.dates("2020-02-28", date(2020, 3, 1))
        assert list(domain.values) == [date(2020, 2, 28), date(2020, 2, 29), date(2020, 3, 1)]
        assert domain.uppers is None
        assert domain.type == "DATE"
        assert str(domain) == "DATE {2020-02-28..2020-03-01}"

    @pytest.mark.parametrize(
        ("grain", "values", "uppers"),
        [
            ("week", ["2019-12-30", "2020-01-06"], ["2020-01-05", "2020-01-12"]),
            ("month", ["2020-01-01"], ["2020-01-31"]),
            ("quarter", ["2020-01-01"], ["2020-03-31"]),
            ("year", ["2020-01-01"], ["2020-12-31"]),
        ],
    )
    def test_periods_are_whole(self, grain, values, uppers):
        domain = Domain.dates("2020-01-02", "2020-01-08", grain)
        assert [str(v) for v in domain.values] == values
        assert [str(v) for v in domain.uppers] == uppers
        assert domain.values[-1:] == (domain.values[-1],)

    @pytest.mark.parametrize("grain", ["day", "month", "quarter", "year"])
    def test_periods_reach_the_ends_of_the_calendar(self, grain):
        domain = Domain.dates("0001-01-01", "9999-12-31", grain)
        assert domain.values[0] == date.min
        assert (domain.uppers or domain.values)[-1] == date.max

    def test_bins(self):
        domain = Domain.bins([-0.0, 1, Decimal("2.5"), 10])
        assert domain.values == (0.0, 1.0, 2.5)
        assert domain.uppers == (math.nextafter(1, 0), math.nextafter(2.5, 0), 10.0)
        assert math.copysign(1, domain.values[0]) == 1
        assert domain.type == "DOUBLE"
        assert str(domain) == "DOUBLE {0.0, 1.0, 2.5, …, up to 10.0}"

    def test_bins_may_be_as_narrow_as_doubles_are(self):
        edges = [1.0, math.nextafter(1.0, 2), math.nextafter(math.nextafter(1.0, 2), 2)]
        domain = Domain.bins(edges)
        assert domain.uppers == (1.0, edges[2])

    def test_sequences_behave_as_sequences(self):
        for values in (
            Domain.decimals(0, 4, 2).values,
            Domain.dates("2020-01-01", "2020-01-03").values,
        ):
            listed = list(values)
            assert values[-1] == listed[-1]
            assert values[:2] == tuple(listed[:2])
            assert values.index(listed[1]) == 1
            assert values.count(listed[1]) == 1
            assert listed[2] in values
            assert list(reversed(values)) == listed[::-1]
            with pytest.raises(IndexError):
                values[3]

    def test_the_rules_are_shown(self):
        assert str(Domain.integers(0, 5, outside="clamp")) == "BIGINT {0..5}, others clamped"
        labels = Domain.labels(["a", "b"], other="b", nullable=True)
        assert str(labels) == "VARCHAR {a, b} or NULL, others as b"
        dropped = Domain.bins([0, 1], nullable=True, outside="drop")
        assert str(dropped).endswith(" or NULL, others dropped")


class TestRules:
    def test_defaults(self):
        assert Domain.integers(0, 1).outside == "drop"
        assert Domain.integers(0, 1, nullable=True).outside == "null"
        assert Domain.labels(["a"], other="a", nullable=True).outside == "other"

    def test_which_domains_have_a_cell_for_every_row(self):
        assert Domain.integers(0, 1, nullable=True).covers_all
        assert Domain.integers(0, 1, nullable=True, outside="clamp").covers_all
        assert Domain.labels(["a"], nullable=True, other="a").covers_all
        assert not Domain.integers(0, 1, nullable=True, outside="drop").covers_all
        assert not Domain.integers(0, 1, outside="clamp").covers_all

    def test_every_part_of_a_domain_is_in_the_fingerprint(self):
        domains = [
            Domain.dates("2020-01-01", "2020-12-31"),
            Domain.dates("2020-01-01", "2020-12-31").of_column("TIMESTAMP"),
            Domain.dates("2020-01-01", "2020-12-31", "week"),
            Domain.dates("2020-01-01", "2020-12-30"),
            Domain.dates("2020-01-01", "2020-12-31", outside="clamp"),
            Domain.dates("2020-01-01", "2020-12-31", nullable=True),
            Domain.dates("2020-01-01", "2020-12-31", nullable=True, outside="clamp"),
            Domain.bins([0, 1, 2]), Domain.bins([0, 1, 3]), Domain.bins([0, 1.5, 2]),
            Domain.decimals(0, 1, 1), Domain.decimals(0, 1, "0.5"), Domain.decimals(0, 2, 1),
            Domain.labels(["a", "b"]), Domain.labels(["a", "b"], other="a"),
            Domain.labels(["a", "b"], other="b"),
        ]  # fmt: skip
        prints = {Table("t", {"x": domain}).fingerprint for domain in domains}
        assert len(prints) == len(domains)


REFUSED = {
    "a float as a bound": lambda: Domain.decimals(0.1, 1, 1),
    "a float as a step": lambda: Domain.decimals(0, 1, 0.1),
    "NaN": lambda: Domain.decimals(0, "nan", 1),
    "infinity": lambda: Domain.decimals(0, Decimal("inf"), 1),
    "a bool as a number": lambda: Domain.decimals(True, 2, 1),
    "None as a number": lambda: Domain.decimals(None, 2, 1),
    "words as a number": lambda: Domain.decimals("one", 2, 1),
    "a long text": lambda: Domain.decimals("1" * 10_000, 2, 1),
    "a huge int": lambda: Domain.decimals(0, 10**10_000, 1),
    "a huge exponent": lambda: Domain.decimals(0, "1e999999", 1),
    "a tiny exponent": lambda: Domain.decimals(0, 1, "1e-999999"),
    "a step of 0": lambda: Domain.decimals(0, 1, 0),
    "a step below 0": lambda: Domain.decimals(0, 1, -1),
    "a step that misses the end": lambda: Domain.decimals(0, 1, "0.3"),
    "an empty range": lambda: Domain.decimals(1, 0, 1),
    "too many decimals": lambda: Domain.decimals(0, "1e20", "1e-10"),
    "too many digits": lambda: Domain.decimals("1e-30", "1e10", "1e10"),
    "a datetime": lambda: Domain.dates(datetime(2020, 1, 1), date(2020, 1, 2)),
    "a day that isn't": lambda: Domain.dates("2020-02-30", "2020-03-01"),
    "a date in another form": lambda: Domain.dates("20200101", "2020-03-01"),
    "a time with a zone": lambda: Domain.dates(
        datetime(2020, 1, 1, tzinfo=UTC), date(2020, 1, 2), "hour"
    ),
    "hours in the wrong order": lambda: Domain.dates(
        "2020-01-01 02:00", "2020-01-01 01:00", "hour"
    ),
    "a zone that isn't a name": lambda: Domain.dates("2020-01-01", "2020-01-02", zone="+02:00"),
    "a zone of labels": lambda: Domain("VARCHAR", ("a",), zone="UTC"),
    "a number as a date": lambda: Domain.dates(2020, 2021),
    "dates in the wrong order": lambda: Domain.dates("2020-01-02", "2020-01-01"),
    "an unknown grain": lambda: Domain.dates("2020-01-02", "2020-01-03", "decade"),
    "a grain of another type": lambda: Domain.dates("2020-01-02", "2020-01-03", ["day"]),
    "a week after the end": lambda: Domain.dates("2020-01-02", "9999-12-31", "week"),
    "one edge": lambda: Domain.bins([1]),
    "no edges": lambda: Domain.bins([]),
    "equal edges": lambda: Domain.bins([0, 0]),
    "zeros of both signs": lambda: Domain.bins([-0.0, 0.0]),
    "falling edges": lambda: Domain.bins([0, 2, 1]),
    "an infinite edge": lambda: Domain.bins([0, math.inf]),
    "NaN as an edge": lambda: Domain.bins([0, math.nan]),
    "a bool as an edge": lambda: Domain.bins([False, True]),
    "a text as an edge": lambda: Domain.bins(["0", "1"]),
    "a text as edges": lambda: Domain.bins("01"),
    "one number as edges": lambda: Domain.bins(5),
    "an edge beyond doubles": lambda: Domain.bins([0, 10**400]),
    "integers that are one double": lambda: Domain.bins([2**60, 2**60 + 1]),
    "too many bins": lambda: Domain.bins(range(20_000)),
    "a NULL rule without NULL": lambda: Domain.integers(0, 1, outside="null"),
    "an unknown rule": lambda: Domain.integers(0, 1, outside="nearest"),
    "a rule of another type": lambda: Domain.integers(0, 1, outside=["drop"]),
    "clamped labels": lambda: Domain.labels(["a"], outside="clamp"),
    "clamped numbers without order": lambda: Domain("INTEGER", (3, 1, 2), outside="clamp"),
    "another label that is not listed": lambda: Domain.labels(["a"], other="b"),
    "another label with a second rule": lambda: Domain.labels(["a"], other="a", outside="drop"),
    "the rule without the label": lambda: Domain.labels(["a"], outside="other"),
    "no labels": lambda: Domain.labels([]),
    "a label twice": lambda: Domain.labels(["a", "a"]),
    "a label of another type": lambda: Domain.labels(["a", None]),
    "bools as integers": lambda: Domain("INTEGER", (True, False)),
    "bins without ends": lambda: Domain("DOUBLE", (0.0, 1.0)),
    "bins that overlap": lambda: Domain("DOUBLE", (0.0, 1.0), uppers=(1.5, 2.0)),
    "infinite bins": lambda: Domain("DOUBLE", (-math.inf,), uppers=(0.0,)),
    "integers with ends": lambda: Domain("INTEGER", (1, 5), uppers=(4, 9)),
    "months without ends": lambda: Domain("DATE", DateRange(date(2020, 1, 1), 2, "month")),
    "days that are none": lambda: Domain("DATE", (datetime(2020, 1, 1),)),
    "a type that is too narrow": lambda: Domain("DECIMAL(1,0)", DecimalRange(0, 1, 99, 0)),
    "decimals of no type": lambda: Domain("TIME", (1,)),
}  # fmt: skip


@pytest.mark.parametrize("make", REFUSED.values(), ids=REFUSED)
def test_refused_with_a_hint(make):
    with pytest.raises(SchemaError) as caught:
        make()
    assert caught.value.hint
    assert len(str(caught.value)) < 400


def test_a_float_is_shown_as_what_to_write():
    with pytest.raises(SchemaError) as caught:
        Domain.decimals(0, 1, 0.1)
    assert caught.value.hint == "write it as a string: '0.1'."


def test_a_schema_takes_every_kind():
    columns = {"a": Domain.decimals(0, 1, "0.1"), "b": Domain.bins([0, 1])}
    assert dict(Schema({"t": columns})["t"]) == columns
