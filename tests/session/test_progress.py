"""Long work: who is told of it, what is shown and when, and that Ctrl-C ends it."""

from __future__ import annotations

import io
import signal
import sys
import threading
import time
from types import SimpleNamespace

import duckdb
import pytest

import dpsql
from dpsql import progress
from dpsql.linalg.threads import interruptibly
from dpsql.planner.plans.effort import expected_effort
from dpsql.progress import NotebookLine, ProgressLine, watched
from dpsql.session import planning
from dpsql.workload import Identity, Prefix, Workload
from tests.session.tools import create

BUDGET = dpsql.Budget(rho=1)
SQL = "SELECT sex, COUNT(*) AS n FROM people GROUP BY sex"


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self):
        return True


def test_nothing_is_shown_of_short_work():
    written, clock = [], Clock()
    line = ProgressLine(written.append, clock)
    line("planning", 0, 1)
    clock.now = progress.AFTER - 0.1
    line.tick()
    line.clear()
    assert written == []


def test_long_work_is_shown_with_its_phase_steps_and_seconds():
    written, clock = [], Clock()
    line = ProgressLine(written.append, clock)
    line("planning", 0, 1)
    clock.now = 3.2
    line.tick()
    line("counting", 1, 12)
    clock.now = 65.2
    line.tick()
    line.clear()
    assert written == ["\rplanning 3 s", "\rcounting 1 of 12, 62 s", "\r" + " " * 22 + "\r"]


def test_a_note_stays_and_is_written_at_once():
    written = []
    ProgressLine(written.append, Clock()).note("planning for 2,402 cells of time: about 40 s")
    assert written == ["\rplanning for 2,402 cells of time: about 40 s\n"]


def kernel_of(*, looked_at=True):
    """A kernel that was asked by a front end, or by a program."""
    return SimpleNamespace(get_parent=lambda: {"content": {"allow_stdin": looked_at}})


def shown(monkeypatch, given, *, terminal=True, kernel=None):
    """Return what is written, and what a notebook is told, of a note."""
    err, out, published = Screen() if terminal else io.StringIO(), io.StringIO(), []
    monkeypatch.setattr(sys, "stderr", err)
    monkeypatch.setattr(sys, "stdout", out)
    shell = None
    if kernel is not None:
        pub = SimpleNamespace(publish=lambda data, **how: published.append((data, how)))
        shell = SimpleNamespace(kernel=kernel, display_pub=pub)
    module = SimpleNamespace(get_ipython=lambda: shell)
    monkeypatch.setitem(sys.modules, "IPython.core.getipython", module)
    with watched(given) as watch:
        watch.note("long")
    assert out.getvalue() == ""
    return err.getvalue(), published


def test_it_is_shown_where_somebody_looks_on(monkeypatch):
    assert shown(monkeypatch, None) == ("\rlong\n", [])
    assert shown(monkeypatch, True) == ("\rlong\n", [])
    assert shown(monkeypatch, None, terminal=False) == ("", [])


def test_in_a_notebook_it_is_one_output_that_ends_empty(monkeypatch):
    written, (first, last) = shown(monkeypatch, None, kernel=kernel_of())
    assert written == ""
    assert (first[0], last[0]) == ({"text/plain": "long"}, {})
    assert (first[1]["update"], last[1]["update"]) == (False, True)
    assert first[1]["transient"] == last[1]["transient"]


def test_a_program_that_runs_a_notebook_gets_nothing_to_keep(monkeypatch):
    assert shown(monkeypatch, None, kernel=kernel_of(looked_at=False)) == ("", [])


def test_a_line_of_a_notebook_is_replaced():
    published, clock = [], Clock()
    line = NotebookLine(lambda data, **how: published.append((data, how["update"])), clock)
    line("planning", 0, 1)
    line.tick()
    line.clear()
    assert published == []
    line.note("about 40 s")
    clock.now = 3.2
    line.tick()
    line.clear()
    assert published == [
        ({"text/plain": "about 40 s"}, False),
        ({"text/plain": "about 40 s; planning 3 s"}, True),
        ({}, True),
    ]


def test_it_can_be_silenced(monkeypatch):
    assert shown(monkeypatch, False) == ("", [])
    assert shown(monkeypatch, False, kernel=kernel_of()) == ("", [])
    assert shown(monkeypatch, lambda *_: None) == ("", [])


@pytest.mark.parametrize("given", [1, "yes", object()])
def test_what_nobody_can_be_told_is_refused(given):
    with pytest.raises(dpsql.ArgumentError, match="progress can't be called"):
        dpsql.plan(create(), SQL, budget=BUDGET, progress=given)


def test_plans_and_queries_tell_too():
    con = create()
    told: list[tuple[str, int, int]] = []
    session = dpsql.Session(con)
    for ask in (
        lambda tell: dpsql.plan(con, SQL, budget=BUDGET, progress=tell),
        lambda tell: session.plan(SQL, budget=BUDGET, progress=tell),
        lambda tell: session.compare(SQL, budget=BUDGET, mechanisms=["gaussian"], progress=tell),
        lambda tell: session.query(SQL, budget=BUDGET, progress=tell),
        lambda tell: session.query(SQL, budget=0, progress=tell),
    ):
        told.clear()
        ask(lambda *step: told.append(step))
        assert told[0][0].startswith("planning")


def test_adjusting_is_a_phase():
    told = []
    session = dpsql.Session(create())
    session.release(SQL, budget=BUDGET, integers=True, progress=lambda *step: told.append(step))
    assert told[-2:] == [("adjusting", 0, 1), ("adjusting", 1, 1)]


# ── how long it will take ──────────────────────────────────────────────────────────────────


def cumulative(cells):
    workload = Workload({"a": cells, "b": 3})
    workload.add(["a", "b"], [Prefix(), Identity()])
    return workload


def test_the_effort_is_known_from_sizes():
    assert expected_effort(cumulative(100)) is None
    found = expected_effort(cumulative(2402))
    assert (found.where, found.rank) == ("a", 2402)
    assert str(found) == "planning for 2,402 cells of a: about 40 s"
    cells = Workload({"a": 10**6})
    cells.add(["a"], Identity())
    assert expected_effort(cells) is None  # single cells have a closed form


def test_it_is_said_once_and_before_the_plan(monkeypatch):
    con = duckdb.connect()
    con.execute("CREATE TABLE t (x INTEGER NOT NULL CHECK (x BETWEEN 0 AND 2401))").fetchall()
    heard = []

    class Ears(progress.Watch):
        def note(self, text):
            heard.append(text)

    def plan_of(_):
        heard.append("planned")
        raise dpsql.ResourceLimitError("enough")

    monkeypatch.setattr(planning, "plan_of", plan_of)
    session = dpsql.Session(con)
    with pytest.raises(dpsql.ResourceLimitError, match="enough"):
        session.plan("SELECT MEDIAN(x) FROM t", budget=BUDGET, progress=Ears())
    assert heard == ["planning for 2,402 cells of x: about 40 s", "planned"]


# ── Ctrl-C ─────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def no_thread_is_left():
    earlier = set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - earlier:
        if "_listen" not in thread.name:  # of the sandbox, which stays
            thread.join(30)
            assert not thread.is_alive()


@pytest.mark.usefixtures("no_thread_is_left")
def test_planning_is_left_at_once():
    """While something runs that hears of nothing, as LAPACK does; it is over when that ends."""
    started, over = threading.Event(), threading.Event()

    def work():
        try:
            started.set()
            while True:
                time.sleep(0.01)
        finally:
            over.set()

    def ctrl_c():
        started.wait()
        signal.raise_signal(signal.SIGINT)

    threading.Thread(target=ctrl_c).start()
    with pytest.raises(KeyboardInterrupt):
        interruptibly(work)
    assert over.wait(30)


def test_what_planning_gives_or_raises_is_given_and_raised():
    assert interruptibly(lambda: 5) == 5
    with pytest.raises(ZeroDivisionError):
        interruptibly(lambda: 1 // 0)
    found = []
    thread = threading.Thread(target=lambda: found.append(interruptibly(threading.get_ident)))
    thread.start()
    thread.join()
    assert found == [thread.ident]


@pytest.mark.usefixtures("no_thread_is_left")
def test_an_interrupted_plan_leaves_ledger_and_connection_in_order(monkeypatch):
    con = create()
    session = dpsql.Session(con)
    planned = planning.plan_of

    def interrupted(asked):
        signal.raise_signal(signal.SIGINT)
        while True:
            time.sleep(0.01)

    monkeypatch.setattr(planning, "plan_of", interrupted)
    with pytest.raises(KeyboardInterrupt):
        session.query(SQL, budget=BUDGET)
    assert session.history.is_empty()
    monkeypatch.setattr(planning, "plan_of", planned)
    assert session.query(SQL, budget=BUDGET).height == 2
    assert con.execute("SELECT 1").fetchall() == [(1,)]
