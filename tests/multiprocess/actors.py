# SPDX-License-Identifier: Apache-2.0
"""Processes of the kill tests. Each logs with plain write(2), so that a kill loses no line it had written."""

from __future__ import annotations

import contextlib
import operator
import os
import queue
import signal
import sys

import shmbroker
from shmbroker import body_references
from shmbroker._core import native
from shmbroker._core.transaction import Publication, Settlement, commit


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
CORE_CONNECTION = operator.attrgetter("_session.core")


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
                outcome = commit(CORE_CONNECTION(connection), publications, settlements)
                if outcome.status != native.OK:
                    sys.exit(f"commit: {outcome}")
                os.write(descriptor, b"".join(one.body + b"\n" for one in publications))
            number += 2


def read_in_place(broker: str, name: str, _log: str) -> None:
    """Reads every body where it lies, holding no message; says how many, and keeps them until it is killed."""
    with shmbroker.connect(broker, create=False) as connection:
        jobs = connection.queue(name, passive=True)
        kept = [body_references.body_at(connection, place) for _, place in body_references.of_queue(jobs)]
        sys.stdout.write(f"{sum(body is not None for body in kept)}\n")
        sys.stdout.flush()
        signal.pause()


def read_for_ever(broker: str, name: str, _log: str) -> None:
    """Reads what it finds until it is terminated; ends with exit code 1 if a body is not of one byte throughout."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with shmbroker.connect(broker, create=False) as connection:
        jobs = connection.queue(name, passive=True)
        sys.stdout.write("reading\n")
        sys.stdout.flush()
        while True:
            found = [place for _, place in body_references.of_queue(jobs)]
            for place in found * 2:  # the second time some are gone
                body = body_references.body_at(connection, place)
                if body is not None and body.tobytes() != bytes(body[:1]) * place.length:
                    sys.exit(1)


if __name__ == "__main__":
    actors = {one.__name__: one for one in (produce, take, transact, read_in_place, read_for_ever)}
    actors[sys.argv[1]](*sys.argv[2:])
