# SPDX-License-Identifier: Apache-2.0
"""The client in a Spark task: passes batches to a server, and its answers to Spark, in the order of the requests.

A killed task leaves nothing: its queue of answers ends with its consumer, and a server drops requests whose queue of
answers is gone. Waits are cut into slices, between which signals are handled.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import itertools
import queue as standard_queue
import time
from typing import TYPE_CHECKING, Self

import shmbroker
from shmbroker.spark.batches import Decoder, Encoded, Encoder
from shmbroker.spark.handover import protocol
from shmbroker.spark.handover.memory_share import PATIENCE_SECONDS, exclusive_turn
from shmbroker.spark.handover.server_watch import SLICE_SECONDS
from shmbroker.spark.handover.session import ClientSession
from shmbroker.spark.schema import Promised

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    import pyarrow as pa

    from shmbroker.spark.handover.protocol import Handover


@dataclasses.dataclass(slots=True)
class _Request:
    """A batch that was sent, and its answer, once that has arrived.

    The answer is ``message``, in shared memory, until ``copy`` has a copy of it in private memory.
    """

    batch: pa.RecordBatch
    size: int
    message: shmbroker.Message | None = None
    kind: str = ""
    copy: bytes | None = None

    def copy_out(self) -> None:
        if self.message is not None and self.copy is None:
            self.copy = bytes(self.message)
            self.message.ack()

    def done(self) -> None:
        if self.message is not None and self.copy is None:
            self.message.ack()


def hand_over(batches: Iterator[pa.RecordBatch], handover: Handover) -> Iterator[pa.RecordBatch]:
    """Passes the batches of a partition to the servers, and yields the answers. Runs in mapInArrow."""
    with Client(handover) as client:
        for batch in batches:
            yield from client.send(batch)
        yield from client.rest()


class Client:
    """The client of one partition: sends its batches to the servers, and collects the answers."""

    def __init__(self, handover: Handover) -> None:
        self._handover = handover
        self._numbers = itertools.count(1)
        self._pending: dict[int, _Request] = {}  # in the order of their numbers
        self._largest = 0
        self._encoder, self._decoder = Encoder(), Decoder()
        self._promised = Promised(handover.schema, handover.request_queue)
        self._opened: ClientSession | None = None

    @property
    def _session(self) -> ClientSession:
        if self._opened is None:
            self._opened = ClientSession(self._handover)
        return self._opened

    # ---- sending ----

    def send(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Sends a batch, in pieces if it is larger than `MemoryShare.most_in_one`; yields answers in between."""
        encoded = self._encoder.encoded([batch])
        count = min(max(1, batch.num_rows), -(-encoded.size // self._session.share.most_in_one))
        if count == 1:
            yield from self._request(batch, encoded)
            return
        rows = -(-batch.num_rows // count)
        for at in range(0, batch.num_rows, rows):
            piece = batch.slice(at, rows)
            yield from self._request(piece, self._encoder.encoded([piece]))

    def _request(self, batch: pa.RecordBatch, encoded: Encoded) -> Iterator[pa.RecordBatch]:
        """Yields older answers until the memory has room for one more request in flight; then sends the batch.

        If there is no room although nothing is in flight any more, sends the batch alone, and yields its answer.
        """
        while True:
            window = self._session.share.window(encoded.size, self._largest, self._handover.inflight)
            if len(self._pending) < window:
                with contextlib.suppress(standard_queue.Full):
                    self._send(batch, encoded, timeout=0)
                    return
            if not self._pending:
                yield from _each(self._alone(batch, encoded))
                return
            yield from self._oldest()

    def rest(self) -> Iterator[pa.RecordBatch]:
        """Yields the answers to all sent requests."""
        while self._pending:
            yield from self._oldest()

    def _send(self, batch: pa.RecordBatch, encoded: Encoded, timeout: float) -> int:
        number, session = next(self._numbers), self._session
        encoded.put(session.requests, protocol.request_key(number, session.answers.name), timeout)
        self._pending[number] = _Request(batch, encoded.size)
        return number

    # ---- answers ----

    def _oldest(self) -> Iterator[pa.RecordBatch]:
        """Yields the answer to the oldest request."""
        number, oldest = next(iter(self._pending.items()))
        self._await(oldest)
        held = [one.size for one in self._pending.values() if one.copy is None]
        if oldest.kind == protocol.NO_ROOM or not self._session.share.fits(held, self._largest):
            self._lighten()
        del self._pending[number]
        if oldest.kind == protocol.NO_ROOM:
            return _each(self._alone(oldest.batch, self._encoder.encoded([oldest.batch])))
        return self._given(oldest)

    def _given(self, request: _Request) -> Iterator[pa.RecordBatch]:
        yield from _each(self._batches(request))
        request.done()  # Spark has taken the batches; the slot is freed with the last Arrow object that refers to it

    def _batches(self, request: _Request) -> collections.deque[pa.RecordBatch]:
        """Returns the batches of an answer; raises if the answer is an error."""
        assert request.message is not None  # noqa: S101 - it was awaited
        body = request.message.body if request.copy is None else request.copy
        if request.kind:
            raise protocol.error_of(request.kind, bytes(body), self._handover.request_queue)
        found = self._decoder.batches(body)
        for batch in found:
            self._promised.check(batch)
        return collections.deque(found)

    def _lighten(self) -> None:
        """Waits for the answers to all requests in flight, and copies them, so that none stays in the broker."""
        for one in self._pending.values():
            self._await(one)
            one.copy_out()

    def _await(self, request: _Request) -> None:
        since = time.monotonic()
        while request.message is None:
            try:
                message = self._session.consumer.get(timeout=self._slice(since))
            except standard_queue.Empty:
                self._session.watch.look()
            else:
                self._arrived(message)

    def _slice(self, since: float) -> float:
        """Returns the seconds to wait next, for an answer or for room for a request; the wait began at ``since``.

        Raises:
            Timeout: the client has waited as long as the hand-over allows.
        """
        if self._handover.timeout is None:
            return SLICE_SECONDS
        left = since + self._handover.timeout - time.monotonic()
        if left <= 0:
            text = f"queue {self._handover.request_queue!r}: no answer within {self._handover.timeout} seconds"
            raise shmbroker.Timeout(text)
        return min(SLICE_SECONDS, left)

    def _arrived(self, message: shmbroker.Message) -> None:
        number, kind = protocol.read_answer(message.key)
        request = self._pending.get(number)
        if request is None or request.message is not None:
            message.ack()  # a second answer: one server died between answering and acknowledging
            return
        request.message, request.kind = message, kind
        self._largest = max(self._largest, len(message))

    # ---- alone ----

    def _alone(self, batch: pa.RecordBatch, encoded: Encoded) -> collections.deque[pa.RecordBatch]:
        """Sends one request while no other request of this client is in flight, and returns the batches of its answer.

        Meanwhile no other client of the broker may do the same: this one has the turn. The answer is copied, so that
        its shared memory is free before the turn ends.
        """
        with exclusive_turn(self._session.connection, functools.partial(self._look, time.monotonic())):
            until = time.monotonic() + PATIENCE_SECONDS
            while True:
                number = self._send_alone(batch, encoded, until)
                request = self._pending[number]
                self._await(request)
                request.copy_out()
                del self._pending[number]
                if request.kind != protocol.NO_ROOM or time.monotonic() > until:
                    return self._batches(request)
                time.sleep(SLICE_SECONDS)

    def _look(self, since: float) -> None:
        """Raises if there is no server, or if the wait, which began at ``since``, is longer than is allowed."""
        self._session.watch.look()
        self._slice(since)

    def _send_alone(self, batch: pa.RecordBatch, encoded: Encoded, until: float) -> int:
        since = time.monotonic()
        while True:
            try:
                return self._send(batch, encoded, timeout=self._slice(since))
            except standard_queue.Full as error:  # try again: a queue at its limit gets room later
                memory = isinstance(error, shmbroker.OutOfMemory)
                if isinstance(error, shmbroker.NeverFits) or (memory and time.monotonic() > until):
                    raise
                self._session.watch.look()

    # ---- life ----

    def close(self) -> None:
        """Ends the queue of answers."""
        session, self._opened = self._opened, None
        if session is not None:
            unanswered = sum(one.message is None for one in self._pending.values())
            self._pending.clear()
            session.close(unanswered)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _each(batches: collections.deque[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yields batches one by one and keeps none, so that Spark frees each one after use."""
    while batches:
        yield batches.popleft()
