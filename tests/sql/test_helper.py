"""The helper process: what it gave up, how it ends, and what the owner takes from it."""

import json
import os
import signal
import subprocess
import sys
import threading
import time

import duckdb
import psutil
import pyarrow as pa
import pytest

import dpsql
from dpsql.errors import ResourceLimitError, SandboxLimitError
from dpsql.schema import Domain, Table
from dpsql.sql import compile_script
from dpsql.sql.sandbox import confine, helper, protocol, worker
from dpsql.sql.sandbox.database import Sandbox, SandboxError
from tests.sql import reference
from tests.sql.test_accepted import STATEMENTS

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="the system has other limits")
LONG = "||".join(["s"] * 8)


def strings(levels):
    """CTEs, the last of which has a string of 50·8^levels characters."""
    ctes = [f"c0 AS (SELECT '{'x' * 50}' AS s)"]
    ctes += [f"c{i} AS (SELECT {LONG} AS s FROM c{i - 1})" for i in range(1, levels + 1)]
    return f"WITH {', '.join(ctes)}", f"c{levels}"


ENDLESS = (
    "WITH parts AS (SELECT md5(CAST(i AS VARCHAR)) AS s FROM generate_series(1, 60000) t(i)), "
    "one AS (SELECT string_agg(s, '' ORDER BY s) AS s FROM parts), "
    "l AS (SELECT length(regexp_replace(s, '(?:.{0,400}a){2}.{400}z', '')) AS d FROM one) "
)
"""One call of a function that takes a minute, within which DuckDB doesn't ask whether to stop.

RE2 finds ever new states in digits that don't repeat. `levenshtein` stops in DuckDB 2.0.1, and
in 2.0.0 it doesn't.
"""


@pytest.fixture
def own(monkeypatch):
    """A helper of the test's own."""
    monkeypatch.setattr(helper, "_CURRENT", helper._Current())
    yield
    if helper._CURRENT._helper is not None:
        helper._CURRENT._helper.let_go()


def run(code, *args, **kwargs):
    return subprocess.run(
        [sys.executable, "-c", code, *args], capture_output=True, text=True, timeout=120, **kwargs
    )


def test_importing_starts_nothing():
    code = (
        "import psutil, dpsql, dpsql.notebook, dpsql.cli\n"
        "print(len(psutil.Process().children(recursive=True)))"
    )
    assert run(code).stdout.strip() == "0"


ATTEMPTS = """
import os, socket, subprocess, sys, ctypes, tempfile, threading, shutil, mmap, resource
from dpsql.sql.sandbox.confine import confine
inside = os.open(sys.argv[1], os.O_RDONLY)
print(confine(), flush=True)
def system_call(*args):
    if ctypes.CDLL(None).syscall(*args) < 0:
        raise OSError
def attempt(name, do):
    try:
        do()
    except (OSError, MemoryError, RuntimeError, ValueError, ImportError):
        return
    print("reached:", name, flush=True)
attempt("read", lambda: open(sys.argv[1]).read())
attempt("write", lambda: open(sys.argv[1] + "x", "w"))
attempt("pread", lambda: os.pread(inside, 10, 0))
attempt("list", lambda: os.listdir("/"))
attempt("stat", lambda: os.stat("/etc/hostname"))
attempt("remove", lambda: os.remove(sys.argv[1]))
attempt("mkdir", lambda: os.mkdir(sys.argv[1] + "d"))
attempt("link", lambda: os.link(sys.argv[1], sys.argv[1] + "l"))
attempt("chdir", lambda: os.chdir("/tmp"))
attempt("truncate", lambda: os.truncate(sys.argv[1], 0))
attempt("chmod", lambda: os.chmod(sys.argv[1], 0))
attempt("dup", lambda: os.dup(1))
attempt("pipe", os.pipe)
attempt("socket", socket.socket)
attempt("unix", lambda: socket.socket(socket.AF_UNIX))
attempt("fork", os.fork)
attempt("spawn", lambda: subprocess.run(["/bin/true"]))
attempt("exec", lambda: os.execv("/bin/echo", ["/bin/echo", "reached: exec"]))
attempt("kill", lambda: os.kill(int(sys.argv[2]), 0))
attempt("signal", lambda: system_call(234, int(sys.argv[2]), int(sys.argv[2]), 0))
attempt("pin", lambda: system_call(203, int(sys.argv[2]), 8, b"\\xff" * 8))
attempt("nice", lambda: os.nice(1))
attempt("limit", lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (99, 99)))
attempt("memory", lambda: bytearray(8 * 2**30))
attempt("ptrace", lambda: ctypes.CDLL(None).ptrace(16, int(sys.argv[2]), 0, 0) and 1 / 0)
thread = threading.Thread(target=print, args=("a thread runs",), kwargs={"flush": True})
thread.start()
thread.join()
system_call(234, os.getpid(), os.getpid(), 0)
"""


@LINUX
def test_nothing_can_be_reached_once_confined(tmp_path):
    path = tmp_path / "private"
    path.write_text("a private row")
    done = run(ATTEMPTS.replace(" and 1 / 0", " == 0 or (_ for _ in ()).throw(OSError)"),
               str(path), str(os.getpid()))  # fmt: skip
    first, *rest = done.stdout.splitlines()
    assert {"memory", "files", "network", "privileges"} <= set(json.loads(first.replace("'", '"')))
    if "system calls" in first:
        assert rest == ["a thread runs"], done.stdout + done.stderr
        assert path.read_text() == "a private row"
        assert [p.name for p in tmp_path.iterdir()] == ["private"]


@LINUX
def test_what_is_dropped_no_longer_counts_towards_the_bound_on_memory(own):
    sandbox = Sandbox()
    sandbox.rows("SELECT 1")
    process = psutil.Process(helper.helper().pid)
    before, wide = process.memory_info().vms, "range::HUGEINT AS a, -range::HUGEINT AS b"
    for i in range(3):
        sandbox.create("__t_1", f"SELECT {wide} FROM range(10000000)")
        assert process.memory_info().vms > before + 300 * 2**20
        sandbox.drop("__t_1")
        Sandbox().rows(f"SELECT 'another''s message {i}'")
        assert process.memory_info().vms < before + 100 * 2**20 < confine.MORE_BYTES / 3


@LINUX
def test_the_helper_has_nothing_but_its_pipes(own):
    Sandbox().rows("SELECT 1")
    running = psutil.Process(helper.helper().pid)
    assert running.environ() == {"TZ": "UTC", **helper._LEAN}
    assert running.cwd() == "/"
    assert sorted(os.listdir(f"/proc/{running.pid}/fd")) == ["0", "1", "2"]
    assert os.getsid(running.pid) != os.getsid(0)  # Ctrl-C at the terminal is the owner's alone
    assert "system calls" in helper.helper().confined or os.uname().machine != "x86_64"


def test_times_are_shown_in_the_same_zone_everywhere(own, monkeypatch):
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    shown = "strptime('2020-07-01 00:00 UTC', '%Y-%m-%d %H:%M %Z')::VARCHAR"
    assert Sandbox().rows(f"SELECT {shown}") == [("2020-07-01 00:00:00+00",)]


def test_the_helper_imports_nothing_from_where_the_owner_happens_to_be(tmp_path):
    (tmp_path / "queue.py").write_text("raise SystemExit")
    code = (
        "import os, sys, queue\n"
        "from dpsql.sql.sandbox.database import Sandbox\n"
        "sys.path.insert(0, '')\n"
        "os.chdir(sys.argv[1])\n"
        "print(Sandbox().rows('SELECT 1'))"
    )
    done = run(code, str(tmp_path))
    assert done.stdout.strip() == "[(1,)]", done.stderr


def test_what_cant_be_stopped_is_killed(own, monkeypatch):
    monkeypatch.setattr(helper, "SECONDS_TO_STOP", 0.2)
    sandbox, other = Sandbox(), Sandbox()
    sandbox.create("__axis_1", "SELECT 1 AS a")
    other.create("__axis_1", "SELECT 2 AS a")
    first = helper.helper().pid
    sandbox.left = 0.3
    with pytest.raises(SandboxLimitError, match="can't be stopped"):
        sandbox.rows(f"{ENDLESS} SELECT d FROM l")
    assert not psutil.pid_exists(first)
    for lost in (sandbox, other):
        with pytest.raises(SandboxLimitError, match="gone"):
            lost.rows("SELECT * FROM __axis_1")
    assert Sandbox().rows("SELECT 3") == [(3,)]
    assert helper.helper().pid != first


def test_what_takes_too_long_is_stopped_and_the_helper_lives(own):
    sandbox = Sandbox()
    sandbox.create("__axis_1", "SELECT 1 AS a")
    first = helper.helper().pid
    sandbox.left = 0.3
    with pytest.raises(SandboxLimitError, match=r"more than 0\.3 seconds of CPU time"):
        sandbox.rows(
            "SELECT count(*) FROM generate_series(1, 1000000) a(i), generate_series(1, 1000000) "
            "b(i) WHERE a.i * b.i = -1"
        )
    sandbox.left = 10
    assert sandbox.rows("SELECT a FROM __axis_1") == [(1,)]
    assert helper.helper().pid == first


@LINUX
@pytest.mark.parametrize(
    "call", ["replace(s, 'x', s)", "regexp_replace(s, 'x', s, 'g')", "replace(s, 'x', s || s || s)"]
)
def test_memory_has_a_bound(own, call):
    """Functions of strings build their result outside of DuckDB's own limit."""
    ctes, last = strings(4)
    with pytest.raises(SandboxLimitError):
        Sandbox().rows(f"{ctes} SELECT length({call}) AS d FROM {last}")
    assert Sandbox().rows("SELECT 1") == [(1,)]


def test_a_statement_that_ends_the_helper_says_so(own, monkeypatch):
    monkeypatch.setattr(helper, "SECONDS_TO_STOP", 0.2)
    monkeypatch.setattr("dpsql.sql.sandbox.database.MAX_SECONDS", 1.0)
    table = Table("t", {"a": Domain.integers(0, 9)})
    sql = f"{ENDLESS} SELECT COUNT(*) FROM t JOIN l ON a = l.d"
    with pytest.raises(SandboxLimitError, match="can't be stopped"):
        compile_script([("q", sql)], lambda parts: table)
    assert compile_script([("q", "SELECT COUNT(*) FROM t")], lambda parts: table)


def test_ctrl_c_stops_a_statement(own):
    sandbox = Sandbox()
    sandbox.rows("SELECT 1")
    first = helper.helper().pid
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        sandbox.rows(f"{ENDLESS} SELECT d FROM l")
    assert time.monotonic() - start < 20
    assert not psutil.pid_exists(first)
    assert Sandbox().rows("SELECT 1") == [(1,)]


def test_threads_share_the_helper(own):
    found = {}

    def work(number):
        sandbox = Sandbox()
        sandbox.create("__axis_1", f"SELECT {number} AS a")
        found[number] = [sandbox.rows("SELECT a FROM __axis_1") for _ in range(10)]

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {i: [[(i,)]] * 10 for i in range(6)}


def test_who_still_listens_to_an_old_helper_takes_no_word_of_the_next(own, monkeypatch):
    """Under heavy load, a helper that had started well "ended at once" for its owner."""
    old, ended, done = [], threading.Event(), threading.Event()
    real = protocol.read_message

    def late(stdout, *limits):
        """Read as a file does: its number first, and then whenever the system lets it."""
        if stdout is not old[0]:
            return real(stdout, *limits)
        number = stdout.fileno()
        ended.wait(60)
        os.read(number, 1)
        done.set()
        return None

    first = helper.helper()
    old.append(first._process.stdout)
    monkeypatch.setattr(helper, "read_message", late)
    first.ask({"forget": [], "sandbox": 0, "kind": "tree", "query": "SELECT 1"}, b"", 60)
    first.let_go()
    real_started = helper._started

    def started():
        process = real_started()
        ended.set()
        assert done.wait(60)
        return process

    monkeypatch.setattr(helper, "_started", started)
    assert Sandbox().rows("SELECT 1") == [(1,)]


def test_what_has_one_answer_is_asked_once(own, monkeypatch):
    asked, ask = [], helper.Helper.ask

    def noted(self, message, block, seconds):
        asked.append((message["kind"], message["query"]))
        return ask(self, message, block, seconds)

    monkeypatch.setattr(helper.Helper, "ask", noted)
    for _ in range(2):
        sandbox = Sandbox()
        assert sandbox.rows("SELECT 1 AS a") == [(1,)]
        assert sandbox.frame("SELECT 1 AS a")["a"].to_list() == [1]
        assert sandbox.types("SELECT 1 AS a") == [("a", "INTEGER")]
        assert sandbox.tree("1")["class"] == "CONSTANT"
    assert len(asked) == 4
    for i in range(2):  # what depends on a table, on parameters, or failed, is asked each time
        sandbox.create("__axis_1", f"SELECT {i} AS a")
        assert sandbox.rows("SELECT a FROM __axis_1") == [(i,)]
        assert sandbox.rows("SELECT ?", ["x"]) == [("x",)]
        with pytest.raises(SandboxError, match="no_such"):
            sandbox.rows("SELECT no_such")
    assert len(asked) == 12
    monkeypatch.setattr(helper, "MOST_KEPT", 2)
    for i in (3, 4, 5, 4, 3):
        Sandbox().rows(f"SELECT {i}")
    assert [query for _, query in asked[12:]] == [f"SELECT {i}" for i in (3, 4, 5, 3)]
    large = "SELECT range FROM range(5000)"
    assert [len(Sandbox().rows(large)) for _ in range(2)] == [5000] * 2
    assert [query for _, query in asked[16:]] == [large] * 2
    helper.helper().let_go()
    assert Sandbox().rows("SELECT 4") == [(4,)]  # the next helper knows nothing yet
    assert asked[18:] == [("rows", "SELECT 4")]


def test_sandboxes_that_are_gone_are_forgotten(own):
    sandbox = Sandbox()
    sandbox.create("__axis_1", "SELECT 1")
    number = sandbox._number
    del sandbox
    assert helper.helper()._forgotten == [number]
    another = Sandbox()
    another.rows("SELECT 1")
    assert helper.helper()._forgotten == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system doesn't fork")
def test_a_fork_has_a_helper_of_its_own():
    code = (
        "import os, sys, threading\n"
        "from dpsql.sql.sandbox import helper\n"
        "from dpsql.errors import SandboxLimitError\n"
        "from dpsql.sql.sandbox.database import Sandbox\n"
        "old = Sandbox(); old.create('__axis_1', 'SELECT 1 AS a'); first = helper.helper().pid\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    try:\n"
        "        old.rows('SELECT a FROM __axis_1')\n"
        "    except SandboxLimitError as error:\n"
        "        new = Sandbox().rows('SELECT 2')\n"
        "        print(error.message, new, helper.helper().pid != first, flush=True)\n"
        "    sys.exit(0)\n"
        "os.waitpid(child, 0)\n"
        "print(old.rows('SELECT a FROM __axis_1'), helper.helper().pid == first)\n"
    )
    done = run(code)
    assert done.stdout.splitlines() == [
        "A computation on public values did not finish: what was prepared for it is "
        "gone. [(2,)] True",
        "[(1,)] True",
    ], done.stderr


def test_the_helper_ends_with_its_owner():
    code = (
        "import os, signal\n"
        "from dpsql.sql.sandbox import helper\n"
        "from dpsql.sql.sandbox.database import Sandbox\n"
        "Sandbox().rows('SELECT 1'); print(helper.helper().pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    pid = int(run(code).stdout)
    until = time.monotonic() + 20
    while psutil.pid_exists(pid) and time.monotonic() < until:
        if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return
        time.sleep(0.05)
    assert not psutil.pid_exists(pid)


def test_a_process_that_ends_leaves_no_helper_and_no_word():
    code = (
        "from dpsql.sql.sandbox import helper\n"
        "from dpsql.sql.sandbox.database import Sandbox\n"
        "Sandbox().rows('SELECT 1'); print(helper.helper().pid)"
    )
    done = run(code)
    assert not psutil.pid_exists(int(done.stdout))


@pytest.mark.parametrize("executable", ["", None, "/nowhere/python"])
def test_without_an_interpreter_there_is_a_good_error(own, monkeypatch, executable):
    monkeypatch.setattr(sys, "executable", executable)
    with pytest.raises(ResourceLimitError, match="can't be started") as caught:
        Sandbox().rows("SELECT 1")
    assert "ordinary Python" in caught.value.hint


def arrow(table):
    return worker._packed(table)


NONSENSE = [
    ({}, b""),
    ({}, b"not arrow"),
    ({}, arrow(pa.table({"a": [1]}))[:-20]),
    ({"types": 3}, arrow(pa.table({"a": [1]}))),
    ({"types": [["b", "INTEGER"]]}, arrow(pa.table({"a": [1]}))),
    ({"types": [["a", "ENUM('x')"]]}, arrow(pa.table({"a": ["y"]}))),
    ({"types": [["a"]]}, b""),
    ({"error": ["x" * 10_000, "\x1b[31m\nnew line"]}, b""),
]


@pytest.mark.parametrize(("reply", "block"), NONSENSE)
def test_nonsense_from_the_helper_is_an_error(monkeypatch, reply, block):
    """The owner's process treats what it hears as if a stranger had said it."""

    class Stranger:
        lock = threading.RLock()
        known = helper.KnownReplies()

        def ask(self, *_):
            return reply, block

        def forget(self, _):
            return

    monkeypatch.setattr("dpsql.sql.sandbox.database.helper", Stranger)
    with pytest.raises(SandboxError) as caught:
        Sandbox().frame("SELECT 1")
    assert len(str(caught.value)) < 300
    assert str(caught.value).isprintable()


class Stream:
    def __init__(self, data):
        self.data = data

    def read(self, size):
        part, self.data = self.data[:size], self.data[size:]
        return part


@pytest.mark.parametrize(
    "data",
    [
        b"x",
        b"dps1",
        b"pkl1" + bytes(12),
        b"dps1" + b"\xff" * 12,
        b"dps1\x02\x00\x00\x00" + bytes(8) + b"[]",
        b"dps1\x02\x00\x00\x00" + bytes(8) + b"{",
        b"dps1\x02\x00\x00\x00" + bytes(8) + b"{]",
    ],
)
def test_what_is_no_message_is_refused(data):
    with pytest.raises(protocol.ProtocolError):
        protocol.read_message(Stream(data), 100, 100)


def test_the_demo_of_a_release_needs_one_helper(own):
    con = duckdb.connect()
    con.execute("CREATE TABLE t (a INTEGER CHECK (a BETWEEN 0 AND 9))")
    dpsql.query(con, "SELECT a, COUNT(*) AS n FROM t GROUP BY a", budget=dpsql.Budget(rho=1))
    first = helper.helper().pid
    dpsql.query(con, "SELECT COUNT(*) AS n FROM t", budget=dpsql.Budget(rho=1))
    assert helper.helper().pid == first


def message(query, seconds=60):
    plain = {"forget": [], "sandbox": 0, "number": 1, "parameters": [], "kind": "rows"}
    return {**plain, "query": query, "seconds": seconds, "grace": 2}


def test_what_fails_for_a_value_is_told_apart_from_what_takes_too_much():
    con = duckdb.connect(config={"memory_limit": "20MB", "max_temp_directory_size": "0B"})
    asked = worker.Worker(con)

    def limit(query):
        reply, _ = asked.answer(message(query), b"")
        return reply["limit"]

    assert limit("SELECT count(DISTINCT i) FROM generate_series(1, 3000000) a(i)")
    assert not limit("SELECT 'a'::INTEGER")
    assert not limit("SELECT 127::TINYINT + 1::TINYINT")
    assert not limit("SELECT nothing")


def test_time_is_the_cpu_time_of_the_statement_that_runs():
    """The clock is the test's: nothing is waited for, and the computer may be as busy as it is."""
    now, replies = [0.0], []
    asked = worker.Worker(worker.connect(), lambda: now[0])
    slow = message("SELECT sum(sin(i)) FROM range(1000000000000) t(i)", seconds=5)
    thread = threading.Thread(target=lambda: replies.append(asked.answer(slow, b"")[0]))
    thread.start()
    assert asked.asked.wait(60)
    now[0] = 5.0
    assert asked.overdue() is None
    assert thread.is_alive()
    now[0] = 8.0
    while thread.is_alive():  # told before it runs, DuckDB doesn't stop
        assert asked.overdue() in {1, None}  # its number, so long as it goes on
        thread.join(0.05)
    (reply,) = replies
    assert (reply["limit"], reply["seconds"]) == (True, 8.0)
    assert reply["error"] == "it takes more than 5 seconds of CPU time"
    assert asked.overdue() is None
    reply, _ = asked.answer(message("SELECT 1", seconds=5), b"")  # counted from its own beginning
    assert reply["seconds"] == 0.0
    assert "error" not in reply


def test_a_busy_computer_refuses_nothing(own, monkeypatch):
    """Each evaluation takes two minutes of the day, in which the helper hardly gets to work."""
    table = Table("t", {f"c{i}": Domain.integers(0, 9) for i in range(4)})
    day = [0.0]
    real = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: real() + day[0])
    ask, asked = helper.Helper.ask, []

    def late(self, *args):
        day[0] += 120
        asked.append(args)
        return ask(self, *args)

    monkeypatch.setattr(helper.Helper, "ask", late)
    sql = "SELECT c1, COUNT(*) AS n FROM t WHERE c2 BETWEEN 0 AND {} GROUP BY c1"
    script = [(f"q{i}", sql.format(i)) for i in range(9)]
    assert len(compile_script(script, lambda parts: table).statements) == 9
    assert len(asked) > 9


def test_a_script_may_take_time_for_each_of_its_statements(own, monkeypatch):
    table = Table("t", {"a": Domain.integers(0, 9)})
    monkeypatch.setattr("dpsql.sql.sandbox.database._seconds", lambda reply: 2.0)
    taken = []
    ask = helper.Helper.ask

    def noted(self, message, block, seconds):
        taken.append(seconds)
        return ask(self, message, block, seconds)

    monkeypatch.setattr(helper.Helper, "ask", noted)
    sql = [(f"q{i}", f"SELECT COUNT(*) AS n FROM t WHERE a + {i} < 5") for i in range(60)]
    compile_script(sql, lambda parts: table)
    assert len(taken) >= 60
    assert min(taken) == 60  # 60 times as much for all, and no more for one


@pytest.fixture(scope="module")
def con():
    return reference.connect()


@pytest.mark.sampled(10)
@pytest.mark.parametrize(("name", "sql"), STATEMENTS, ids=[name for name, _ in STATEMENTS])
def test_no_limit_is_taken_for_an_answer(con, monkeypatch, name, sql):
    """Wherever the helper ends at a limit: that is said, and no other way is taken in silence."""
    ask, calls, stop = Sandbox._ask, 0, -1

    def limited(self, kind, **kwargs):
        nonlocal calls
        calls += 1
        if calls == stop:
            raise SandboxLimitError("the limit")
        return ask(self, kind, **kwargs)

    monkeypatch.setattr(Sandbox, "_ask", limited)
    reference.compile_one(con, sql)
    for at in range(1, calls + 1, max(calls // 5, 1)):
        calls, stop = 0, at
        with pytest.raises(SandboxLimitError):
            reference.compile_one(con, sql)
