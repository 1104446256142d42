# SPDX-License-Identifier: Apache-2.0
"""Pools of workers: what becomes of messages, of failures and of Ctrl-C."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import shmbroker

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
    work = queue.connection.queue("work")
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
    queue.connection.queue("work").put(b"A")
    done = run("look_at_signals", INTERRUPTED="1")
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")


@pytest.mark.usefixtures("broker")
def test_workers_of_a_queue_that_is_not_there(
    run: Callable[..., subprocess.CompletedProcess[str]], queue: shmbroker.Queue
) -> None:
    """Each says so in one line."""
    done = run("fail_once", "nowhere")
    assert queue.connection.queue_names() == ["q", "work"]
    assert (done.returncode, done.stdout) == (0, "2\n")
    assert all("no queue 'nowhere'" in line for line in done.stderr.splitlines())
