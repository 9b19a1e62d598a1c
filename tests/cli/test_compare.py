"""Mechanisms on the command line: compared, chosen, and refused."""

from __future__ import annotations

import json

import pytest

from dpsql.cli.application import Exit
from dpsql.planner.plans.traits import MECHANISMS

PURE = ("--epsilon", "1", "--delta", "0")


def test_all_are_compared_and_nothing_is_spent(commands):
    text = commands.done("compare", commands.script, "--db", commands.db, "--rho", "0.1")
    for name in MECHANISMS:
        assert f"\n{name} " in text
    assert not commands.ledger.exists()


def test_as_json(commands):
    said = json.loads(
        commands.done("compare", commands.script, "--db", commands.db, *PURE, "--mechanism", "hdmm",
                      "--mechanism", "laplace", "--json")
    )  # fmt: skip
    assert {row["mechanism"] for row in said["mechanisms"]} == {"hdmm", "laplace"}
    assert (said["budget"]["epsilon"], said["budget"]["delta"]) == (1.0, 0.0)
    best, other = said["mechanisms"]
    assert best["rmse"] <= other["rmse"]
    assert best["lower_bound"] <= best["rmse"]


def test_a_weight_counts(commands):
    def rmse(*more):
        said = commands.done("compare", commands.script, "--db", commands.db, "--rho", "1",
                             "--mechanism", "gaussian", "--json", *more)  # fmt: skip
        return json.loads(said)["mechanisms"][0]["rmse"]

    assert rmse("--weight", "ages=9") != pytest.approx(rmse(), rel=0.01)


@pytest.mark.parametrize("mechanism", ["hdmm", "laplace"])
def test_a_release_with_pure_epsilon(commands, mechanism):
    out = commands.folder / "released"
    text = commands.done("release", commands.script, "--db", commands.db, *PURE, "--mechanism",
                         mechanism, "--out", out)  # fmt: skip
    assert "charged: ε = 1, δ = 0; ρ = 0.758956" in text
    shown = commands.done("show", out)
    assert MECHANISMS[mechanism].title in shown
    assert "ε = 1, δ = 0" in shown


def test_a_query_and_a_plan_by_name(commands):
    sql = "SELECT COUNT(*) AS n FROM people"
    commands.done("query", sql, "--db", commands.db, "--rho", "0.1", "--mechanism", "gaussian")
    plan = commands.done("plan", commands.script, "--db", commands.db, "--rho", "0.1",
                         "--mechanism", "residualplanner", "--explain")  # fmt: skip
    assert "ResidualPlanner plan:" in plan


@pytest.mark.parametrize(
    ("command", "hint"),
    [
        (("plan", "--rho", "1", "--mechanism", "aim"), "dpsql release --mechanism aim"),
        (("plan", "--rho", "1", "--mechanism", "laplace"), "mechanisms that can: querysmasher"),
        (("plan", *PURE), "mechanisms that can: hdmm"),
        (("plan", "--mechanism", "hdmm", "--target", "ages=2"), "leave --mechanism out"),
        (
            ("plan", "--rho", "1", "--mechanism", "hdmm", "--objective", "largest"),
            "leave --objective out, or use --mechanism querysmasher",
        ),
    ],
)
def test_refusals_hint_at_options(commands, command, hint):
    name, *options = command
    result = commands.run(name, commands.script, "--db", commands.db, *options)
    assert result.exit_code == Exit.OTHER
    assert hint in result.output


def test_an_unknown_name_is_a_usage_error(commands):
    result = commands.run("compare", commands.script, "--db", commands.db, "--rho", "1",
                          "--mechanism", "best")  # fmt: skip
    assert result.exit_code == Exit.USAGE
    assert commands.run("compare", commands.script, "--db", commands.db).exit_code == Exit.USAGE
