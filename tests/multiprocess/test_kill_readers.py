# SPDX-License-Identifier: Apache-2.0
"""Processes that read bodies in place, and hold no message, are killed: what they kept is free again."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

from scenario_support.waiting import eventually

import shmbroker
import shmbroker.testing
from shmbroker import body_references

ACTORS = Path(__file__).with_name("actors.py")
BODIES, SIZE = 40, 1_000_000


def memory_used(broker: shmbroker.Broker) -> int:
    """Bytes in use."""
    return broker.statistics().memory_used


def test_what_a_killed_reader_kept_is_free(broker_name: str) -> None:
    """Its bodies outlive their messages as long as it lives; then there is room for others again, and all is sound."""
    with shmbroker.testing.broker(broker_name, memory="64M") as broker, broker.connect() as connection:
        queue = connection.queue("jobs")
        queue.put_many([bytes(SIZE)] * BODIES)
        command = [sys.executable, str(ACTORS), "read_in_place", broker_name, "jobs", "-"]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as reader:
            assert reader.stdout is not None
            try:
                assert int(reader.stdout.readline()) == BODIES
                found = [place for _, place in body_references.of_queue(queue)]
                assert queue.purge() == BODIES
                assert memory_used(broker) >= BODIES * SIZE
            finally:
                reader.send_signal(signal.SIGKILL)
        queue.put_many([bytes(SIZE)] * BODIES)  # waits for the memory: there is not as much twice
        assert [body_references.body_at(connection, place) for place in found] == [None] * BODIES
        # The memory comes back before the rest of what it had does.
        eventually(lambda: connection.doctor() == [], "the reader was reaped, and all is sound")


def test_readers_are_killed_while_messages_come_and_go(broker_name: str) -> None:
    """Whoever reads finds the bodies that he was told of, or that they are gone; nothing is kept in the end."""
    with shmbroker.testing.broker(broker_name, memory="64M") as broker, broker.connect() as connection:
        queue = connection.queue("jobs")
        for number in range(12):
            sent = signal.SIGKILL if number % 2 else signal.SIGTERM
            command = [sys.executable, str(ACTORS), "read_for_ever", broker_name, "jobs", "-"]
            with subprocess.Popen(command, stdout=subprocess.PIPE) as reader:
                assert reader.stdout is not None
                try:
                    for turn in range(200):
                        queue.put_many([bytes([turn]) * (5000 + number)] * 20)
                        if turn >= 2:
                            queue.get_many(20, timeout=0).ack()
                        if turn == 0:
                            assert reader.stdout.readline() == b"reading\n"
                    reader.send_signal(sent)
                    ended = reader.wait()
                finally:
                    reader.kill()  # if the test failed; a reader that has ended gets no signal
            said = f"reader {number}, to which {sent.name} was sent, ended with {ended}; 1: it found another body"
            assert ended == (-sent if sent is signal.SIGKILL else 0), said
        queue.purge()
        while connection.doctor():
            time.sleep(0.01)
