"""Drafts of domains for columns that have none: by the column's name and type, and nothing else.

They are guesses at what everybody knows (a month is 1 to 12), to be looked at by the data owner.
No row is read, so nothing about the data can be in them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from fractions import Fraction

from dpsql.hints import Hint, ask, instead, passed
from dpsql.schema.domain import (
    INTEGER_TYPES,
    TIMES,
    ZONED,
    Domain,
    NumberBounds,
    UnknownBounds,
    other_type,
)
from dpsql.schema.entries import as_code, as_entry, toml_key, toml_text
from dpsql.schema.names import as_sql, as_text, folded
from dpsql.schema.sequences import (
    FLOATS,
    MAX_DIGITS,
    DecimalRange,
    decimal_scale,
    decimal_text,
    decimal_width,
    type_range,
)

_DAYS = frozenset({"DATE", *TIMES})
KEY_TYPES = frozenset({"VARCHAR", "DATE", "TIMESTAMP", *INTEGER_TYPES})
"""Types of columns whose values can be found, see `Session.find_keys`; of times the days are."""

# Ranges that hold whatever rows there are; below them those that are guesses.
_FACTS: tuple[tuple[str, int, int, int], ...] = (
    # words of the name, the range, and its step where there is a choice
    ("month mon", 1, 12, 1),
    ("weekday dow", 0, 7, 1),
    ("day dom mday", 1, 31, 1),
    ("hour hr", 0, 23, 1),
    ("minute second", 0, 59, 1),
    ("quarter", 1, 4, 1),
    ("week", 1, 53, 1),
    ("age", 0, 115, 1),
    ("lat latitude", -90, 90, 1),
    ("lon lng long longitude", -180, 180, 1),
    ("flag is has", 0, 1, 1),
)
_GUESSES: tuple[tuple[str, int, int, int], ...] = (
    ("year yr yyyy yob", 1900, 2030, 1),
    ("percent pct percentage share", 0, 100, 1),
    ("delay", -60, 300, 1),
    ("temp temperature", -50, 60, 1),
    ("rating stars score grade", 1, 5, 1),
    ("minutes seconds", 0, 59, 1),
    ("count num number qty quantity rooms children persons", 0, 20, 1),
    ("distance dist miles km kilometers", 0, 5_000, 50),
    ("price cost amount fare fee pay wage", 0, 1_000, 10),
    ("income salary revenue sales earnings incwage inctot earn turnover", 0, 200_000, 2_000),
    ("height width length depth weight mass size", 0, 250, 1),
    ("duration air wait waiting travel elapsed", 0, 600, 5),
)
_LINKS = frozenset({"of", "at", "in", "on", "per", "by", "from", "to", "since", "until"})
"""Words behind the one that a name is about: `hours_per_week` are hours, and no week."""
_SPANS = frozenset({"duration", "air", "wait", "waiting", "travel", "elapsed"})
_MANY = 200
"""Whole numbers; of more it is likely that only their sums are asked for."""
_STEPS = 100
"""Values that are told apart of a number with bounds, or fewer."""
_CLOCK = frozenset({"time", "clock"})
_LABELS = {"sex": ("female", "male"), "gender": ("female", "male", "diverse")}
_YEARS_OF_HOURS = 12
"""Some 100,000 hours: a plan takes a second for so many."""
_BORN = frozenset({"born", "birth", "birthday", "birthdate", "dob"})
_SINGLE = frozenset(
    {"id", "ids", "uuid", "guid", "ssn", "email", "mail", "phone", "name", "serial", "tailnum"}
    | {"iban", "plate", "url", "ip", "address"}
)
"""Words in names of columns that tell rows or persons apart."""
PERSONS = frozenset(
    {"person", "people", "individual", "customer", "client", "buyer", "user", "member"}
    | {"patient", "employee", "staff", "worker", "student", "pupil", "subject", "participant"}
    | {"respondent", "passenger", "guest", "visitor", "tenant", "household", "family", "donor"}
    | {"voter", "citizen", "resident", "driver", "owner", "player", "contact", "subscriber"}
    | {"taxpayer"}
)
"""Words for those who are protected, in the singular."""
_IDS = frozenset({"id", "ids", "uuid", "guid", "ssn", "iban"})
"""Names of columns of numbers or texts without a meaning, of which no list is made."""
_NUMBERED = frozenset({"no", "nr", "num", "number", "key", "code", "ref"})
"""Words after one for persons that make it their id."""
_REACHED = frozenset({"ssn", "email", "mail", "phone", "iban"})
"""Names of columns that are one person's, whatever else the name says."""
_FINDING, _OR = "pass keys=dpsql.Keys(), ", "; or "
"""The beginning of a hint on how values are found, and its end."""
_PARTS_OF_NAMES = frozenset({"first", "last", "full", "middle", "given", "maiden", "sur", "nick"})
"""Words before `name` that make it that of a person."""


def drafted(name: str, type_: str) -> Domain | None:
    """Return a domain that a column of this name and type may have; None if it can't have one."""
    words = _words(name)
    if type_.startswith("VARCHAR"):  # one with a collation is named so
        known = next((labels for word, labels in _LABELS.items() if word in words), None)
        return Domain.labels(known, nullable=True) if known else _other_labels()
    if type_ in _DAYS:
        first, last = ("1920", "2020") if words & _BORN else ("2020", "2029")
        grain = "year" if words & _BORN else "day"
        zone = "UTC" if type_ == ZONED else None
        days = f"{first}-01-01", f"{last}-12-31"
        return Domain.dates(*days, grain, zone=zone, nullable=True)  # type: ignore[arg-type]
    if is_number(type_):
        return _number(name, type_)
    return None


def with_times(draft: Domain, type_: str) -> Domain:
    """Draft times by the hour where a column has the type that its declaration gives it.

    Declared by days, months or years, it would be read as a DATE, and lose its times. Of more than
    a dozen years they are lost.
    """
    if type_ != "TIMESTAMP" or draft.type != "DATE":
        return draft
    first, last = (str(day)[:4] for day in (draft.values[0], draft.values[-1]))
    if int(last) - int(first) >= _YEARS_OF_HOURS:
        return draft
    ends = f"{first}-01-01", f"{last}-12-31"
    return Domain.dates(*ends, "hour", nullable=draft.nullable)


def drafted_bounds(name: str, type_: str) -> NumberBounds:
    """Return bounds that a column of numbers of this name and type may have."""
    low, high, _ = _range(name)
    least, most = low, high
    if type_ in INTEGER_TYPES:
        least, most = type_range(type_)
    elif type_.startswith("DECIMAL("):
        most = 10 ** (decimal_width(type_) - decimal_scale(type_))
        least = -most
    low, high = max(low, least), min(high, most)
    return NumberBounds(Fraction(low if low < high else 0), Fraction(high))


def sums_only(type_: str, draft: Domain) -> bool:
    """Whether numbers are rather added up than told apart: there are many, or no whole numbers."""
    if type_ in INTEGER_TYPES:
        return isinstance(draft.values, DecimalRange) or draft.size > _MANY
    return is_number(type_)


def is_number(type_: str) -> bool:
    """Whether columns of a type have numbers, of which domains and bounds can be declared."""
    return type_ in INTEGER_TYPES or type_ in FLOATS or _is_decimal(type_)


def singles_out(name: str) -> bool:
    """Whether a name looks like one of a column that tells rows or persons apart.

    The name of something else, of a race or a clinic, is one of a list. A column that is called by
    a word for persons and nothing else, or by their number, says who it is.
    """
    words = _words(name)
    if words & PERSONS and words <= PERSONS | _NUMBERED:
        return True
    words_of_one = words & _SINGLE
    if words_of_one == {"name"}:
        return words == words_of_one or bool(words & (PERSONS | _PARTS_OF_NAMES))
    return bool(words_of_one)


def is_id(name: str) -> bool:
    """Whether a name looks like one of a column of ids."""
    return bool(_words(name) & _IDS)


def whose(names: Iterable[str]) -> list[str]:
    """Return columns that may say whose a row is, the likeliest first.

    Those that look like ids of persons go before those by which a person is reached or called, and
    these before what tells something else apart: `patient_id` before `admission_id`.
    """
    singles = [name for name in names if singles_out(name)]
    return sorted(singles, key=lambda name: (not is_of_person(name), not is_id(name)))


def is_of_person(name: str) -> bool:
    """Whether a column that tells rows or persons apart looks like one of persons by its name."""
    return bool(_words(name) & (PERSONS | _REACHED))


def _other_labels() -> Domain:
    return Domain.labels(["a", "b", "other"], other="other", nullable=True)


def _number(name: str, type_: str) -> Domain:
    if _is_clock(name, type_):
        return Domain.bins([0, 600, 1200, 1800, 2400], nullable=True)
    low, high, step = _range(name)
    if type_ in INTEGER_TYPES:
        least, most = type_range(type_)
        if step == 1 or high > most or low < least:
            ends = max(low, least), min(high, most)
            return Domain.integers(*ends, nullable=True, outside="clamp")
    if _is_decimal(type_):  # the type may have fewer digits before its point
        largest = 10 ** (decimal_width(type_) - decimal_scale(type_)) - 1
        if not largest:
            unit = Decimal(f"1E-{decimal_scale(type_)}")
            return Domain.decimals(0, 9 * unit, unit, nullable=True, outside="clamp")
        if high > largest:
            low, high, step = 0, largest, 1
        low = max(low, -largest)
    return Domain.decimals(low, high, step, nullable=True, outside="clamp")


def knows_range(name: str, type_: str) -> bool:
    """Whether a name says in what range its numbers are, whatever rows there are: months, 1 to 12.

    Any other range of `drafted`, of prices for example, is a guess that cuts off what is beyond.
    """
    return _is_clock(name, type_) or any(_about(name) & set(names.split()) for names, *_ in _FACTS)


def _about(name: str) -> frozenset[str]:
    """Return what a name is about: its last word, or the one before `of` and the like.

    `hours_per_week` are hours, and no week. A name that begins with `is` or `has` is about a yes.
    """
    words = [part for word in _cut(name) for part in _of_person(word)]
    if words[-3:] == ["day", "of", "week"]:
        return frozenset({"weekday"})
    if words[:1] in (["is"], ["has"]):
        return frozenset(words[:1])
    link = next((n for n, word in enumerate(words) if n and word in _LINKS), len(words))
    return frozenset(words[max(link - 1, 0) : link])


def _is_clock(name: str, type_: str) -> bool:
    """Whether 517 is seventeen past five there, unless it is how long something took."""
    words = _words(name)
    return bool(words & _CLOCK and not words & _SPANS) and type_ in INTEGER_TYPES


def _range(name: str) -> tuple[int, int, int]:
    """Return a range, and a step, for numbers of a name."""
    about, words = _about(name), _words(name)
    known = [range_ for names, *range_ in _FACTS if about & set(names.split())]
    guessed = [range_ for names, *range_ in _GUESSES + _FACTS if words & set(names.split())]
    low, high, step = (*known, *guessed, (0, 100, 1))[0]
    return low, high, step


def _is_decimal(type_: str) -> bool:
    return type_.startswith("DECIMAL(") and decimal_scale(type_) <= MAX_DIGITS


def _words(name: str) -> frozenset[str]:
    """Cut a name into words: at signs, where a capital follows a small letter, and before `id`."""
    return frozenset(part for word in _cut(name) for part in _of_person(word))


def _cut(name: str) -> list[str]:
    return re.findall(r"[a-z]+", folded(re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name)))


def _of_person(word: str) -> tuple[str, ...]:
    """Cut `patientid` in two; `paid` stays."""
    whose = word.removesuffix("id")
    return (whose, "id") if whose != word and whose in PERSONS else (word,)


# ── how to declare it ──────────────────────────────────────────────────────────────────────


def declaration_hint(table: str, column: str, type_: str, *, view: bool = False) -> Hint:
    """Word the declaration that would give a column of this type a public domain.

    A view has no constraints.
    """
    domain = drafted(column, type_)
    if domain is None:
        return Hint(unsuitable(table, column, type_, altered=not view))
    check = "" if view else _CHECKS.get(type_, _check_of)(column, domain)
    code, entry = as_code(domain), as_entry(column, domain)
    schema = f"dpsql.Schema({{{as_text(table)}: {{{as_text(column)}: {code}}}}})"
    line = f"{toml_key(table)}.columns.{entry}"
    typed = passed(
        "schema",
        schema,
        f"put {line} into a schema file, --schema FILE.",
        f"pass --schema NAME, where NAME = {schema}.",
    )
    return check + _rounded(type_, domain) + typed


def finding_hint() -> Hint:
    """Word how the values of a column are found, before another hint.

    How many units a value needs follows from the budget: `privacy/keys.py`, which a test compares.
    """
    which = "at ε = 1, δ = 1e-9 those that about 65 units have"
    return Hint(
        f"{_FINDING}and half of the budget finds its values: {which}{_OR}",
        f"pass --keys 0.5, and half of the budget finds its values: {which}{_OR}",
    )


def without_finding(hint: str | None) -> str | None:
    """Leave out of a hint how the values of a column can be found, where nothing pays for that."""
    if not isinstance(hint, Hint) or not hint.startswith(_FINDING):
        return hint
    plain, command, cell = (text.partition(_OR)[2] for text in (str(hint), hint.command, hint.cell))
    return Hint(plain, command, cell, hint.remedies)


def _rounded(type_: str, domain: Domain) -> str:
    """Say of a domain whose step is coarser than the type that values are rounded to it."""
    grid = domain.values
    if not isinstance(grid, DecimalRange):
        return ""
    unit = Decimal(f"1E-{decimal_scale(type_)}") if _is_decimal(type_) else Decimal(1)
    if type_ not in FLOATS and grid.spacing <= unit:
        return ""
    return f"say to which step values may be rounded, for example to {grid.spacing:f}: "


def counting_hint(table: str, column: str, *, single: bool) -> Hint:
    """Word what can be asked by a column that says of which unit a row is: there are no others.

    Args:
        table: the table.
        column: the column.
        single: whether a unit has one row, so that nothing tells units apart by their number.
    """
    name = as_sql(column)
    alone = "this column identifies the unit. Count units, " + ask(
        f"SELECT COUNT(DISTINCT {name}) AS n …"
    )
    if single:
        return alone + "."
    counted = f"SELECT {name}, COUNT(*) AS n FROM {as_sql(table)} GROUP BY {name}"
    return (
        alone
        + ", or count them by their number of rows: "
        + ask(f"SELECT LEAST(n, 20) AS rows, COUNT(*) AS units FROM ({counted}) GROUP BY 1")
        + "."
    )


def rounding_hint(table: str, column: str, bounds: NumberBounds) -> Hint:
    """Word how a column of numbers that has bounds can be told apart: by what it is rounded to."""
    span, unit = bounds.high - bounds.low, Fraction(1)
    while span > _STEPS * unit:
        unit *= 10
    while 10 * span <= _STEPS * unit:
        unit /= 10
    name = as_sql(column)
    rounded = f"floor({name})"
    if unit > 1:
        rounded = f"floor({name} / {unit}) * {unit}"
    elif unit < 1:
        rounded = f"floor({name} * {1 / unit}) / {1 / unit}"
    ends = (math.floor(bounds.low / unit) * unit, math.ceil(bounds.high / unit) * unit)
    low, high, step = map(decimal_text, (*ends, unit))
    grid = Domain.decimals(low, high, step, nullable=True, outside="clamp")
    schema = f"dpsql.Schema({{{as_text(table)}: {{{as_text(column)}: {as_code(grid)}}}}})"
    return (
        "round it, so that it has few values: "
        + instead(rounded)
        + f"; or declare a domain in place of its bounds, in which values are rounded to {step}: "
        + passed(
            "schema",
            schema,
            f"put {toml_key(table)}.columns.{as_entry(column, grid)} into a schema file, "
            "--schema FILE.",
            f"pass --schema NAME, where NAME = {schema}.",
        )
    )


def finding_bounds_hint() -> Hint:
    """Word how the bounds of columns are found, before another hint."""
    share = f"and a fifth of the budget finds them{_OR}"
    return Hint(f"pass bounds=dpsql.Bounds(), {share}", f"pass --bounds 0.2, {share}")


def bounds_hint(table: str, columns: Sequence[tuple[str, str]]) -> Hint:
    """Word the declaration that would give some columns of numbers, with their types, bounds."""
    return _numbers(table, [(name, drafted_bounds(name, type_)) for name, type_ in columns])


def number_hint(table: str, columns: Sequence[str]) -> Hint:
    """Word the declaration that columns of texts are numbers, of which nobody knows bounds."""
    return _numbers(table, [(name, UnknownBounds()) for name in columns])


def _numbers(table: str, drafts: Sequence[tuple[str, NumberBounds | UnknownBounds]]) -> Hint:
    code = ", ".join(f"{as_text(name)}: {as_code(bounds)}" for name, bounds in drafts)
    schema = f"dpsql.Schema({{{as_text(table)}: {{{code}}}}})"
    lines = " and ".join(as_entry(*each) for each in drafts)
    return passed(
        "schema",
        schema,
        f"write {lines} under [{toml_key(table)}.columns] of a schema file, --schema FILE.",
        f"pass --schema NAME, where NAME = {schema}.",
    )


def expression_hint(table: str, text: str, stored: str) -> Hint:
    """Word how an expression gets bounds of its own.

    Args:
        table: the table.
        text: the expression, as it stands in a statement.
        stored: the same of the table's own columns, by their names alone; "" if it has others.
    """
    limited = instead(f"least(greatest({text}, 0), 1000)")
    written = "write them: " + limited + ", where NULL counts as 0"
    if not stored or not stored.isprintable():
        return written + "."
    listed = f"{{{as_text(table)}: {{{as_text(stored)}: (0, 1000)}}}}"
    schema = f"dpsql.Schema({{}}, expressions={listed})"
    entry = f"{toml_text(stored)} = {{ number = [0, 1000] }}"
    return (written + "; or declare them: ") + passed(
        "schema",
        schema,
        f"write {entry} under [{toml_key(table)}.expressions] of a schema file, --schema FILE.",
        f"pass --schema NAME, where NAME = {schema}.",
    )


def unsuitable(table: str, column: str, type_: str, *, altered: bool = False) -> str:
    """Say what to do with a column of a type that can't have a domain; see `other_type`."""
    if type_ == "TIME":
        return f"a TIME can't have a domain: group by hour({as_sql(column)})."
    stored = other_type(table, column, type_, altered=altered)
    if stored:
        return f"store it with a type that can have one: {stored}"
    return (
        f"columns of type {type_} can't have a domain; add an integer, BOOLEAN, DATE or ENUM "
        f"column derived from {column} to the table."
    )


def _check_of(column: str, domain: Domain) -> str:
    if not isinstance(domain.values, range):
        return ""
    low, high = domain.values.start, domain.values.stop - 1
    return f"create the table with CHECK ({as_sql(column)} BETWEEN {low} AND {high}), or "


def _check_of_days(column: str, domain: Domain) -> str:
    return (
        f"create the table with CHECK ({as_sql(column)} BETWEEN DATE '{domain.values[0]}' AND "
        f"DATE '2029-12-31'), or "
    )


def _check_of_labels(column: str, _: Domain) -> str:
    return (
        f"give the column an ENUM type, pl.Enum in a frame, or CHECK ({as_sql(column)} IN "
        "('a', 'b')), or "
    )


_CHECKS: dict[str, Callable[[str, Domain], str]] = {
    "VARCHAR": _check_of_labels,
    "DATE": _check_of_days,
    **dict.fromkeys(TIMES, lambda _, __: ""),
}


def have(names: Sequence[str]) -> str:
    """Begin a sentence about some columns."""
    (*others, last) = map(as_sql, names)
    if others:
        return f"the columns {', '.join(others)} and {last} have"
    return f"the column {last} has"
