# SPDX-License-Identifier: Apache-2.0
"""Pools of workers: what becomes of messages, of failures and of Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.inside import connection_of
from scenario_support.waiting import becomes

import shmbroker

if TYPE_CHECKING:
    from collections.abc import Callable

JOBS = """
import multiprocessing, os, pathlib, signal

if multiprocessing.current_process().name != "MainProcess" and os.environ.get("INTERRUPTED"):
    os.kill(os.getpid(), signal.SIGINT)  # as Ctrl-C does, before the worker could say that it ignores it

def fail_once(message):
    mark = pathlib.Path("failed")
    if not mark.exists():
        mark.touch()
        raise ValueError("what went\\nwrong")

def settle_and_fail_once(message):
    message.ack()
    fail_once(message)

def die_of_poison(message):
    if bytes(message) == b"poison":
        os.kill(os.getpid(), signal.SIGKILL)

def raise_of_poison(message):
    if bytes(message) == b"poison":
        raise ValueError("poison")

def exit_of_poison(message):
    if bytes(message) == b"poison":
        raise SystemExit(0)

def look_at_signals(message):
    assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == set()
"""

MAIN = """
import sys
import shmbroker, jobs

if __name__ == "__main__":
    name, function, queue = sys.argv[1:]
    with shmbroker.connect(name, create=False) as connection:
        work = connection.queue("work")
        with shmbroker.WorkerPool(getattr(jobs, function), queue, broker=name, processes=1) as pool:
            while work.statistics().message_count if queue == "work" else pool.restarts < 2:
                pass
        print(min(pool.restarts, 2))
"""


@pytest.fixture
def run(tmp_path: Path, broker_name: str) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return a function that runs a pool in a process of its own, and waits for its end."""
    (tmp_path / "jobs.py").write_text(JOBS)
    (tmp_path / "main.py").write_text(MAIN)

    def pool(function: str, queue: str = "work", **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "main.py", broker_name, function, queue],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    return pool


@pytest.mark.usefixtures("broker")
@pytest.mark.parametrize("function", ["fail_once", "settle_and_fail_once"])
def test_a_function_that_raises(
    run: Callable[..., subprocess.CompletedProcess[str]], queue: shmbroker.Queue, function: str
) -> None:
    """One line tells of it, without a traceback; the message is tried again unless the function settled it."""
    work = connection_of(queue).queue("work")
    work.put_many([b"A", b"B"])
    done = run(function)
    assert (done.returncode, done.stdout) == (0, "1\n")
    (line,) = done.stderr.splitlines()
    for word in (function, "ValueError: what went wrong", "jobs.py:", "'work'"):
        assert word in line
    statistics = work.statistics()
    assert (statistics.acked, statistics.message_count) == (2, 0)
    assert statistics.redelivered >= (1 if function == "fail_once" else 0)


@pytest.mark.usefixtures("broker")
def test_ctrl_c_while_workers_start(
    run: Callable[..., subprocess.CompletedProcess[str]], queue: shmbroker.Queue
) -> None:
    """It does not reach them: they stop through their parent only. What they start is not deaf to it."""
    connection_of(queue).queue("work").put(b"A")
    done = run("look_at_signals", INTERRUPTED="1")
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")


@pytest.mark.usefixtures("broker")
def test_workers_of_a_queue_that_is_not_there(
    run: Callable[..., subprocess.CompletedProcess[str]], queue: shmbroker.Queue
) -> None:
    """Each says so in one line."""
    done = run("fail_once", "nowhere")
    assert connection_of(queue).queue_names() == ["q", "work"]
    assert (done.returncode, done.stdout) == (0, "2\n")
    assert all("no queue 'nowhere'" in line for line in done.stderr.splitlines())


POISONED = """
import sys
import shmbroker, jobs

if __name__ == "__main__":
    name, function, prefetch = sys.argv[1:]
    with shmbroker.connect(name, create=False) as connection:
        work = connection.queue("work")
        with shmbroker.WorkerPool(
            getattr(jobs, function), "work", broker=name, processes=2, prefetch=int(prefetch), attempts=2
        ) as pool:
            while work.statistics().message_count:
                pass
        print(pool.restarts)
"""


@pytest.mark.usefixtures("broker")
@pytest.mark.parametrize(
    ("function", "prefetch"),
    [("die_of_poison", 1), ("die_of_poison", 8), ("raise_of_poison", 1), ("exit_of_poison", 8)],
)
def test_poison_is_set_aside(
    run: Callable[..., subprocess.CompletedProcess[str]],
    tmp_path: Path,
    queue: shmbroker.Queue,
    function: str,
    prefetch: int,
) -> None:
    """Messages that end each worker which gets them do not stop the others, nor take them along."""
    work = connection_of(queue).queue("work")
    mortal = shmbroker.BasicProperties(headers={"a": 1}, expiration="3600000")
    work.put_many([b"poison"] * 2, key="k", properties=mortal)
    work.put_many([b"good"] * 20)
    (tmp_path / "main.py").write_text(POISONED)
    done = run(function, str(prefetch))
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) <= 4  # one that was prefetched behind another counts as delivered
    aside = connection_of(queue).queue("work.set-aside", passive=True)
    found = [(bytes(one), one.key, one.headers, one.expires_at) for one in aside.browse()]
    assert found == [(b"poison", "k", {"a": 1, "x-shmbroker-queue": "work", "x-shmbroker-attempts": 2}, None)] * 2
    assert done.stderr.count("was tried 2 times: it is in queue 'work.set-aside' now") == 2
    assert work.statistics().acked == 22


NO_ROOM_ASIDE = """
import sys
import shmbroker, jobs

if __name__ == "__main__":
    with shmbroker.WorkerPool(jobs.raise_of_poison, "work", broker=sys.argv[1], processes=1, attempts=1) as pool:
        while pool.restarts < 3:
            pass
"""


@pytest.mark.usefixtures("broker")
def test_poison_that_cannot_be_set_aside(
    run: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path, queue: shmbroker.Queue
) -> None:
    """It stays where it is, and a line for each try says why; a look at it is no attempt."""
    work, aside = connection_of(queue).queue("work"), connection_of(queue).queue("work.set-aside", max_length=1)
    aside.put(b"there before")
    work.put(b"poison")
    (tmp_path / "main.py").write_text(NO_ROOM_ASIDE)
    done = run("", "")
    assert done.returncode == 0, done.stderr
    first, *others = done.stderr.splitlines()
    assert "ValueError: poison" in first
    assert len(others) >= 2
    for line in others:
        assert "was tried 1 times, and queue 'work.set-aside' has no room for it: " in line
    assert bytes(work.get(auto_ack=True, timeout=0)) == b"poison"
    assert [bytes(one) for one in aside.browse()] == [b"there before"]


FORKS = """
import os, sys
import shmbroker, jobs

if __name__ == "__main__":
    with shmbroker.WorkerPool(jobs.look_at_signals, "work", broker=sys.argv[1], processes=2) as pool:
        before = pool.pids
        child = os.fork()
        if child == 0:
            sys.exit(0)  # it knows nothing of a pool, and ends as programs do
        _, status = os.waitpid(child, 0)
        print(status, pool.pids == before, pool.restarts)
"""


@pytest.mark.usefixtures("broker")
def test_a_child_that_is_forked_beside_a_pool(
    run: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path, queue: shmbroker.Queue
) -> None:
    """Its end leaves its parent's workers alone."""
    connection_of(queue).queue("work")
    (tmp_path / "main.py").write_text(FORKS)
    done = run("", "")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "0 True 0\n"


NOT_IMPORTABLE = """
import sys
import shmbroker

def fits(message):
    pass

pools = {
    "local": lambda: (lambda message: None),
    "gone": lambda: fits,
    "no guard": lambda: fits,
}
made = pools[sys.argv[2]]()
if sys.argv[2] == "gone":  # as in an interactive session
    sys.modules["__main__"].__file__ = None
    del sys.modules["__main__"].__file__
    sys.modules["__main__"].__spec__ = None
if sys.argv[2] == "no guard" or __name__ == "__main__":
    try:
        shmbroker.WorkerPool(made, "q", broker=sys.argv[1], processes=2).start()
    except shmbroker.WorkerError as error:
        print("refused:", error)
"""


@pytest.mark.usefixtures("broker")
@pytest.mark.parametrize("form", ["local", "gone", "no guard"])
def test_a_function_that_workers_cannot_import(
    run: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path, form: str
) -> None:
    """`start` says so, and starts nothing again and again."""
    (tmp_path / "main.py").write_text(NOT_IMPORTABLE)
    done = run(form, "")
    assert done.returncode == 0, done.stderr
    assert "refused: 541 " in done.stdout
    assert ("fits of module" in done.stdout) == (form != "local")


def runs(pid: int) -> bool:
    """Whether a process has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


NEVER_STOPPED = """
import os, signal, sys
import shmbroker, jobs

if __name__ == "__main__":
    pool = shmbroker.WorkerPool(jobs.look_at_signals, "work", broker=sys.argv[1], processes=2).start()
    print(*pool.pids)
    sys.stdout.flush()
    if sys.argv[2] == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if sys.argv[2] == "raise":
        raise RuntimeError("the main program dies")
"""


@pytest.mark.usefixtures("broker")
@pytest.mark.parametrize("end", ["return", "raise", "killed"])
def test_a_pool_that_nobody_stops(
    run: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path, queue: shmbroker.Queue, end: str
) -> None:
    """It does not keep the program from ending, and its workers end with it."""
    connection_of(queue).queue("work")
    (tmp_path / "main.py").write_text(NEVER_STOPPED)
    done = run(end, "")
    assert done.returncode == {"return": 0, "raise": 1, "killed": -signal.SIGKILL}[end]
    workers = [int(pid) for pid in done.stdout.split()]
    assert len(workers) == 2
    for pid in workers if end != "killed" else ():
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    becomes(lambda: any(map(runs, workers)), False)  # noqa: FBT003 - what it becomes


@pytest.mark.parametrize("given", [{"attempts": 0}, {"attempts": True}, {"attempts": 2.5}, {"set_aside": ""}])
def test_what_a_pool_is_not_given(given: dict[str, Any]) -> None:
    """The value and what is allowed are named."""
    with pytest.raises(ValueError, match="allowed"):
        shmbroker.WorkerPool(print, "q", **given)


@pytest.mark.parametrize(("cores", "processes", "count"), [(3, None, 3), (None, None, 1), (3, 1024, 1024)])
def test_how_many_workers_a_pool_has(
    monkeypatch: pytest.MonkeyPatch, cores: int | None, processes: int | None, count: int
) -> None:
    """One for each core, or one where the system does not say; as many as are asked for."""
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    assert repr(shmbroker.WorkerPool(print, "q", processes=processes)) == f"<WorkerPool of {count} at 'q', stopped>"
