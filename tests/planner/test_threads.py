"""Planning runs with one BLAS thread, and callers get their own number back."""

from __future__ import annotations

import re
import subprocess
import sys
import threading

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

import dpsql
from dpsql.linalg.threads import one_thread
from dpsql.planner.reconstruction import whole
from dpsql.planner.strategies import dual
from dpsql.workload import Prefix, Workload

OURS = re.compile(r"numpy|scipy_openblas|libblas|liblapack")


def blas_threads() -> set[int]:
    """Return the number of threads of NumPy's BLAS and SciPy's, and of no other's.

    Solvers that other tests load may have one of their own, with one thread.
    """
    found = (i for i in threadpool_info() if i["user_api"] == "blas")
    return {i["num_threads"] for i in found if OURS.search(i["filepath"])}


@pytest.fixture
def two_threads():
    with threadpool_limits(2, "blas"):
        if blas_threads() != {2}:
            pytest.skip("this BLAS has one thread")
        yield


@pytest.mark.parametrize("residuals", ["weighted", "uniform", "none"])
def test_every_factorization_of_a_plan_has_one_thread(residuals, two_threads, monkeypatch):
    seen = []

    def watched(*args, **kwargs):
        seen.append(blas_threads())
        return evaluate(*args, **kwargs)

    evaluate = dual.evaluate
    monkeypatch.setattr(dual, "evaluate", watched)
    workload = Workload({"a": 30}).add(["a"], Prefix())
    plan = dpsql.plan(workload, budget=dpsql.Budget(rho=1), residuals=residuals)
    assert seen
    assert all(threads == {1} for threads in seen)
    assert blas_threads() == {2}

    recover = whole.WholeReconstruction.variances
    monkeypatch.setattr(
        whole.WholeReconstruction,
        "variances",
        lambda *args: (seen.append(blas_threads()), recover(*args))[1],
    )
    seen.clear()
    assert plan.variances
    assert plan.expected_error().height
    assert all(threads == {1} for threads in seen)
    assert blas_threads() == {2}


def test_a_refused_plan_gives_the_threads_back(two_threads):
    with pytest.raises(dpsql.WorkloadError):
        dpsql.plan(Workload({"a": 3}), budget=dpsql.Budget(rho=1))
    assert blas_threads() == {2}


@pytest.mark.parametrize("main_leaves_first", [True, False])
def test_several_planners_give_the_threads_back(main_leaves_first, two_threads):
    inside, leave = threading.Event(), threading.Event()

    def other():
        with one_thread:
            inside.set()
            leave.wait(10)

    thread = threading.Thread(target=other)
    with one_thread:
        thread.start()
        assert inside.wait(10)
        if not main_leaves_first:
            leave.set()
            thread.join()
        assert blas_threads() == {1}
    assert blas_threads() == ({1} if main_leaves_first else {2})
    leave.set()
    thread.join()
    assert blas_threads() == {2}
    with one_thread:  # and nobody is left who keeps others from it
        assert blas_threads() == {1}


LOADED_LATE = """
import sys, threading
from threadpoolctl import threadpool_info, threadpool_limits
from dpsql.linalg.threads import one_thread

def threads():
    return sorted(each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas")

def beside():
    with one_thread:
        import scipy.linalg
        scipy.linalg.qr([[1.0]])
        print(*threads())

import numpy
with one_thread:
    assert "scipy" not in sys.modules
    thread = threading.Thread(target=beside)
    thread.start()
    thread.join()
    print(*threads())
with threadpool_limits(2, "blas"):
    print(*threads())
"""


def test_a_blas_that_is_loaded_in_the_midst_of_a_plan_is_limited_as_well():
    """SciPy, which has a BLAS of its own, is loaded where a plan first needs it."""
    done = subprocess.run(
        [sys.executable, "-c", LOADED_LATE], capture_output=True, encoding="utf-8", check=True
    )
    beside, here, possible = done.stdout.splitlines()
    assert set(beside.split()) == set(here.split()) == {"1"}
    assert len(possible) == len(here)
    if set(possible.split()) != {"2"}:
        pytest.skip("this BLAS has one thread")


LEFT_ALONE = """
import signal, time
from dpsql.linalg.threads import interruptibly

def interrupt(*_):
    raise TimeoutError

def work():
    try:
        while True:
            time.sleep(0.4)
    finally:
        print("work has ended", flush=True)

signal.signal(signal.SIGALRM, interrupt)
signal.setitimer(signal.ITIMER_REAL, 0.3)
try:
    interruptibly(work)
except TimeoutError:
    print("interrupted", flush=True)
"""


def test_python_ends_after_work_that_was_left_alone():
    """A thread that came back from LAPACK while Python ended was a segmentation fault."""
    done = subprocess.run(
        [sys.executable, "-c", LEFT_ALONE], capture_output=True, encoding="utf-8", timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split("\n")[:2] == ["interrupted", "work has ended"]
