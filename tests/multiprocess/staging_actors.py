# SPDX-License-Identifier: Apache-2.0
"""Processes of the kill tests of staging: drivers that stage and publish batches, and ones that die at a step."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

import shmbroker
from shmbroker.staging import Receipt, Stage

if TYPE_CHECKING:
    from collections.abc import Callable

PARTITIONS, COUNT = 2, 6
OUT, PUBLICATION = "out", "query"
AT_ONCE = {"at once": 1000, "moved": 5, "timed": 5}
PLAIN: dict[str, Any] = {}
TIMED: dict[str, Any] = {"ttl": 3600, "key": "k"}


def bodies(batch: int, partition: int) -> list[bytes]:
    """What a partition of a batch consists of, whoever writes it; some bodies are long."""
    return [b"%d:%d:%d:" % (batch, partition, at) + bytes(at % 3 // 2 * 5000) for at in range(COUNT)]


def staged(stage: Stage, batch: int, attempt: int, options: dict[str, Any]) -> list[Receipt]:
    """A batch, staged."""
    receipts = []
    for partition in range(PARTITIONS):
        with stage.attempt(batch, partition, attempt) as writer:
            first, *others = bodies(batch, partition)
            writer.put(first, **options)
            writer.put_many(others, **options)
        receipts.append(writer.receipt)
    return receipts


def drive(broker: str, how: str, log: str, attempt: str) -> None:
    """Stages and publishes the batch after the last one, for ever; a line is written after each that was published."""
    descriptor = os.open(log, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    with shmbroker.connect(broker, create=False) as connection:
        stage = Stage(connection, PUBLICATION, at_once=AT_ONCE[how])
        while True:
            last = stage.published
            batch = 0 if last is None else last + 1
            with contextlib.suppress(shmbroker.NotStaged):  # the other driver published it, or began our attempt anew
                receipts = staged(stage, batch, int(attempt), TIMED if how == "timed" else PLAIN)
                stage.publish(batch, receipts, OUT)
                os.write(descriptor, b"%d\n" % batch)


CHANGING = {
    "put", "put_many", "sb_queue_put_with", "take", "take_many",
    "sb_queue_open", "sb_queue_declare", "sb_queue_configure", "sb_queue_delete", "sb_queue_move",
    "sb_transaction_commit",
}  # fmt: skip


def die_at(step: int) -> None:
    """Be killed at the step of that number: before or after a call of the compiled modules that changes anything."""
    left = step

    def count(_frame: object, event: str, called: object) -> None:
        nonlocal left
        if event.startswith("c_") and getattr(called, "__name__", "") in CHANGING:
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.setprofile(count)


def in_child(work: Callable[[], None]) -> bool:
    """Does it in a process of its own; False: that was killed."""
    child = os.fork()
    if child == 0:
        failed = True
        try:
            work()
            failed = False
        finally:
            os._exit(failed)
    status = os.waitpid(child, 0)[1]
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) != 0:
        sys.exit("the child failed")
    return os.WIFEXITED(status)


def step_by_step(broker: str, how: str, log: str, what: str) -> None:
    """Each batch is staged and published by a process that dies, each time at a later step, and then by another one.

    Ends when a step is never reached. A line is written for each batch: how many the second one published.
    """
    descriptor = os.open(log, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    options = TIMED if how == "timed" else PLAIN
    batch = 0  # and the step

    def once(*, dies: bool) -> None:
        with shmbroker.connect(broker, create=False) as connection:
            stage = Stage(connection, f"{PUBLICATION}{batch}" if what == "found" else PUBLICATION, at_once=AT_ONCE[how])
            if dies and what == "stage":
                die_at(batch)
            receipts = staged(stage, batch, 0, options)
            if dies and what != "stage":
                die_at(batch)
            count = stage.publish(batch, receipts, OUT)
            sys.setprofile(None)
            if not dies:
                os.write(descriptor, b"%d\n" % count)

    while not in_child(lambda: once(dies=True)):
        in_child(lambda: once(dies=False))
        batch += 1


if __name__ == "__main__":
    {"drive": drive, "step_by_step": step_by_step}[sys.argv[1]](*sys.argv[2:])
