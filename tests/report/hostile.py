"""A release of which every name and label is meant to become part of the page's HTML."""

from __future__ import annotations

import duckdb

import dpsql
from tests.release.saved import BUDGET

HOSTILE = "<script>alert(1)</script>\"' onload=x {{ 7*7 }} &amp; \u202egnp.exe"


def hostile() -> dpsql.Release:
    con = duckdb.connect()
    quoted = HOSTILE.replace("'", "''")
    name = HOSTILE.replace('"', '""')
    con.execute(f"CREATE TYPE label AS ENUM ('{quoted}', '</style><img src=x onerror=y>')")
    con.execute(f'CREATE TABLE "{name}" ("{name}" label NOT NULL)')
    con.execute(f"""INSERT INTO "{name}" SELECT '{quoted}' FROM range(100)""")
    script = {
        HOSTILE: f'SELECT "{name}", COUNT(*) AS "</td><b onclick=x>" FROM "{name}" GROUP BY ALL'
    }
    return dpsql.query(con, script, budget=BUDGET, vintage="<b>'", confidence=0.9)
