# SPDX-License-Identifier: Apache-2.0
"""Several processes that call one function: `shmbroker consume --call F --workers N`.

The workers are a `shmbroker.WorkerPool`: one that dies is replaced, and its message goes to another. After five failed
deliveries the pool moves a message to the queue `<queue>.set-aside`, and `--count` does not count it. Before each
message a worker asks this process, over a Unix socket, whether to handle it, and reports the outcome afterwards. So
`--count` is exact, and the first failure ends all workers.

| the worker sends | it means | and gets |
|---|---|---|
| `?` | may I take one more? | `y` or `n` |
| `.` | done | nothing |
| `!` and a text | the function raised | nothing |
| end of file | the worker ended or died | |
"""

from __future__ import annotations

import os
import socket
import socketserver
import tempfile
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import shmbroker
from shmbroker_cli.claim_counter import ClaimCounter
from shmbroker_cli.errors import DONE, REFUSED, Refused
from shmbroker_cli.functions import describe, find_function

if TYPE_CHECKING:
    from collections.abc import Iterator

# Connections to the parent, by this process's id and the parent's address. A forked process finds none under its own
# id, so it makes a connection of its own.
_lines: dict[tuple[int, str], BinaryIO] = {}


@dataclass(frozen=True)
class ReportedCall:
    """What a worker calls with each message: asks the parent, calls the function, reports the outcome. Can be pickled.

    Attributes:
        target: The function, as `module:function`.
        address: Path of the parent's socket.
    """

    target: str
    address: str

    def __call__(self, message: shmbroker.Message) -> None:
        """Deal with one message.

        Args:
            message: The message.

        Raises:
            SystemExit: If no more messages are wanted, or the function raised. This process
                ends silently, and the messages that it holds return to the queue.
        """
        line = self._line()
        if _request(line) != "y":
            message.give_back()
            raise SystemExit(DONE)
        try:
            find_function(self.target)(message)
        except (Exception, SystemExit) as error:  # noqa: BLE001 (the parent reports it)
            with suppress(shmbroker.MessageSettled):  # the function settled it, then raised
                message.nack()
            _notify(line, f"!{self.target} raised {describe(error)}")
            raise SystemExit(REFUSED) from None
        _notify(line, ".")

    def _line(self) -> BinaryIO:
        """Return this process's connection to the parent."""
        key = (os.getpid(), self.address)
        if key not in _lines:
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(self.address)
                _lines[key] = cast("BinaryIO", client.makefile("rwb"))
        return _lines[key]


def _notify(line: BinaryIO, text: str) -> None:
    line.write(f"{text}\n".encode(errors="replace"))
    line.flush()


def _request(line: BinaryIO) -> str:
    """Ask the parent for one more message. Return its answer, "y" or "n"; "" if the parent ended without an answer."""
    _notify(line, "?")
    return line.readline().decode().rstrip("\n")


class _ClaimServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """Answers the workers, each in a thread of its own."""

    daemon_threads = True

    def __init__(self, address: str, claims: ClaimCounter) -> None:
        self.claims = claims
        super().__init__(address, _Worker)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        """Ignore the error: a worker went away while the server answered it."""


class _Worker(socketserver.StreamRequestHandler):
    """The connection of one worker."""

    server: _ClaimServer

    def handle(self) -> None:
        """Answer until the worker ends."""
        claims, claimed = self.server.claims, False
        try:
            for line in self.rfile:
                text = line.decode(errors="replace").rstrip("\n")
                if text == "?":
                    claimed = claims.claim()
                    self.wfile.write(b"y\n" if claimed else b"n\n")
                    continue
                claimed = False
                if text == ".":
                    claims.finish()
                else:
                    claims.fail(text.removeprefix("!"))
        finally:
            if claimed:
                claims.give_back()


@contextmanager
def _claim_server(claims: ClaimCounter) -> Iterator[str]:
    """Answer the workers during the block; yields the address of the socket."""
    with tempfile.TemporaryDirectory(prefix="shmbroker-") as folder:
        address = str(Path(folder) / "claims")
        with _ClaimServer(address, claims) as server:
            thread = threading.Thread(target=server.serve_forever, daemon=True)
            thread.start()
            try:
                yield address
            finally:
                server.shutdown()
                thread.join()


def run_workers(
    target: str,
    connection: shmbroker.Connection,
    name: str,
    workers: int,
    *,
    count: int | None,
    idle: float | None,
) -> None:
    """Call a function with the messages of a queue, in several processes.

    Args:
        target: The function, as `module:function`.
        connection: A connection to the broker.
        name: Name of the queue, which exists.
        workers: Number of processes.
        count: Messages after which to stop; None: any number.
        idle: Seconds without a message after which to stop; None: never stop for that reason.

    Raises:
        NotFound: If there is no such queue.
        Refused: If the function raised; its message is back in the queue, unless the function settled it.
    """
    queue, claims = connection.queue(name, passive=True), ClaimCounter(count)
    with _claim_server(claims) as address:
        pool = shmbroker.WorkerPool(
            ReportedCall(target, address), name, broker=connection.broker_name, processes=workers
        )

        def has_more() -> bool:
            # A worker that has taken its first message may still be importing the function, before it asks.
            ready = len(queue) > 0 and not queue.paused
            return ready or any(held.unacked for held in connection.consumers(name) if held.pid in pool.pids)

        with pool:
            pool.start()
            try:
                claims.wait(idle, has_more)
            finally:
                # Ends the waits in `claim`. Workers wait for its answer, and the end of `pool` waits for the workers.
                claims.close()
    if claims.failure is not None:
        raise Refused(claims.failure)
