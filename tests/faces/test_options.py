"""Every face has every option: all are made of those that `dpsql.request` declares."""

from __future__ import annotations

import argparse
import inspect
import re
from dataclasses import fields

import click
import pytest
from IPython.core.error import UsageError

import dpsql
from dpsql import api, polars_namespace, request
from dpsql.cli import main
from dpsql.cli.options import taking
from dpsql.flags import BUDGET, FLAGS, spelling, weights_of
from dpsql.notebook import cell_parser
from dpsql.polars_namespace import PrivateFrame
from dpsql.request import DEFAULTS, Declared, Request, WeightsOption
from dpsql.session import session

TAKERS = {
    dpsql.query: "QueryOptions",
    dpsql.plan: "PlanOptions",
    dpsql.compare: "CompareOptions",
    dpsql.Session.__init__: "SessionOptions",
    dpsql.Session.redeclared: "RedeclaredOptions",
    dpsql.Session.plan: "SessionPlanOptions",
    dpsql.Session.compare: "SessionCompareOptions",
    dpsql.Session.query: "AnswerOptions",
    dpsql.Session.release: "ReleaseOptions",
    PrivateFrame.sql: "FrameOptions",
    PrivateFrame.session: "FrameSessionOptions",
}
"""Function → which options it takes."""
PYTHON_ONLY = {"out", "tolerance", "residuals", "mechanisms", "given", "bases", "loss"}
"""Functions and matrices can't be typed; `--out` and `--mechanism` mean something else there."""


def options_of(kind: str) -> set[str]:
    return set(getattr(request, kind).__annotations__)


def flags_of(command: click.Command) -> set[str]:
    return {o for p in command.params if isinstance(p, click.Option) for o in p.opts}


@pytest.mark.parametrize("function", TAKERS, ids=lambda f: f.__qualname__)
def test_signatures_show_what_functions_take(function):
    shown = inspect.signature(function).parameters
    assert not [p for p in shown.values() if p.kind is p.VAR_KEYWORD]
    assert options_of(TAKERS[function]) <= set(shown)
    for name in options_of(TAKERS[function]):
        assert shown[name].kind is shown[name].KEYWORD_ONLY
        assert shown[name].default == DEFAULTS[name]
        assert isinstance(shown[name].annotation, str)
    taken = inspect.unwrap(function).__annotations__["options"]
    assert taken == f"Unpack[{TAKERS[function]}]"  # which is what type checkers read


def test_every_public_function_with_options_is_looked_at():
    names = {name for of in (api, session, polars_namespace) for name in vars(of)}
    declared = {n for n in vars(request) if n.endswith("Options")}
    assert declared & names >= set(TAKERS.values())


def test_every_option_has_a_default_and_reaches_a_request():
    known = {f.name for kind in (Declared, Request) for f in fields(kind)}
    for kind in TAKERS.values():
        assert options_of(kind) <= known | {"given", "mechanisms"}
        assert options_of(kind) <= set(DEFAULTS)


def test_frames_take_what_queries_take():
    own = {"con", "self", "version"}  # a frame has no versions
    query = set(inspect.signature(dpsql.query).parameters)
    assert set(inspect.signature(PrivateFrame.sql).parameters) - own == query - own


@pytest.mark.parametrize(
    ("command", "kinds"),
    [
        ("query", ("SessionOptions", "AnswerOptions")),
        ("release", ("SessionOptions", "ReleaseOptions")),
        ("plan", ("SessionOptions", "SessionPlanOptions")),
        ("compare", ("SessionOptions", "SessionCompareOptions")),
    ],
)
def test_commands_take_what_calls_take(command, kinds):
    # Their rows are in a file, which needs no name and has no versions.
    wanted = (
        {name for kind in kinds for name in options_of(kind)} - PYTHON_ONLY - {"dataset", "version"}
    )
    assert {spelling(name) for name in wanted} <= flags_of(main.commands[command])


def test_cells_take_what_sessions_take():
    parser: argparse.ArgumentParser = cell_parser()
    flags = {o for action in parser._actions for o in action.option_strings}
    kinds = ("SessionOptions", "ReleaseOptions", "SessionPlanOptions")
    wanted = {name for kind in kinds for name in options_of(kind)} - PYTHON_ONLY
    assert {spelling(name) for name in wanted} <= flags


def test_what_is_typed_is_an_option_or_makes_a_budget():
    budget = {*BUDGET, "key_delta", "free", "each_row"}
    assert set(FLAGS) <= set(DEFAULTS) | budget


@pytest.mark.parametrize(
    ("option", "text", "said"),
    [
        ("--target", "=5", "'=5' is not of the form name=25"),
        ("--target", "n=inf", "'n=inf' is not of the form name=25"),
        ("--target", "n=five", "'n=five' is not of the form name=25"),
        ("--rho", "half", "'half' is not a number"),
    ],
)
def test_both_faces_refuse_the_same_texts(option, text, said, tmp_path):
    with pytest.raises(UsageError, match=re.escape(said)):
        cell_parser().parse_args([option, text])
    database = tmp_path / "d.duckdb"
    database.touch()
    with pytest.raises(click.UsageError, match=re.escape(said)):
        main(["plan", "-", "--db", str(database), option, text], standalone_mode=False)


@pytest.mark.parametrize(
    ("typed", "given"),
    [
        ([], None),
        (["--weight", "marginal"], "marginal"),
        (["--weight", "a=2", "--weight", "marginal=3"], {"a": 2.0, "marginal": 3.0}),
    ],
)
def test_weights_are_numbers_of_statements_or_a_word(typed, given):
    assert weights_of(cell_parser().parse_args(typed).weights) == given
    seen = []
    command = taking(WeightsOption)(lambda asked: seen.append(asked))
    click.command()(command).main(typed, standalone_mode=False)
    assert seen == [{} if given is None else {"weights": given}]


@pytest.mark.parametrize(
    ("typed", "why"),
    [
        (["--weight", "marginals"], "neither of the form name=25 nor marginal"),
        (["--weight", "marginal", "--weight", "a=2"], "goes with no other weight"),
        (["--weight", "marginal", "--weight", "marginal"], "named twice"),
    ],
)
def test_other_weights_are_refused(typed, why):
    with pytest.raises(click.UsageError, match=why):
        click.command()(taking(WeightsOption)(lambda asked: None)).main(
            typed, standalone_mode=False
        )
    with pytest.raises((UsageError, ValueError), match=why):
        weights_of(cell_parser().parse_args(typed).weights)
