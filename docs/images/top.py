# SPDX-License-Identifier: Apache-2.0
"""Makes the pictures of `shmbroker top` in this folder again: `make images`.

The processes of a small shop use a broker for some seconds; then the screen of queues and that of clients are drawn.
The numbers are those of that run.
"""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import re
import sys
import threading
import time
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

import shmbroker
from shmbroker_cli.session import connected
from shmbroker_cli.top.model import compare, take_sample
from shmbroker_cli.top.screen import Screen
from shmbroker_cli.top.view import View

if TYPE_CHECKING:
    from collections.abc import Callable

BROKER = "shop"
FOLDER = Path(__file__).parent
PICTURES = {"queues": "top.svg", "clients": "top-clients.svg"}
WIDTH, HEIGHT = 132, 18
SECONDS = 3.0  # between the two looks that the rates and the processor times come from
TICK = 0.01  # seconds
ELSEWHERE = re.compile(r"\s*(?:@font-face \{.*?\}|<!--.*?-->)", re.DOTALL)  # fonts of another machine, an advertisement


def web(connection: shmbroker.Connection) -> None:
    """Publish orders, mails and pictures."""
    orders, mails, pictures = (connection.queue(name) for name in ("orders", "mails", "thumbnails"))
    for tick in range(sys.maxsize):
        for _ in range(20):
            orders.put(b"o" * 200)
        for _ in range(3):
            mails.put(b"m" * 2048)
        if tick % 2 == 0:
            pictures.put(b"p" * 120_000)
        time.sleep(TICK)


def orders(connection: shmbroker.Connection) -> None:
    """Consume orders as they come."""
    with connection.queue("orders").consume(prefetch=20) as consumer:
        for message in consumer:
            message.ack()


def mailer(connection: shmbroker.Connection) -> None:
    """Consume mails, slower than they come."""
    with connection.queue("mails").consume(prefetch=20) as consumer:
        for message in consumer:
            time.sleep(0.004)
            message.ack()


def thumbnails(connection: shmbroker.Connection) -> None:
    """Consume pictures, with work for the processor."""
    with connection.queue("thumbnails").consume(prefetch=1) as consumer:
        for message in consumer:
            zlib.compress(bytes(message) * 4, 9)
            message.ack()


def reports(connection: shmbroker.Connection) -> None:
    """Wait in three threads for messages that are due in an hour; and fill a ring that has no consumers."""
    queue = connection.queue("reports")
    for _ in range(20):
        queue.put(b"daily", delay=3600)
    connection.queue("audit", ring_size=1000).put_many([b"a" * 100] * 1500)
    threads = [threading.Thread(target=queue.get, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    threads[0].join()


def run(role: Callable[[shmbroker.Connection], None], name: str) -> None:
    """Play a role over a connection of this name, until the broker is purged.

    Args:
        role: One of the functions above.
        name: The connection's.
    """
    with (
        contextlib.suppress(shmbroker.exceptions.ConnectionClosedByBroker),
        shmbroker.connect(BROKER, create=False, client_name=name) as connection,
    ):
        role(connection)


def main() -> None:
    """Draw the pictures."""
    if BROKER in shmbroker.brokers():
        sys.exit(f"there is a broker {BROKER!r} already: purge it, or draw as another user")
    broker = shmbroker.Broker(BROKER, memory="512M").start()
    roles = ((web, "web"), (orders, "orders-1"), (orders, "orders-2"), (mailer, "mailer"), (thumbnails, "thumbnails"),
             (reports, "reports"))  # fmt: skip
    spawn = multiprocessing.get_context("spawn")
    processes = [spawn.Process(target=run, args=role) for role in roles]
    try:
        for process in processes:
            process.start()
        with connected(BROKER) as connection:
            while len(connection.connections()) < len(processes) + 2:  # with the housekeeper's and this one
                time.sleep(TICK)
            time.sleep(SECONDS)
            before = take_sample(connection, BROKER)
            time.sleep(SECONDS)
            snapshot = compare(before, take_sample(connection, BROKER))
    finally:
        for process in processes:
            process.terminate()
            process.join()
        broker.stop(purge=True)
    for table, name in PICTURES.items():
        console = Console(record=True, file=io.StringIO(), width=WIDTH, height=HEIGHT, force_terminal=True)
        console.print(Screen(snapshot, View(table=table)))
        drawn = ELSEWHERE.sub("", console.export_svg(title=f"shmbroker top --table {table}"))
        (FOLDER / name).write_text(drawn.rstrip() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
