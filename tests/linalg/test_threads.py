"""BLAS has one thread where plans are made, also what is loaded in the midst of one."""

from __future__ import annotations

import json
import subprocess
import sys

PROGRAM = """
import json, sys
import numpy
from dpsql.linalg import dense
from dpsql.linalg.threads import one_thread
from threadpoolctl import threadpool_info, threadpool_limits

def threads():
    found = [each for each in threadpool_info() if each["user_api"] == "blas"]
    return sorted(each["num_threads"] for each in found)

def loaded():
    return "scipy.linalg" in sys.modules

threadpool_limits(limits=2, user_api="blas")
seen = [[loaded(), threads()]]
with one_thread:
    with one_thread:
        seen.append([loaded(), threads()])
        dense.qr(numpy.eye(2))
        seen.append([loaded(), threads()])
    seen.append([loaded(), threads()])
seen.append([loaded(), threads()])
with one_thread:
    seen.append([loaded(), threads()])
seen.append([loaded(), threads()])
print(json.dumps(seen))
"""


def test_a_library_that_is_loaded_late_is_limited_as_the_others_are():
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    before, inside, late, around, after, again, left = json.loads(run.stdout)
    assert not before[0]
    assert set(before[1]) == {2}
    assert inside == [False, [1] * len(before[1])]
    for loaded, threads in (late, around, again):
        assert loaded
        assert set(threads) == {1}
    assert len(late[1]) > len(before[1])  # SciPy has a BLAS of its own
    assert after[1].count(2) >= len(before[1])  # those that had two have them again
    assert left == after
