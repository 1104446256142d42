# SPDX-License-Identifier: Apache-2.0
"""RabbitMQ: its priorities, delays and dead letters, by pika, without confirms and with transient messages."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.compare.feature_work import BODY, DEPTH, LEVELS
from benchmarks.compare.protocol import module

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

START_SECONDS = 60.0
STOP_SECONDS = 15.0
PAUSE_SECONDS = 0.001
DELAY_SECONDS = 2.0
QUEUES = ("ranked", "q", "dead")
# Debian's command of the same name changes the user; this one is what it then runs.
PROGRAM = shutil.which("rabbitmq-server", path="/usr/lib/rabbitmq/bin") or shutil.which("rabbitmq-server")
EPMD = shutil.which("epmd")


def _count(channel: Any, queue: str) -> int:  # noqa: ANN401 (the client has no types)
    found: int = channel.queue_declare(queue, passive=True).method.message_count
    return found


def _wait_for(channel: Any, queue: str, count: int) -> None:  # noqa: ANN401
    while _count(channel, queue) < count:
        time.sleep(PAUSE_SECONDS)


def ranked(channel: Any, count: int) -> float:  # noqa: ANN401
    """Publish and get in turn, beside messages of all levels; return the nanoseconds."""
    properties = [module("pika").BasicProperties(priority=level) for level in range(LEVELS)]
    channel.queue_declare("ranked", arguments={"x-max-priority": LEVELS - 1})
    for number in range(DEPTH):
        channel.basic_publish("", "ranked", BODY, properties[number * 7 % LEVELS])
    _wait_for(channel, "ranked", DEPTH)
    start_ns = time.perf_counter_ns()
    for number in range(count):
        channel.basic_publish("", "ranked", BODY, properties[number * 7 % LEVELS])
        channel.basic_get("ranked", auto_ack=True)
    return time.perf_counter_ns() - start_ns


def delayed(channel: Any, count: int) -> float:  # noqa: ANN401
    """Publish to a queue whose messages expire into another one; return the nanoseconds beyond the delay."""
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    channel.queue_declare("dead")
    channel.queue_declare("q", arguments={"x-message-ttl": round(DELAY_SECONDS * 1000), **arguments})
    start_ns = time.perf_counter_ns()
    for _ in range(count):
        channel.basic_publish("", "q", BODY)
    _wait_for(channel, "dead", count)
    return time.perf_counter_ns() - start_ns - round(DELAY_SECONDS * 1e9)


def dead(channel: Any, count: int) -> float:  # noqa: ANN401
    """Get and reject, until all messages lie in the dead-letter queue; return the nanoseconds."""
    channel.queue_declare("dead")
    channel.queue_declare("q", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
    for _ in range(count):
        channel.basic_publish("", "q", BODY)
    _wait_for(channel, "q", count)
    start_ns = time.perf_counter_ns()
    for _ in range(count):
        method, _, _ = channel.basic_get("q")
        channel.basic_reject(method.delivery_tag, requeue=False)
    _wait_for(channel, "dead", count)
    return time.perf_counter_ns() - start_ns


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


class RabbitServer:
    """A server of our own, on a port of this machine, with its name server."""

    def __init__(self, folder: Path | None = None) -> None:
        """Start both, in a directory of their own.

        Args:
            folder: Where the directory is made; without one, among those for temporary files.
        """
        self._directory = tempfile.mkdtemp(prefix="benchmark-rabbitmq-", dir=folder)
        self.port, distribution, names = _free_ports(3)
        path = Path(self._directory)
        path.joinpath("plugins").write_text("[].")
        environment = {
            **os.environ,
            "HOME": self._directory,
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(names),
            "RABBITMQ_NODENAME": f"benchmark{os.getpid()}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(distribution),
            "RABBITMQ_BASE": self._directory,
            "RABBITMQ_MNESIA_BASE": str(path / "data"),
            "RABBITMQ_LOG_BASE": str(path / "log"),
            "RABBITMQ_PID_FILE": str(path / "pid"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(path / "plugins"),
            "RABBITMQ_CONFIG_FILE": str(path / "none"),
        }
        self._processes: list[subprocess.Popen[bytes]] = []
        try:
            self._start(EPMD, environment)
            self._wait_until(lambda: socket.create_connection(("127.0.0.1", names)).close(), OSError)
            self._start(PROGRAM, environment)
            pika = module("pika")
            self._wait_until(self._try, pika.exceptions.AMQPConnectionError)
        except BaseException:
            self.close()
            raise

    def _start(self, program: str | None, environment: dict[str, str]) -> None:
        nowhere = subprocess.DEVNULL
        self._processes.append(
            subprocess.Popen(  # noqa: S603 (a fixed command)
                [program or ""], env=environment, stdin=nowhere, stdout=nowhere, stderr=nowhere
            )
        )

    def _wait_until(self, attempt: Callable[[], None], error: type[Exception]) -> None:
        """Try again until it raises no such error, or the process that was started last has ended."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                attempt()
            except error:
                if time.monotonic() > deadline or self._processes[-1].poll() is not None:
                    raise
                time.sleep(0.1)
            else:
                return

    def _try(self) -> None:
        with self.client():
            pass

    @contextlib.contextmanager
    def client(self) -> Iterator[Any]:
        """Connect, and open a channel, to a server without queues."""
        pika = module("pika")
        connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", self.port))
        try:
            channel = connection.channel()
            for queue in QUEUES:
                channel.queue_delete(queue)
            yield channel
        finally:
            connection.close()

    def close(self) -> None:
        """End the server, then its name server, and remove the directory."""
        for process in reversed(self._processes):
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(STOP_SECONDS)
        shutil.rmtree(self._directory, ignore_errors=True)


class RabbitMQ:
    """A server of RabbitMQ."""

    name = "RabbitMQ"

    def available(self) -> str | None:
        """Return why it cannot run here: the server, Erlang's name server and the client are needed."""
        for command, found in (("rabbitmq-server", PROGRAM), ("epmd", EPMD)):
            if found is None:
                return f"not installed (no {command})"
        try:
            module("pika")
        except ImportError as error:
            return f"not installed ({error})"
        return None

    def version(self) -> str:
        """Return the version of the client."""
        return str(module("pika").__version__)

    start = staticmethod(RabbitServer)
