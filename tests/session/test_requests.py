"""What a request is called in the ledger, and how directly it gets there."""

from __future__ import annotations

from traceback import walk_tb

import numpy as np
import pytest

import dpsql
from dpsql import Budget
from dpsql.engines.base import Counted
from dpsql.errors import ExecutionError
from dpsql.request import Request, named
from dpsql.session import planning
from dpsql.session.purpose import DataState
from tests.session.tools import BUDGET, BY_SEX, create

ONE = "SELECT 1"
RHO = Budget(rho=1)
KNOWN = [
    (ONE, {"budget": RHO}, "d25b1fcae74e630b9452a33cc81b4e1038c422087f6117c6abe2194444390855"),
    (
        ["SELECT 1", "SELECT 2"],
        {"budget": Budget(mu=1), "weights": {"query_1": 2, "query_2": 0.5}},
        "91ad76a8bf86f663d08b27b53d4476977d8d66f2371325a699f65b5cd06ac173",
    ),
    (
        {"b": "SELECT 'é'", "a": "SELECT 2"},
        {"budget": Budget(epsilon=1, delta=1e-9), "objective": "largest", "reuse": False},
        "474973cf58fbc95f76437f72d5f95a2017437c8001d4f8cdca7888a01b84a092",
    ),
    (
        ONE,
        {"budget": Budget(epsilon=1, delta=0), "mechanism": "laplace"},
        "497df2eae4955841e351adf8884010b146cb03a26b0f99f8c750f7d35458ee4d",
    ),
    (
        ONE,
        {"budget": RHO, "mechanism": "aim"},
        "e44a654c4ac3b68a880c9f6e782ed220decb33b309b398742ce8c149962f684a",
    ),
    (
        ONE,
        {"targets": {"query": 25}, "at_most": RHO},
        "57744a5ffb7c004bb815b6884ecfc9dda1ce031a61fd547682d8af70e66ee87a",
    ),
    (
        ONE,
        {"targets": {"query": 2.5}, "assume": {"rows": 1000}, "accept_gap": True},
        "4b8107df559685538f7a5f6e5ac2342e09d82214b93ad35b2886080ed807ccb0",
    ),
    (
        ONE,
        {"budget": RHO, "groups_above": 2},
        "3fc5bb5bec3e5a50f80cd5219734e1912be4f3526fab38d0ca701263a43a0e25",
    ),
    (
        ONE,
        {"budget": RHO, "groups_above": 2.0, "weights": {}},
        "3fc5bb5bec3e5a50f80cd5219734e1912be4f3526fab38d0ca701263a43a0e25",
    ),
    (
        ONE,
        {"budget": RHO, "assume": {"rows": 3}},
        "d25b1fcae74e630b9452a33cc81b4e1038c422087f6117c6abe2194444390855",
    ),
]
"""Digests by version 93dca31: runs that it charged are found by them, and never charged again."""


@pytest.mark.parametrize(("statements", "options", "digest"), KNOWN)
def test_requests_are_called_as_they_were(statements, options, digest):
    assert Request(named(statements), **options).digest == digest


def test_how_answers_are_shown_and_handed_out_is_no_part_of_it():
    shown = Request(
        named(ONE), RHO, confidence=0.9, integers=True, nonnegative=True, out="x", progress=print
    )
    assert shown.digest == Request(named(ONE), RHO).digest


def test_states_of_data_are_called_as_they_were():
    empty = "12ae32cb1ec02d01eda3581b127c1fee3b0dc53572ed6baf239721a03d82e126"
    other = "7b68e69725cc96bc22c1820d609de871b359162875d21822f92aacf8ad834271"
    assert DataState("").digest == empty
    assert DataState("2026", "x").digest == other


@pytest.mark.parametrize("raised", [ValueError, KeyboardInterrupt])
def test_no_frame_of_an_error_after_the_charge_holds_counts(monkeypatch, raised):
    """Whoever shows a traceback with its variables, as many do, shows no exact count."""

    def fail(charged, counts):
        assert isinstance(counts, Counted)
        raise raised

    monkeypatch.setattr(planning, "measure", fail)
    with create() as con, pytest.raises((ExecutionError, KeyboardInterrupt)) as error:
        dpsql.query(con, BY_SEX, budget=BUDGET)
    held = [v for frame, _ in walk_tb(error.tb) for v in frame.f_locals.values()]
    assert len(held) > 20
    assert not [v for v in held if isinstance(v, Counted | np.ndarray)]
