# SPDX-License-Identifier: Apache-2.0
"""`shmbroker consume --call F --workers N`."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from shmbroker_cli.claim_counter import ClaimCounter

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import shmbroker


HANDLERS = """
import os
import pathlib

def keep(message):
    pathlib.Path(f"kept-{bytes(message).decode()}").write_text(str(os.getpid()))

def fail_at_two(message):
    if bytes(message) == b"2":
        raise ValueError("two")

def settle_and_fail(message):
    message.ack()
    raise ValueError("settled")

def die_once(message):
    mark = pathlib.Path(f"died-{bytes(message).decode()}")
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), 9)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Lay a module `handlers` into the folder that commands run in."""
    (tmp_path / "handlers.py").write_text(HANDLERS)
    return tmp_path


def call(function: str, *more: str) -> tuple[str, ...]:
    """Return a command line."""
    return ("consume", "jobs", "--call", f"handlers:{function}", "--workers", *more)


def test_workers_share_the_messages(
    start: Callable[..., Any], finish: Callable[..., Any], jobs: shmbroker.Queue, folder: Path
) -> None:
    """Each message is dealt with once, then they end; nothing is printed."""
    jobs.put_many([str(number).encode() for number in range(20)])
    ran = finish(start(*call("keep", "2", "--count", "20")))
    assert (ran.code, ran.out, ran.err) == (0, "", "")
    assert len(list(folder.glob("kept-*"))) == 20
    statistics = jobs.statistics()
    assert (statistics.message_count, statistics.acked) == (0, 20)


def test_count_is_exact(
    start: Callable[..., Any], finish: Callable[..., Any], jobs: shmbroker.Queue, folder: Path
) -> None:
    """What is beyond goes back to the queue, whatever the workers had in hand."""
    jobs.put_many([str(number).encode() for number in range(20)])
    assert finish(start(*call("keep", "3", "--count", "5"))).code == 0
    assert len(list(folder.glob("kept-*"))) == 5
    assert len(jobs) == 15


def test_timeout_ends_idle_workers(
    start: Callable[..., Any], finish: Callable[..., Any], jobs: shmbroker.Queue, folder: Path
) -> None:
    """Workers that are still starting are not idle."""
    jobs.put_many([b"1", b"2"])
    assert finish(start(*call("keep", "2", "--timeout", "0.1"))).code == 0
    assert len(list(folder.glob("kept-*"))) == 2
    assert len(jobs) == 0


@pytest.mark.usefixtures("folder")
def test_a_function_that_raises_ends_all_and_loses_nothing(
    start: Callable[..., Any], finish: Callable[..., Any], jobs: shmbroker.Queue
) -> None:
    """One line says what it raised; its message is in the queue."""
    jobs.put_many([b"1", b"2", b"3"])
    ran = finish(start(*call("fail_at_two", "2")))
    assert ran.is_refused("handlers:fail_at_two raised ValueError: two")
    assert b"2" in [bytes(message) for message in jobs.browse()]


@pytest.mark.usefixtures("folder")
def test_a_function_that_settles_and_raises_ends_all(
    start: Callable[..., Any], finish: Callable[..., Any], jobs: shmbroker.Queue
) -> None:
    """As without workers: the command is refused, and no other message is dealt with."""
    jobs.put_many([b"1", b"2", b"3"])
    ran = finish(start(*call("settle_and_fail", "1", "--count", "2")))
    assert ran.is_refused("handlers:settle_and_fail raised ValueError: settled")
    assert (jobs.statistics().acked, len(jobs)) == (1, 2)


@pytest.mark.usefixtures("folder")
def test_a_worker_that_dies_is_replaced(
    start: Callable[..., Any], finish: Callable[..., Any], jobs: shmbroker.Queue
) -> None:
    """Its message goes to another; the count is of messages done, not of attempts."""
    jobs.put_many([b"1", b"2"])
    assert finish(start(*call("die_once", "2", "--count", "2"))).code == 0
    statistics = jobs.statistics()
    assert (statistics.message_count, statistics.acked) == (0, 2)
    assert statistics.redelivered >= 2


@pytest.mark.usefixtures("jobs")
def test_a_missing_module_is_refused_before_any_worker_starts(
    start: Callable[..., Any], finish: Callable[..., Any]
) -> None:
    """One line, once."""
    ran = finish(start("consume", "jobs", "--call", "nowhere:f", "--workers", "2"))
    assert ran.is_refused("nowhere:f")


def test_tally_lets_no_more_claim_than_are_left() -> None:
    """A claim waits until it is decided; one that was given back is free again."""
    claims = ClaimCounter(limit=2)
    assert claims.claim()
    assert claims.claim()
    answers = []
    third = threading.Thread(target=lambda: answers.append(claims.claim()))
    third.start()
    claims.finish()
    assert answers == []
    claims.give_back()
    third.join()
    assert answers == [True]
    claims.finish()
    claims.wait(None, lambda: True)
    assert claims.done == 2


def test_tally_that_is_closed_refuses_those_who_wait() -> None:
    """They learn it at once."""
    claims = ClaimCounter(limit=1)
    assert claims.claim()
    answers = []
    second = threading.Thread(target=lambda: answers.append(claims.claim()))
    second.start()
    claims.fail("broken")
    second.join()
    assert answers == [False]
    assert claims.failure == "broken"


def test_tally_is_idle_only_when_nothing_runs_and_nothing_is_ready() -> None:
    """Until then an idle time that is over does not count."""
    ready = iter([True, True, False])
    claims = ClaimCounter(limit=None)
    claims.wait(0.0, lambda: next(ready))
    assert list(ready) == []
