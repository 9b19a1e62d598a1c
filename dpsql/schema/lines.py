"""Domains as they are typed: as a line of a schema file, and in Python."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from decimal import Decimal
from fractions import Fraction

from dpsql.schema.domain import Domain, NumberBounds
from dpsql.schema.names import as_text
from dpsql.schema.numbers import decimal_text
from dpsql.schema.sequences import DateRange, DecimalRange, TimeRange
from dpsql.schema.toml import toml_key, toml_text

WIDTH = 100
_FLOAT_DIGITS = 15
"""Other programs read a decimal as a float, which keeps so many digits."""


def as_entry(name: str, domain: Domain | NumberBounds) -> str:
    """Write a column's entry in a schema file."""
    if isinstance(domain, NumberBounds):
        return f"{toml_key(name)} = {{ number = [{', '.join(_ends(domain, _plain))}] }}"
    return f"{toml_key(name)} = {{ {', '.join([*_values(domain), *_rules(domain)])} }}"


def as_code(domain: Domain | NumberBounds) -> str:
    """Write bounds, or a domain of integers, decimals, dates, labels or bins, in Python."""
    if isinstance(domain, NumberBounds):
        return f"dpsql.Domain.number({', '.join(_ends(domain, _quoted))})"
    values = domain.values
    more = [f"{rule.split(' = ')[0]}={_python(rule.split(' = ')[1])}" for rule in _rules(domain)]
    if isinstance(values, range):
        kind, parts = "integers", [str(values.start), str(values.stop - 1)]
    elif isinstance(values, DecimalRange):
        ends = (decimal(end, values.scale) for end in (values.low, values.high))
        kind, parts = "decimals", [f"'{end}'" for end in ends]
        more.insert(0, f"step='{decimal(values.step, values.scale)}'")
    elif isinstance(values, DateRange | TimeRange):
        kind, parts = "dates", [f"'{end}'" for end in _first_last(values)]
        more = [*(f"{key}='{name}'" for key, name in _beside(values, domain.zone)), *more]
    elif domain.type == "DOUBLE":
        kind, parts = "bins", [f"[{', '.join(_edges(domain))}]"]
    else:
        kind, parts = "labels", [f"[{', '.join(as_text(str(value)) for value in values)}]"]
    return f"dpsql.Domain.{kind}({', '.join([*parts, *more])})"


def _ends(bounds: NumberBounds, written: Callable[[Fraction], str]) -> list[str]:
    return [written(end) for end in (bounds.low, bounds.high)]


def _plain(end: Fraction) -> str:
    """Write a number of a schema file, in quotes if other programs would round it."""
    text = decimal_text(end)
    return text if len(text.strip("-").replace(".", "")) <= _FLOAT_DIGITS else f'"{text}"'


def _quoted(end: Fraction) -> str:
    """Write a number in Python, in quotes if it would be a float."""
    return decimal_text(end) if end.denominator == 1 else f"'{decimal_text(end)}'"


def decimal(value: int, scale: int) -> str:
    """Write value / 10**scale, without a unit."""
    return f"{Decimal(f'{value}E-{scale}'):f}"


def _values(domain: Domain) -> list[str]:
    """Write the kind of a domain, and what makes its values."""
    values = domain.values
    if domain.type == "BOOLEAN":
        return ["boolean = true"]
    if isinstance(values, range):
        return [f"integers = [{values.start}, {values.stop - 1}]"]
    if isinstance(values, DecimalRange):
        ends = f"{_decimal(values.low, values.scale)}, {_decimal(values.high, values.scale)}"
        return [f"decimals = [{ends}]", f"step = {_decimal(values.step, values.scale)}"]
    if isinstance(values, DateRange | TimeRange):
        # TOML has dates, and datetimes only with seconds: those are written as text.
        days = isinstance(values, DateRange)
        first, last = _first_last(values) if days else map(toml_text, _first_last(values))
        beside = (f"{key} = {toml_text(name)}" for key, name in _beside(values, domain.zone))
        return [f"dates = [{first}, {last}]", *beside]
    if domain.type == "DOUBLE":
        return [listed("bins", _edges(domain))]
    if domain.type in {"VARCHAR", "ENUM"}:
        return [listed("labels", (toml_text(str(v)) for v in values))]
    return [listed("values", map(str, values))]


def _first_last(values: DateRange | TimeRange) -> tuple[str, str]:
    """Write the first and the last period, or what lies in it."""
    if isinstance(values, DateRange):
        return str(values.first), str(values.end)
    first, last = (values[i].isoformat(" ", "minutes") for i in (0, -1))
    return first, last


def _beside(values: DateRange | TimeRange, zone: str | None) -> list[tuple[str, str]]:
    """Return what stands beside the ends, by name."""
    grain = [] if values.grain == "day" else [("grain", values.grain)]
    return grain if zone is None else [*grain, ("zone", zone)]


def _edges(domain: Domain) -> list[str]:
    return [repr(v).removesuffix(".0") for v in [*domain.values, *(domain.uppers or ())[-1:]]]


def _decimal(value: int, scale: int) -> str:
    """Write value / 10**scale, in quotes if other programs would round it."""
    number = decimal(value, scale)
    return number if len(str(abs(value))) <= _FLOAT_DIGITS else f'"{number}"'


def listed(kind: str, values: Iterable[str]) -> str:
    """Write a list of a schema file, over several lines if it is long."""
    lines = [""]
    for value in values:
        if len(lines[-1]) + len(value) > WIDTH - len(kind):
            lines.append("")
        lines[-1] += f"{value}, "
    if len(lines) == 1:
        return f"{kind} = [{lines[0].removesuffix(', ')}]"
    return f"{kind} = [\n" + "".join(f"    {line.rstrip()}\n" for line in lines) + "]"


def _rules(domain: Domain) -> list[str]:
    """Write what differs from the defaults."""
    nullable = ["nullable = true"] if domain.nullable else []
    if domain.other is not None:
        return [*nullable, f"other = {toml_text(domain.other)}"]
    default = "null" if domain.nullable else "drop"
    return nullable if domain.outside == default else [*nullable, f'outside = "{domain.outside}"']


def _python(value: str) -> str:
    return "True" if value == "true" else value
