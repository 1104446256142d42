# SPDX-License-Identifier: Apache-2.0
"""Processes of the kill tests. Each logs with plain write(2), so that a kill loses no line it had written."""

from __future__ import annotations

import contextlib
import operator
import os
import queue
import sys

import shmbroker
from shmbroker._core import library
from shmbroker._core.commit import Publication, Settlement, commit


def produce(broker: str, name: str, log: str, worker: str, count: str) -> None:
    """Puts ``worker:0``, ``worker:1`` ...; a line is written after each put that returned."""
    descriptor = os.open(log, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    with shmbroker.connect(broker, create=False) as connection:
        jobs = connection.queue(name, passive=True)
        for number in range(int(count)):
            body = f"{worker}:{number}".encode()
            jobs.put(body)
            os.write(descriptor, body + b"\n")


def take(broker: str, name: str, log: str, how: str) -> None:
    """Takes and acknowledges for ever; a line is written before the ack and one after it."""
    descriptor = os.open(log, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    with shmbroker.connect(broker, create=False) as connection:
        jobs = connection.queue(name, passive=True)
        consumer = jobs.consume(prefetch=32) if how == "consume" else None
        while True:
            message = jobs.get() if consumer is None else consumer.get()
            body = bytes(message) + (b" again" if message.redelivered else b" first")
            os.write(descriptor, b"got " + body + b"\n")
            message.ack()
            os.write(descriptor, b"ack " + body + b"\n")


CORE, RECORD = operator.attrgetter("_core"), operator.attrgetter("_record")


def transact(broker: str, count: str, log: str, worker: str) -> None:
    """Publishes ``worker:0`` to ``count`` queues, in turn with what it takes from "jobs" and acknowledges, for ever.

    A line is written after each commit that returned: what was published, and what was acknowledged with it.
    """
    descriptor = os.open(log, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    with shmbroker.connect(broker, create=False) as connection:
        jobs = connection.queue("jobs", passive=True)
        targets = [CORE(connection.queue(f"t{place}", passive=True)) for place in range(int(count))]
        number = 0
        while True:
            plain = [Publication(f"{worker}:{number + offset}".encode(), targets) for offset in range(2)]
            work: list[Publication] = []
            acks: list[Settlement] = []
            with contextlib.suppress(queue.Empty):  # then all are done
                message = jobs.get(timeout=0)
                acks.append(Settlement(CORE(jobs), int.from_bytes(RECORD(message)[:8], "little")))
                work.append(Publication(b"ack " + bytes(message), targets))
            for publications, settlements in ((plain, []), (work, acks)):
                outcome = commit(CORE(connection), publications, settlements)
                if outcome.status != library.OK:
                    sys.exit(f"commit: {outcome}")
                os.write(descriptor, b"".join(one.body + b"\n" for one in publications))
            number += 2


if __name__ == "__main__":
    {"produce": produce, "take": take, "transact": transact}[sys.argv[1]](*sys.argv[2:])
