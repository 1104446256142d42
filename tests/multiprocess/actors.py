# SPDX-License-Identifier: Apache-2.0
"""Processes of the kill tests. Each logs with plain write(2), so that a kill loses no line it had written."""

from __future__ import annotations

import os
import sys

import shmbroker


def produce(broker: str, queue: str, log: str, worker: str, count: str) -> None:
    """Puts ``worker:0``, ``worker:1`` ...; a line is written after each put that returned."""
    descriptor = os.open(log, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    with shmbroker.connect(broker, create=False) as connection:
        jobs = connection.queue(queue, passive=True)
        for number in range(int(count)):
            body = f"{worker}:{number}".encode()
            jobs.put(body)
            os.write(descriptor, body + b"\n")


def take(broker: str, queue: str, log: str, how: str) -> None:
    """Takes and acknowledges for ever; a line is written before the ack and one after it."""
    descriptor = os.open(log, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    with shmbroker.connect(broker, create=False) as connection:
        jobs = connection.queue(queue, passive=True)
        consumer = jobs.consume(prefetch=32) if how == "consume" else None
        while True:
            message = jobs.get() if consumer is None else consumer.get()
            body = bytes(message) + (b" again" if message.redelivered else b" first")
            os.write(descriptor, b"got " + body + b"\n")
            message.ack()
            os.write(descriptor, b"ack " + body + b"\n")


if __name__ == "__main__":
    {"produce": produce, "take": take}[sys.argv[1]](*sys.argv[2:])
