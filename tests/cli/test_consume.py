# SPDX-License-Identifier: Apache-2.0
"""`shmbroker consume` in one process, and `shmbroker browse`."""

from __future__ import annotations

import base64
import json
import signal
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import shmbroker


HANDLERS = """
import os
import pathlib
import signal

def keep(message):
    with pathlib.Path("kept").open("ab") as file:
        file.write(bytes(message) + b"\\n")

def fail_at_two(message):
    if bytes(message) == b"2":
        raise ValueError("two is\\ntoo much")

def stop_and_keep(message):
    os.kill(os.getpid(), signal.SIGTERM)
    keep(message)

number = 5
"""


@pytest.fixture
def handlers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Lay a module `handlers` into the working directory."""
    (tmp_path / "handlers.py").write_text(HANDLERS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(__import__("sys").modules, "handlers", raising=False)
    return tmp_path


def test_prints_bodies_and_acknowledges_them(cli: Callable[..., Any], jobs: shmbroker.Queue) -> None:
    """A line for each message, in order; `--timeout` ends it when none is left."""
    jobs.put_many([b"one", b"two"])
    ran = cli("consume", "jobs", "--timeout", "0.1")
    assert (ran.code, ran.lines) == (0, ["one", "two"])
    statistics = jobs.statistics()
    assert (statistics.message_count, statistics.acked) == (0, 2)


def test_count_takes_exactly_so_many(cli: Callable[..., Any], jobs: shmbroker.Queue) -> None:
    """What was not printed stays as if nobody had looked at it."""
    jobs.put_many([b"1", b"2", b"3"])
    assert cli("consume", "jobs", "--count", "2").lines == ["1", "2"]
    (rest,) = jobs.browse()
    assert (bytes(rest), rest.redelivered) == (b"3", False)


def test_auto_ack_with_count_takes_exactly_so_many(cli: Callable[..., Any], jobs: shmbroker.Queue) -> None:
    """None is taken ahead and lost."""
    jobs.put_many([b"1", b"2", b"3"])
    assert cli("consume", "jobs", "--count", "2", "--auto-ack").lines == ["1", "2"]
    assert [bytes(message) for message in jobs.browse()] == [b"3"]
    assert jobs.statistics().acked == 2


def test_json_is_an_object_per_line(cli: Callable[..., Any], jobs: shmbroker.Queue) -> None:
    """A body that is not UTF-8 is in base 64."""
    jobs.put_many([b"text", b"\xff\x00"])
    ran = cli("consume", "jobs", "--count", "2", "--json")
    first, second = map(json.loads, ran.lines)
    assert (first["body"], first["queue"], first["delivery_count"]) == (
        "text",
        "jobs",
        1,
    )
    assert base64.b64decode(second["body_base64"]) == b"\xff\x00"


def test_call_hands_each_message_to_a_function(cli: Callable[..., Any], jobs: shmbroker.Queue, handlers: Path) -> None:
    """The module may lie in the working directory."""
    jobs.put_many([b"1", b"2"])
    ran = cli("consume", "jobs", "--call", "handlers:keep", "--timeout", "0.1")
    assert (ran.code, ran.out, ran.err) == (0, "", "")
    assert (handlers / "kept").read_bytes() == b"1\n2\n"
    assert jobs.statistics().acked == 2


@pytest.mark.usefixtures("handlers")
def test_a_function_that_raises_loses_nothing(cli: Callable[..., Any], jobs: shmbroker.Queue) -> None:
    """Its message goes back to its place; the command says so and ends."""
    jobs.put_many([b"1", b"2", b"3"])
    ran = cli("consume", "jobs", "--call", "handlers:fail_at_two")
    assert ran.is_refused("handlers:fail_at_two", "ValueError: two is too much")
    assert [bytes(message) for message in jobs.browse()] == [b"2", b"3"]
    assert jobs.statistics().acked == 1


@pytest.mark.parametrize(
    ("target", "code"),
    [
        ("no_such_module:f", 1),
        ("handlers:no_such_function", 1),
        ("handlers:number", 1),
        ("handlers", 2),
        (":keep", 2),
        ("", 2),
    ],
)
@pytest.mark.usefixtures("handlers")
def test_a_function_that_cannot_be_found(
    cli: Callable[..., Any], jobs: shmbroker.Queue, target: str, code: int
) -> None:
    """The line names it, and no message is touched."""
    jobs.put(b"1")
    ran = cli("consume", "jobs", "--call", target)
    assert ran.is_refused(target, code=code)
    assert jobs.statistics().redelivered == 0
    assert len(jobs) == 1


@pytest.mark.usefixtures("jobs")
def test_a_module_that_exits_when_it_is_loaded(cli: Callable[..., Any], handlers: Path) -> None:
    """That is told like any other failure of its: it does not end the command without a word."""
    (handlers / "leaves.py").write_text("raise SystemExit(5)")
    assert cli("consume", "jobs", "--call", "leaves:f").is_refused("leaves:f", "SystemExit: 5")


@pytest.mark.usefixtures("jobs")
def test_workers_need_a_function(cli: Callable[..., Any]) -> None:
    """Without one it is wrong usage; so are workers that acknowledge beforehand."""
    assert cli("consume", "jobs", "--workers", "2").is_refused("--call", code=2)
    ran = cli("consume", "jobs", "--workers", "2", "--call", "a:b", "--auto-ack")
    assert ran.is_refused("--auto-ack", code=2)


@pytest.mark.usefixtures("broker")
def test_an_unknown_queue_is_refused(cli: Callable[..., Any]) -> None:
    """Neither consuming nor browsing makes queues."""
    assert cli("consume", "nowhere").is_refused("nowhere")
    assert cli("browse", "nowhere").is_refused("nowhere")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_a_clean_end(
    start: Callable[..., Any], finish: Callable[..., Any], jobs: shmbroker.Queue, number: int
) -> None:
    """It ends while it waits; what it has printed is acknowledged."""
    process = start("consume", "jobs")
    jobs.put(b"first")
    assert process.stdout.readline() == "first\n"
    process.send_signal(number)
    ran = finish(process)
    assert (ran.code, ran.out, ran.err) == (0, "", "")
    assert jobs.statistics().message_count == 0


def test_a_signal_lets_the_message_in_hand_be_finished(
    start: Callable[..., Any], finish: Callable[..., Any], jobs: shmbroker.Queue, handlers: Path
) -> None:
    """It is dealt with and acknowledged; the next one is left alone."""
    jobs.put_many([b"1", b"2"])
    ran = finish(start("consume", "jobs", "--call", "handlers:stop_and_keep"))
    assert (ran.code, ran.err) == (0, "")
    assert (handlers / "kept").read_bytes() == b"1\n"
    assert [bytes(message) for message in jobs.browse()] == [b"2"]
    assert jobs.statistics().acked == 1


def test_a_reader_that_goes_away_costs_no_message(
    start: Callable[..., Any], finish: Callable[..., Any], jobs: shmbroker.Queue
) -> None:
    """As in `shmbroker consume jobs | head -1`: what it could not print goes back."""
    process = start("consume", "jobs")
    jobs.put(b"first")
    assert process.stdout.readline() == "first\n"
    process.stdout.close()
    jobs.put(b"second")
    process.stdout = None
    ran = finish(process)
    assert (ran.code, ran.err) == (1, "")
    assert [bytes(message) for message in jobs.browse()] == [b"second"]


def test_browse_leaves_everything_in_place(cli: Callable[..., Any], jobs: shmbroker.Queue) -> None:
    """A table line for each message; nothing counts as delivered."""
    assert "no messages" in cli("browse", "jobs").out
    jobs.put_many([b"one", b"t\x1bo"])
    shown = cli("browse", "jobs")
    assert shown.code == 0
    assert [line.split()[-1] for line in shown.lines[2:]] == ["one", "t\\x1bo"]
    assert jobs.statistics().ready == 2


def test_browse_as_json_is_an_object_per_line(cli: Callable[..., Any], jobs: shmbroker.Queue) -> None:
    """`--count` bounds how many."""
    jobs.put_many([b"1", b"2", b"3"])
    lines = cli("browse", "jobs", "--json", "--count", "2").lines
    assert [json.loads(line)["body"] for line in lines] == ["1", "2"]
