"""Ctrl-C, once and again, at any step."""

from __future__ import annotations

import contextlib
import signal
import sqlite3
import subprocess
import sys
import threading
import time

import duckdb
import pytest

from dpsql.engines.duckdb.engine import DuckDBEngine
from dpsql.engines.duckdb.settings import SETTINGS
from dpsql.engines.interrupts import _Watch, interruptible
from tests.helpers.described import read_table
from tests.session.tools import create

LONG = "SELECT count(*) FROM range(100000000000) AS t(i) WHERE sin(i) > 2"


def interrupted(work, con=None):
    """Run something that a Ctrl-C ends, and give the KeyboardInterrupt."""
    try:
        with interruptible(con or duckdb.connect()):
            work()
    except KeyboardInterrupt as error:
        return error
    return None


def ctrl_c():
    signal.raise_signal(signal.SIGINT)


def test_a_statement_ends_at_ctrl_c():
    earlier, con = signal.set_wakeup_fd(-1), duckdb.connect()
    signal.set_wakeup_fd(earlier)
    timer = threading.Timer(0.2, ctrl_c)

    def work():
        timer.start()
        con.execute(LONG).fetchall()

    assert interrupted(work, con).__cause__ is None
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.set_wakeup_fd(earlier) == earlier
    assert con.execute("SELECT 1").fetchall() == [(1,)]


def test_a_statement_of_another_database_ends_at_ctrl_c():
    con = sqlite3.connect(":memory:")
    numbers = "WITH RECURSIVE t(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM t)"
    timer = threading.Timer(0.2, ctrl_c)

    def work():
        timer.start()
        con.execute(f"{numbers} SELECT count(*) FROM t WHERE i < 0").fetchall()

    assert interrupted(work, con)
    assert con.execute("SELECT 1").fetchall() == [(1,)]
    con.close()


class Computing:
    """A database that computes until it is told to end; it may look for signals meanwhile."""

    def __init__(self):
        self.told = threading.Event()

    def interrupt(self):
        self.told.set()


def test_a_statement_ends_although_its_database_has_heard_of_ctrl_c_first():
    """DuckDB notes that the handler has raised, and may go on computing all the same."""
    database, ended = Computing(), []

    def work():
        with contextlib.suppress(KeyboardInterrupt):
            ctrl_c()
        ended.append(database.told.wait(60))

    assert interrupted(work, database)
    assert ended == [True]


class Rolling:
    """A connection on which an interrupt comes while a transaction is rolled back."""

    def __init__(self, con, times):
        self.con, self.times = con, times

    def rollback(self):
        if self.times:
            self.times -= 1
            raise duckdb.InterruptException("INTERRUPT")
        self.con.rollback()

    def __getattr__(self, name):
        return getattr(self.con, name)


def test_an_interrupt_while_rolling_back_leaves_no_transaction_open():
    con = duckdb.connect()
    with DuckDBEngine(Rolling(con, 2)).snapshot():
        pass
    con.begin()  # which another one would refuse
    con.rollback()


def test_what_cleans_up_after_ctrl_c_is_not_interrupted():
    done = []

    def work():
        try:
            ctrl_c()
        finally:
            for step in range(5):
                ctrl_c()
                done.append(step)

    assert interrupted(work)
    assert done == [0, 1, 2, 3, 4]
    with pytest.raises(KeyboardInterrupt):
        ctrl_c()


def test_another_error_after_ctrl_c_is_the_interrupt():
    def work():
        try:
            ctrl_c()
        except KeyboardInterrupt:
            raise duckdb.Error("INTERRUPT") from None

    assert interrupted(work).__suppress_context__


def ctrl_c_before(line, code):
    """Trace a function, with a Ctrl-C before the line of this number that it runs."""
    seen = 0

    def at_line(frame, event, argument):
        nonlocal seen
        seen += event == "line"
        if event == "line" and seen == line:
            ctrl_c()
        return at_line

    return lambda frame, event, argument: at_line if frame.f_code is code else None


@pytest.mark.parametrize("line", range(1, 9))
def test_ctrl_c_at_any_step_of_beginning_is_an_interrupt(line):
    """Nothing is begun then, or all of it is ended. Of lines there are seven."""
    ran, earlier, threads = [], sys.gettrace(), threading.active_count()
    sys.settrace(ctrl_c_before(line, _Watch.begin.__code__))
    try:
        error = interrupted(lambda: ran.append(line))
    finally:
        sys.settrace(earlier)
    assert (error is None) == bool(ran) == (line > 7)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert threading.active_count() == threads


TWICE = """
import contextlib, signal, sys, duckdb
from dpsql.engines.interrupts import interruptible

def again(frame, event, argument):
    with contextlib.suppress(KeyboardInterrupt):  # go on, to the next line
        signal.raise_signal(signal.SIGINT)
    return again

try:
    with interruptible(duckdb.connect()):
        sys.settrace(again)
        signal.raise_signal(signal.SIGINT)
except KeyboardInterrupt:
    pass
finally:
    sys.settrace(None)
signal.signal(signal.SIGINT, signal.SIG_IGN)
print("ended")
"""


def test_a_second_ctrl_c_inside_the_handler_does_not_wait_for_the_first():
    """The second signal comes before each line of the handler, and of what that calls."""
    child = subprocess.run(
        [sys.executable, "-c", TWICE], capture_output=True, text=True, timeout=60, check=False
    )
    assert child.stdout == "ended\n", child.stderr


STORM = f"""
import signal, duckdb
from dpsql.engines.interrupts import interruptible

con = duckdb.connect()
try:
    with interruptible(con):
        print("begun", flush=True)
        con.execute("{LONG}").fetchall()
except KeyboardInterrupt:
    pass
finally:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
print("ended")
"""


def test_a_storm_of_signals_ends_the_process():
    child = subprocess.Popen([sys.executable, "-c", STORM], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout.readline() == "begun\n"
        time.sleep(0.3)
        for _ in range(60):
            child.send_signal(signal.SIGINT)
            time.sleep(0.0003)
        child.wait(timeout=60)  # it may end by an interrupt that comes after the block
    finally:
        child.kill()
        child.stdout.close()


@pytest.mark.parametrize("bar", ["true", "false"])
def test_no_interrupt_leaves_a_transaction_open_or_a_setting_changed(bar):
    """At whichever line of counting it comes."""
    con = create()
    table = read_table(con, ("people",))
    files = ("engines/duckdb/engine.py", "engines/duckdb/settings.py")

    def lines_until(last):
        """Count, with Ctrl-C at a line; return how many lines there were."""
        lines = 0

        def trace(frame, event, argument):
            nonlocal lines
            if not frame.f_code.co_filename.endswith(files):
                return None
            lines += event == "line"
            if lines == last and event == "line":
                raise KeyboardInterrupt
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            DuckDBEngine(con).marginals(table, [("sex",)])
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(before)
        return lines

    con.execute(f"SET enable_progress_bar = {bar}")
    con.execute("SET enable_progress_bar_print = true")
    con.execute("PRAGMA enable_profiling = 'no_output'")
    as_it_was = con.execute(SETTINGS).fetchall()
    count = lines_until(0)
    assert count > 50
    for last in range(1, count + 1):
        assert lines_until(last) == last
        assert con.execute(SETTINGS).fetchall() == as_it_was
        con.begin()
        con.rollback()
