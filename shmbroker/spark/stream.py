# SPDX-License-Identifier: Apache-2.0
"""`readStream.format("shmbroker")`: each micro-batch is leases of a consumer group, so a replay gives the same rows.

An offset is a broker, a group, the number of a lease, and a count of losses (see `Offset`). Offsets are in Spark's
checkpoint, and leases in the broker, even if processes die. The leases of a durable queue are in the store of the
broker, if it has one. Each is on the disk before Spark knows its number, so it is there after a loss of the machine.

When Spark asks for the next offset, it has finished the batches before that. So ``latestOffset(start)`` acknowledges
the leases up to ``start``. A later ``commit`` acknowledges only leases that ``latestOffset`` has not acknowledged. If a
query stops before either call, the leases of its last batch stay leased until the query is restarted.

Spark makes readers in several processes. The reader whose ``latestOffset`` is called attaches the group; all others
only read its state.
"""

from __future__ import annotations

import dataclasses
import logging
import uuid
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

import shmbroker
from shmbroker.leasing.lasting import store_of
from shmbroker.leasing.room import BYTES_A_MESSAGE, scarce_bytes
from shmbroker.spark.attachment import broker_name, connection_to
from shmbroker.spark.broker_identity import BrokerIdentity
from shmbroker.spark.payloads import Leased

try:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
except ImportError:  # Spark before 4.2: trigger availableNow reads one batch from a Python source

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """A stub for the missing class: Spark before 4.2 never asks for it."""


if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from shmbroker.spark.options import StreamOptions

ROWS_OF_A_PART = 100_000
NOT_NOTED = -1
"""In an offset in place of a lease's number: the group's name is generated, and may not be in the checkpoint yet."""
_log = logging.getLogger("shmbroker")


@dataclasses.dataclass(frozen=True)
class Offset:
    """The position of a stream.

    Attributes:
        broker: the broker or its store, as :meth:`BrokerIdentity.identity`; ``lease`` means nothing to another one.
        group: the consumer group.
        lease: the number of the last lease; 0 = none; or NOT_NOTED.
        losses: how often lost leases were skipped. After each loss the numbers of leases may begin again.
    """

    broker: str
    group: str
    lease: int
    losses: int = 0

    @classmethod
    def read(cls, given: dict[str, Any]) -> Offset:
        """Decodes an offset of a checkpoint.

        Raises:
            ValueError: the value is no offset of this source.
        """
        try:
            return cls(str(given["broker"]), str(given["group"]), int(given["lease"]), int(given["losses"]))
        except (KeyError, TypeError, ValueError):
            msg = f"offset {given!r}: broker, group, lease and losses are needed; another source may have made it"
            raise ValueError(msg) from None

    def written(self) -> dict[str, Any]:
        """Encodes the offset for the checkpoint."""
        return dataclasses.asdict(self)


class Part(InputPartition):
    """A range of messages of a lease."""

    def __init__(self, broker_identity: BrokerIdentity, group: str, lease: int, start: int, stop: int) -> None:
        super().__init__((group, lease, start, stop))
        self.broker_identity, self.group, self.lease, self.start, self.stop = broker_identity, group, lease, start, stop


class LeaseReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a queue lease by lease."""

    def __init__(self, options: StreamOptions) -> None:
        self._options = options
        self._first: Offset | None = None
        self._last: Offset | None = None
        self._group: shmbroker.Group | None = None
        self._broker_identity: BrokerIdentity | None = None
        self._identity = ""
        self._untold = False  # True: Spark did not pass the offset of a restarted query
        self._left: int | None = None  # with the trigger availableNow: how many messages the query may still lease

    # ---- in the process that plans micro-batches ----

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name, as below
        """Returns the offset where a new query begins: the last acknowledged lease of a named group, else NOT_NOTED."""
        if self._first is None:
            name, lease = self._options.group, NOT_NOTED
            if name is None:
                name = f"spark-{uuid.uuid4().hex}"
            else:
                lease = shmbroker.Group(self._connection(), self._options.queue, name).acked
            self._first = Offset(self._leases_in(), name, lease)
        return self._first.written()

    def latestOffset(self, start: dict[str, Any] | None = None, limit: object = None) -> dict[str, Any]:  # noqa: ARG002, N802
        """Acknowledges finished leases, and leases ready messages.

        The first batch of a group with a generated name is empty: it brings the name into the checkpoint. Otherwise a
        driver that restarts after being killed would not know the group of its leases.
        """
        given = self._last or self._first if start is None else Offset.read(start)
        if given is None:
            return self._next_of_group()
        if given.lease == NOT_NOTED:
            self._last = dataclasses.replace(given, lease=0)
            return self._last.written()
        group = self._attached(given.group)
        offset = self._found_here(given, group)
        if offset.lease > group.acked:
            group.ack(offset.lease)
        known = group.leased
        if self._left is not None and self._left <= 0 and offset.lease >= known:
            return given.written()
        number = self._leased(group, offset.lease)
        if number == offset.lease:
            return given.written()
        if self._left is not None and number > known:
            self._left -= group.size(number)
        self._last = dataclasses.replace(offset, lease=number)
        return self._last.written()

    def _leased(self, group: shmbroker.Group, after: int) -> int:
        """Returns the number of the lease after lease ``after``; ``after`` itself if no message is ready.

        If that lease does not exist yet, it is made, within the limits of the options. Where memory is scarce, or the
        queue may be larger than the memory, the new lease gets fewer messages: Spark repeats a failed batch unchanged,
        so lack of memory would fail it each time.
        """
        rows, size = self._options.max_rows, self._options.max_bytes
        if self._left is not None:
            # If none is left, `latestOffset` asks only for a lease that exists: then this limit has no effect.
            rows = max(1, min(self._left, rows or self._left))
        connection = self._connection()
        stored = store_of(connection.queue(self._options.queue, passive=True)) != 0
        scarce = scarce_bytes(connection, stored=stored)
        if scarce is not None:
            most = max(1, scarce // BYTES_A_MESSAGE)
            rows, size = min(rows or most, most), min(size or scarce, scarce)
        return group.lease(after, max_messages=rows, max_bytes=size)

    def _next_of_group(self) -> dict[str, Any]:
        """Continues after the last lease of the group: before Spark 4.2, a restarted query does not pass its offset.

        It is not known whether the checkpoint already has that lease, nor whether Spark has finished it. So this
        acknowledges nothing, and makes the next lease if messages are ready. Spark then reads the leases after the
        last one in its checkpoint, up to the last one of the group: it skips none, and repeats none.
        """
        if self._options.group is None:
            msg = "option group is missing: before 4.2, Spark does not tell a source where its query was"
            raise ValueError(msg)
        self._untold = True
        group = self._attached(self._options.group)
        number = self._leased(group, group.leased)
        self._last = Offset(self._leases_in(), group.name, number)
        return self._last.written()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Limits the query to the messages that are ready now, or were about to be leased when a driver was killed."""
        self._left = len(self._connection().queue(self._options.queue, passive=True))

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Returns the last offset, how many messages are ready and how many leases unacknowledged; ``None``: no offset.

        Spark shows this in ``query.lastProgress``.
        """
        if self._group is None or self._last is None:
            return None
        ready = len(self._connection().queue(self._options.queue, passive=True))
        return self._last.written() | {"ready": ready, "leased": self._group.leased - self._group.acked}

    def commit(self, end: dict[str, Any]) -> None:
        """Acknowledges the leases of a finished batch; mostly, ``latestOffset`` has done so already."""
        offset, last = Offset.read(end), self._last
        known = last is not None and (offset.broker, offset.losses) == (last.broker, last.losses)
        if known and self._group is not None and offset.lease > self._group.acked:
            self._group.ack(offset.lease)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Returns the parts of the leases after ``start``, up to ``end``; a restarted query may ask for them again."""
        first, last = Offset.read(start), Offset.read(end)
        after = max(0, first.lease) if (first.broker, first.losses) == (last.broker, last.losses) else 0
        group = self._group
        if group is None or group.name != last.group:
            group = shmbroker.Group(self._connection(), self._options.queue, last.group)
        parts: list[InputPartition] = []
        if self._untold and first.broker != last.broker:
            self._lost(self._another_broker(first))
        for number in range(after + 1, last.lease + 1):
            try:
                if last.broker != self._leases_in():
                    raise self._another_broker(last)
                parts += self._parts(last.group, number, group.size(number))
            except shmbroker.NotFound as lost:
                self._lost(lost)
        return parts or [Part(self._here(), last.group, last.lease, 0, 0)]

    def _parts(self, group: str, number: int, size: int) -> list[InputPartition]:
        count = min(size, max(self._options.min_parts, -(-size // ROWS_OF_A_PART)))
        bounds = [size * at // count for at in range(count + 1)]
        return [
            Part(self._here(), group, number, bounds[at], bounds[at + 1])
            for at in range(count)
        ]  # fmt: skip

    def stop(self) -> None:
        """Does nothing: leased messages stay leased, for a restart. Spark does not always call this."""

    # ---- in the workers ----

    def read(self, partition: Part) -> Iterator[pa.RecordBatch]:
        """Reads the messages of a part; changes nothing."""
        if partition.start == partition.stop:
            return iter(())
        connection, options = partition.broker_identity.connection(), self._options
        part = Leased(options.queue, partition.group, partition.lease, partition.start, partition.stop)
        return options.payload.leased(connection, part, partition.broker_identity, options.columns)

    # ---- tools ----

    def _connection(self) -> shmbroker.Connection:
        return connection_to(broker_name(self._options.broker))

    def _here(self) -> BrokerIdentity:
        if self._broker_identity is None:
            self._broker_identity = BrokerIdentity.of(self._connection())
        return self._broker_identity

    def _leases_in(self) -> str:
        if not self._identity:
            queue = self._connection().queue(self._options.queue, passive=True)
            self._identity = self._here().identity(queue)
        return self._identity

    def _attached(self, name: str) -> shmbroker.Group:
        if self._group is None or self._group.name != name:
            self._group = shmbroker.Group(self._connection(), self._options.queue, name)
            self._group.attach()
            if self._left is not None:
                self._left += self._group.begun
        return self._group

    def _found_here(self, offset: Offset, group: shmbroker.Group) -> Offset:
        """Returns the offset if its leases are leases of this broker and group.

        If they are not, the leases are lost. If the query may lose data, the result then is the offset of the last
        acknowledged lease of the group, with one more loss.

        Raises:
            LeaseNotFound: the leases are lost, and the option ``failOnDataLoss`` is set.
        """
        if offset.broker != self._leases_in():
            self._lost(self._another_broker(offset))
        elif offset.lease > group.leased:
            text = f"NOT_FOUND - group '{group.name}' was released: it has {group.leased} leases, not {offset.lease}"
            self._lost(shmbroker.LeaseNotFound(404, text))
        else:
            return offset
        return Offset(self._leases_in(), group.name, group.acked, offset.losses + 1)

    def _another_broker(self, offset: Offset) -> shmbroker.LeaseNotFound:
        text = f"NOT_FOUND - the checkpoint is of broker {offset.broker}, this one is {self._leases_in()}"
        return shmbroker.LeaseNotFound(404, text)

    def _lost(self, error: shmbroker.NotFound) -> None:
        if self._options.fail_on_data_loss:
            raise error
        _log.warning("data loss: %s", error)
