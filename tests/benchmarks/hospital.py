"""What the analyst of a hospital asks, of files and of a database: answered, or led to an answer.

    python -m tests.benchmarks.hospital
    python -m tests.benchmarks.hospital --only median_stay readmitted_by_window

Makes the tables of a hospital: 4,000 patients (a CSV of 20 columns), their admissions with times
that have a zone, diagnoses and lab values (Parquet), and a public list of wards. `hospital.sql`
has the statements. Each is asked by a budget with hardly any noise, once of the files and once of
a DuckDB file with PRIMARY and FOREIGN KEYs, and compared with DuckDB's answer. Of a refusal, what
its hint says first is typed as it stands, once, and what is asked then is compared in its turn.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import polars as pl

import dpsql
from dpsql import Domain
from dpsql.errors import DpsqlError
from tests.helpers.typed import Asked, typeable, typed

PRECISE = dpsql.Budget(rho=10**14)
NEAR = 1e-3
"""Of the largest value of a column, so much is taken for noise."""
TABLES = """
SET TimeZone = 'UTC';
CREATE TABLE wards AS FROM (VALUES
    ('CARD', 'Cardiology', 3), ('SURG', 'Surgery', 4), ('PED', 'Pediatrics', 1),
    ('ICU', 'Intensive care', 2), ('INT', 'Internal medicine', 2), ('ONC', 'Oncology', 5)
) w(ward, ward_name, floor);
CREATE TABLE patients (
    patient_id INTEGER PRIMARY KEY, sex VARCHAR, birth_date DATE, death_date DATE,
    blood_group VARCHAR, smoker INTEGER, insurance VARCHAR, height_cm DOUBLE, weight_kg DOUBLE,
    postcode VARCHAR, marital_status VARCHAR, language VARCHAR, first_visit DATE, children INTEGER,
    diabetes INTEGER, allergies INTEGER, systolic DOUBLE, diastolic DOUBLE, employment VARCHAR,
    income DOUBLE
);
INSERT INTO patients
SELECT i, CASE WHEN h % 100 < 52 THEN 'F' ELSE 'M' END,
    DATE '1930-01-01' + (h // 7 % 32000)::INTEGER,
    CASE WHEN h % 17 = 0 THEN DATE '2024-01-01' + (h // 11 % 700)::INTEGER END,
    ['0', 'A', 'B', 'AB'][1 + h // 13 % 4], (h // 3 % 4 = 0)::INTEGER,
    ['public', 'private', 'none'][1 + h // 17 % 3], 150.5 + h // 19 % 45, 45.25 + h // 23 % 70,
    (10000 + h // 29 % 300)::VARCHAR, ['single', 'married', 'widowed'][1 + h // 31 % 3],
    ['de', 'en', 'tr', 'pl'][1 + h // 37 % 4], DATE '2020-01-01' + (h // 41 % 1800)::INTEGER,
    h // 43 % 5, (h // 47 % 9 = 0)::INTEGER, h // 53 % 4, 95 + h // 59 % 85, 55 + h // 61 % 45,
    ['employed', 'retired', 'student', NULL][1 + h // 67 % 4], h // 71 % 90000
FROM (SELECT i, (hash(i) % 1000000007)::BIGINT AS h FROM range(1, 4001) r(i));
CREATE TABLE admissions (
    admission_id INTEGER PRIMARY KEY,
    patient_id INTEGER NOT NULL REFERENCES patients(patient_id), ward VARCHAR,
    admitted TIMESTAMPTZ, discharged TIMESTAMPTZ, emergency BOOLEAN, cost DOUBLE
);
INSERT INTO admissions
SELECT row_number() OVER (ORDER BY i, k), i,
    ['CARD', 'SURG', 'PED', 'ICU', 'INT', 'ONC'][1 + h // 3 % 6],
    TIMESTAMPTZ '2024-01-01 00:00:00+00' + to_minutes(h // 5 % 1040000) + to_seconds(k) AS came,
    CASE WHEN h % 50 > 0 THEN came + to_minutes(60 + h // 7 % 14000) END,
    h // 11 % 3 = 0, 200 + h // 13 % 3000000 / 100.0
FROM (
    SELECT i, k, (hash(i * 100 + k) % 1000000007)::BIGINT AS h
    FROM range(1, 4001) r(i), range(6) s(k) WHERE k < hash(i) % 6
);
CREATE TABLE diagnoses (
    diagnosis_id INTEGER PRIMARY KEY,
    patient_id INTEGER NOT NULL REFERENCES patients(patient_id),
    admission_id INTEGER NOT NULL REFERENCES admissions(admission_id), code VARCHAR, main BOOLEAN
);
INSERT INTO diagnoses
SELECT row_number() OVER (ORDER BY admission_id, k), patient_id, admission_id,
    ['I10', 'I21.9', 'I50.0', 'E11.9', 'E78.5', 'J18.9', 'J44.1', 'N39.0', 'K35.8', 'C50.9',
        'S72.0', 'F32.9', 'I48.9', 'A41.9', 'Z38.0'][1 + h // 3 % 15 * (h // 7 % 15) // 14], k = 0
FROM (
    SELECT patient_id, admission_id, k, (hash(admission_id * 77 + k) % 1000000007)::BIGINT AS h
    FROM admissions, range(4) s(k)
    WHERE k < 1 + hash(admission_id) % 4 AND hash(admission_id) % 11 > 0
);
CREATE TABLE labs (
    lab_id INTEGER PRIMARY KEY, patient_id INTEGER NOT NULL REFERENCES patients(patient_id),
    admission_id INTEGER REFERENCES admissions(admission_id), test VARCHAR, taken TIMESTAMPTZ,
    value DOUBLE
);
INSERT INTO labs
SELECT row_number() OVER (ORDER BY admission_id, k), patient_id, admission_id,
    ['sodium', 'creatinine', 'hemoglobin', 'crp'][1 + k], admitted + to_minutes(h % 3000),
    [125 + h // 7 % 300 / 10, 0.4 + h // 7 % 300 / 100, 7 + h // 7 % 110 / 10,
        h // 7 % 2000 / 10][1 + k]
FROM (
    SELECT *, (hash(admission_id * 55 + k) % 1000000007)::BIGINT AS h
    FROM admissions, range(4) s(k) WHERE hash(admission_id * 3 + k) % 4 > 0
);
"""
STATEMENTS = Path(__file__).with_suffix(".sql")
PUBLIC = ("wards",)
MOST = {"patients": 1, "admissions": 6, "diagnoses": 24, "labs": 24}
"""How many rows of a patient count: here nobody has more."""
TIMES = Domain.dates("2024-01-01", "2026-12-31", "month", zone="UTC", nullable=True)
CODES = (
    "A41.9", "C50.9", "E11.9", "E78.5", "F32.9", "I10", "I21.9", "I48.9", "I50.0", "J18.9",
    "J44.1", "K35.8", "N39.0", "S72.0", "Z38.0",
)  # fmt: skip
WARD = Domain.labels(["CARD", "ICU", "INT", "ONC", "PED", "SURG"])
COLUMNS: dict[str, dict[str, Any]] = {
    "patients": {
        "sex": Domain.labels(["F", "M"]),
        "birth_date": Domain.dates("1930-01-01", "2017-12-31", "year"),
        "death_date": Domain.dates("2024-01-01", "2025-12-31", "month", nullable=True),
        "insurance": Domain.labels(["none", "private", "public"]),
        "smoker": Domain.integers(0, 1),
        "height_cm": Domain.number(0, 200),
        "weight_kg": Domain.number(0, 200),
    },
    "admissions": {
        "ward": WARD,
        "admitted": TIMES,
        "discharged": TIMES,
        "emergency": Domain.boolean(nullable=True),
        "cost": Domain.number(0, 50_000),
    },
    "diagnoses": {
        "code": Domain.labels(CODES),
        "main": Domain.boolean(nullable=True),
    },
    "labs": {
        "test": Domain.labels(["creatinine", "crp", "hemoglobin", "sodium"]),
        "taken": TIMES,
        "value": Domain.number(0, 200),
    },
}
"""What `dpsql schema --values` drafts of the columns that are asked by."""
REFERENCES = {
    "admissions.patient_id": "patients.patient_id",
    "diagnoses.patient_id": "patients.patient_id",
    "diagnoses.admission_id": "admissions.admission_id",
    "labs.patient_id": "patients.patient_id",
    "labs.admission_id": "admissions.admission_id",
}


class Hospital:
    """The tables in a folder: as files, and as a DuckDB file with keys."""

    def __init__(self, folder: Path) -> None:
        self.database = folder / "hospital.duckdb"
        self.files = {}
        with duckdb.connect(self.database) as con:
            con.execute(TABLES).fetchall()
            for table in (*COLUMNS, *PUBLIC):
                kind = "csv" if table in {"patients", "wards"} else "parquet"
                self.files[table] = str(folder / f"{table}.{kind}")
                con.execute(f"COPY {table} TO '{self.files[table]}'").fetchall()

    def session(self, *, of_files: bool, **typed_too: Any) -> dpsql.Session:
        """Open it as a new user would."""
        arguments: dict[str, Any] = {"public": PUBLIC, "unit": dpsql.Unit("patients", MOST)}
        arguments["schema"] = dpsql.Schema(COLUMNS, references=REFERENCES if of_files else {})
        return dpsql.Session(self.files if of_files else self.database, **arguments | typed_too)

    def right(self, sql: str) -> pl.DataFrame:
        """Ask DuckDB."""
        with duckdb.connect(self.database, read_only=True) as con:
            con.execute("SET TimeZone = 'UTC'").fetchall()
            return con.sql(sql).pl()


def outcome(hospital: Hospital, sql: str, *, of_files: bool) -> tuple[str, str]:
    """Ask, and type what the hint says first; return a word, and what was said or typed."""
    first = Asked(sql, {"schema": _schema(of_files=of_files)})
    found = asked(hospital, first, of_files=of_files)
    if not isinstance(found, DpsqlError):
        return found, ""
    told = f"{found.message} Hint: {found.hint}"
    if found.hint is None or not typeable(found):
        return "refused, in words", told
    second = typed(first, typeable(found)[0], found)
    then = asked(hospital, second, of_files=of_files)
    if isinstance(then, DpsqlError):
        return "refused, hint refused", f"{told}\n      then {then.message} Hint: {then.hint}"
    return f"hint, {then}", told


def _schema(*, of_files: bool) -> dpsql.Schema:
    return dpsql.Schema(COLUMNS, references=REFERENCES if of_files else {})


def asked(hospital: Hospital, what: Asked, *, of_files: bool) -> str | DpsqlError:
    """Ask once; return whether the answer is DuckDB's, or the refusal."""
    try:
        session = hospital.session(of_files=of_files, **dict(what.arguments))
        found = session.query(what.sql, budget=PRECISE)
    except DpsqlError as error:
        return error
    return "right" if differs(found, hospital.right(what.sql)) <= NEAR else "wrong"


def differs(found: pl.DataFrame, right: pl.DataFrame) -> float:
    """Return the largest difference, of the largest value of its column.

    A group that DuckDB doesn't have is one without rows. A quantile is right within its interval:
    this may be as wide as a step of the domain.
    """
    values = [name for name in right.columns if _is_value(name, found.columns)]
    keys = [name for name in right.columns if name not in values]
    known = [_key(frame_type, name) for name, frame_type in right.select(keys).schema.items()]
    numbers = [pl.col(name).cast(pl.Float64) for name in values]
    ends = [
        pl.col(f"{n}_{e}").cast(pl.Float64)
        for n in values
        for e in ("lower", "upper")
        if f"{n}_variance" not in found.columns
    ]
    ours = found.select(*known, *numbers, *ends)
    theirs = right.select(*known, *numbers)
    if not keys:
        ours, theirs = (frame.with_columns(pl.lit(0).alias("all")) for frame in (ours, theirs))
    both = theirs.join(ours, on=keys or ["all"], suffix="_found", nulls_equal=True)
    if both.height < theirs.height:
        return math.inf
    errors = [0.0]
    for name in values:
        off = (both[name] - both[f"{name}_found"]).abs()
        if f"{name}_variance" not in found.columns:
            inside = both[name].is_between(both[f"{name}_lower"], both[f"{name}_upper"])
            off = off.zip_with(~inside, pl.zeros(len(off), pl.Float64, eager=True))
        errors.append(float(off.max() or 0) / max(float(both[name].abs().max() or 0), 1e-9))
    return max(errors)


def _is_value(name: str, columns: list[str]) -> bool:
    return f"{name}_variance" in columns or f"{name}_lower" in columns


def _key(type_: pl.DataType, name: str) -> pl.Expr:
    """Write a key as both sides have it: days and instants as the same, by the clock of UTC."""
    if not type_.is_temporal():
        return pl.col(name).cast(pl.String)
    return pl.col(name).cast(pl.Date).cast(pl.String)


def main() -> None:
    """Print what becomes of each statement, and how many were answered or led to an answer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--of", choices=("files", "database"))
    given = parser.parse_args()
    statements = dpsql.read_script(STATEMENTS)
    with tempfile.TemporaryDirectory() as folder:
        hospital = Hospital(Path(folder))
        for way in ("files", "database"):
            if given.of not in {None, way}:
                continue
            words: Counter[str] = Counter()
            for name, sql in statements.items():
                if given.only and name not in given.only:
                    continue
                word, told = outcome(hospital, sql, of_files=way == "files")
                words[word] += 1
                print(f"{way:9} {name:32} {word}", *[told] * bool(told), sep="\n      ", flush=True)
            good = words["right"] + words["hint, right"]
            print(f"{way}: {good} of {words.total()} answered or led to an answer; {dict(words)}")


if __name__ == "__main__":
    main()
