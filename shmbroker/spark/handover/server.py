# SPDX-License-Identifier: Apache-2.0
"""The long-lived process: takes batches from a queue, passes them to a function, and sends its results back.

It needs pyarrow and no Spark. A server acknowledges a request after it has put the answer into the task's queue, so
the request of a dead server goes to another server. Prefetch is 1, so that a server's death implicates exactly the
request it was processing.
"""

from __future__ import annotations

import contextlib
import logging
import queue as standard_queue
import signal
import socket
import threading
import traceback
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import shmbroker
from shmbroker.spark.attachment import broker_name
from shmbroker.spark.batches import Decoder, Encoded, Encoder
from shmbroker.spark.handover import protocol
from shmbroker.spark.handover.unserved import ROOM_SECONDS, set_aside

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_log = logging.getLogger(__name__)
MOST_DEATHS = 3
_LOOK_SECONDS = 0.25
_MOST_TEXT = 2000
_HANDLES = 64


def serve(
    queue: str,
    function: Callable[[pa.RecordBatch], pa.RecordBatch | pa.Table | Iterable[pa.RecordBatch] | None],
    *,
    broker: str | None = None,
) -> None:
    """Answers the requests of :func:`exchange` until SIGTERM, which lets it finish the current one.

    It handles SIGTERM only in the main thread. Several processes may serve one queue: each request goes to one of them,
    and to another one if that dies. After three such deaths the task that sent the request gets an error instead. If
    the function raises, the task raises an error with the text of that exception; the server continues. A message that
    is no request stays unchanged: it is moved to the queue "unserved." followed by the queue's name, and a warning is
    logged.

    Args:
        queue: the name of the queue of requests; made if it does not exist.
        function: gets a read-only ``pyarrow.RecordBatch``, in shared memory if the request has more than 4 KiB; the
            memory is not freed before the last reference to the batch is gone. Returns a batch, a table, or some
            batches of one schema (a list, a generator); ``None`` = no rows.
        broker: the name of the broker; else ``SHMBROKER_BROKER``, else "default". Made if it does not exist.

    Raises:
        ConnectionClosedByBroker: the broker is purged.
        NotFound: the queue is deleted.
        queue.Full: the "unserved." queue has no room for a message that is no request, or (``OutOfMemory``) there
            is no memory; the message stays where it was.
    """
    if not callable(function):
        msg = f"function={function!r}: a callable is needed"
        raise TypeError(msg)
    with (
        _ending() as ended,
        shmbroker.connect(broker_name(broker), client_name=f"serve {queue}") as connection,
        connection.queue(queue).consume(prefetch=1) as consumer,
    ):
        server = _Server(connection, function)
        while not ended:
            with contextlib.suppress(standard_queue.Empty):
                server.answer(consumer.get(timeout=_LOOK_SECONDS))


@contextlib.contextmanager
def _ending() -> Iterator[list[int]]:
    """Yields a list that gets an element at a SIGTERM during the block.

    The list stays empty outside the main thread, which gets the signals. It is no ``threading.Event``: a second signal
    may interrupt the handler, and would wait for ever for the lock of the event, which the first call holds.
    """
    ended: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield ended
        return
    before = signal.signal(signal.SIGTERM, lambda number, _: ended.append(number))
    try:
        yield ended
    finally:
        signal.signal(signal.SIGTERM, before)


class _Refused(Exception):  # noqa: N818 - an error of the requesting task, not of the server
    """Raised to answer a request with an error."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(kind, text)
        self.kind, self.text = kind, text


class _Server:
    """Answers requests, one after the other."""

    def __init__(self, connection: shmbroker.Connection, function: Callable[[pa.RecordBatch], Any]) -> None:
        self._connection, self._function = connection, function
        self._encoder, self._decoder = Encoder(), Decoder()
        self._targets: dict[str, shmbroker.Queue] = {}

    def answer(self, request: shmbroker.Message) -> None:
        """Answers and acknowledges a request; drops it if its task is gone; sets aside a message that is no request."""
        asked = protocol.read_request(request.key)
        if asked is None:
            set_aside(self._connection, request)
            return
        number, answers = asked
        with request, contextlib.suppress(shmbroker.NotFound):  # the task is gone
            target = self._target(answers)
            try:
                self._put(target, number, self._outcome(request))
            except _Refused as refused:
                self._tell(target, protocol.answer_key(number, refused.kind), refused.text)

    def _target(self, name: str) -> shmbroker.Queue:
        """Returns the queue for an answer."""
        found = self._targets.pop(name, None)
        if found is None:
            found = self._connection.queue(name, passive=True)
        try:
            len(found)
        except shmbroker.NotFound:
            found.close()
            raise
        self._targets[name] = found  # keeps the last used queue last
        if len(self._targets) > _HANDLES:
            self._targets.pop(next(iter(self._targets))).close()
        return found

    def _outcome(self, request: shmbroker.Message) -> Encoded:
        """Calls the function for each batch of a request, and encodes the results.

        Raises:
            _Refused: three servers died at the request, it cannot be read, or the function or the encoding failed.
        """
        if request.delivery_count > MOST_DEATHS:
            text = f"{request.delivery_count - 1} servers died, or were killed, while they worked on this request"
            raise _Refused(protocol.REFUSED, f"ACCESS_REFUSED - {text}")
        try:
            batches = self._decoder.batches(request.body)
        except pa.ArrowException as error:
            raise _Refused(protocol.MALFORMED, f"a request cannot be read: {error}"[:_MOST_TEXT]) from None
        try:
            return self._encoder.encoded([made for batch in batches for made in _batches_of(self._function(batch))])
        except Exception as error:  # noqa: BLE001 - any error is the requesting task's
            _log.warning("%s of queue %r: %s", type(error).__name__, request.queue, _said(error), exc_info=True)
            raise _Refused(protocol.FAILED, _text_of(error)) from None

    def _put(self, target: shmbroker.Queue, number: str, answer: Encoded) -> None:
        try:
            answer.put(target, protocol.answer_key(number), ROOM_SECONDS)
        except (standard_queue.Full, ValueError) as error:
            never = isinstance(error, (shmbroker.NeverFits, ValueError))  # the answer is too large for any wait to help
            raise _Refused(
                protocol.TOO_LARGE if never else protocol.NO_ROOM, f"the server cannot put its answer: {error}"
            ) from None

    def _tell(self, target: shmbroker.Queue, key: str, text: str) -> None:
        """Sends an error text as the answer; tries again until the queue and the memory have room for it."""
        while True:
            with contextlib.suppress(standard_queue.Full):
                target.put(text.encode(errors="backslashreplace"), timeout=ROOM_SECONDS, key=key)
                return


def _batches_of(made: object) -> Iterator[pa.RecordBatch]:
    """Yields the result of a function as batches."""
    if made is None:
        return
    if isinstance(made, pa.RecordBatch):
        yield made
    elif isinstance(made, pa.Table):
        yield from made.to_batches()
    else:
        for batch in made:  # type: ignore[attr-defined] # raises TypeError if the function returned no iterable
            if not isinstance(batch, pa.RecordBatch):
                allowed = "None, a pyarrow.Table, a pyarrow.RecordBatch or an iterable of these batches is allowed"
                msg = f"the function returned an object of type {type(batch).__name__}: {allowed}"
                raise TypeError(msg)
            yield batch


def _text_of(error: Exception) -> str:
    """Describes an exception, its place, and the host."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({frames[-1].filename}:{frames[-1].lineno}" if frames else " ("
    return f"{type(error).__name__}: {_said(error)}"[:_MOST_TEXT] + f"{where}, host {socket.gethostname()})"


def _said(error: Exception) -> str:
    try:
        return str(error)
    except Exception as other:  # noqa: BLE001 - raised by the exception of the function
        return f"it has no text, since {type(other).__name__} is raised for it"
