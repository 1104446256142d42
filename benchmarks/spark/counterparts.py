# SPDX-License-Identifier: Apache-2.0
"""Data sources of Spark without a broker: one yields batches that were built before, one counts what it is given."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)

from shmbroker.spark import rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.types import StructType


@functools.cache
def prebuilt(columns: tuple[str, ...], count: int, size: int) -> pa.RecordBatch:
    """Rows such as those of messages of one size, without key and headers."""
    values = {
        "sequence": pa.array(range(count), pa.int64()),
        "queue": pa.repeat(pa.scalar("bench"), count),
        "key": pa.nulls(count, pa.binary()),
        "headers": pa.array([[]] * count, rows.COLUMNS["headers"].arrow),
        "timestamp": pa.array([1_000_000] * count, pa.timestamp("us", tz="UTC")),
        "redelivered": pa.array([False] * count),
        "value": pa.array([bytes(size)] * count, pa.binary()),
    }
    schema = pa.schema([(name, rows.COLUMNS[name].arrow) for name in columns])
    return pa.RecordBatch.from_arrays([values[name] for name in columns], schema=schema)


class Prebuilt(DataSource):
    """Yields one batch again and again. Options: columns, rows (in all), together (in a batch), size (of a value)."""

    @classmethod
    def name(cls) -> str:
        """As in `.format(...)`."""
        return "prebuilt"

    def schema(self) -> StructType:
        """Of the columns."""
        return rows.schema_of(self.options["columns"].split(","))

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
        """Reads."""
        return PrebuiltReader(*(self.options[name] for name in ("columns", "rows", "together", "size")))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802
        """Reads for ever."""
        return PrebuiltStream(*(self.options[name] for name in ("columns", "rows", "together", "size")))


class PrebuiltReader(DataSourceReader):
    """In one partition, as a queue is read."""

    def __init__(self, columns: str, count: str, together: str, size: str) -> None:
        self._columns, self._count, self._together, self._size = columns, int(count), int(together), int(size)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        """Builds the batch in the first task of a worker only."""
        batch = prebuilt(tuple(self._columns.split(",")), self._together, self._size)
        for at in range(0, self._count, self._together):
            yield batch.slice(0, min(self._together, self._count - at))


class PrebuiltStream(DataSourceStreamReader):
    """The same batch in each micro-batch."""

    def __init__(self, *given: str) -> None:
        self._reader, self._number = PrebuiltReader(*given), 0

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        """A number."""
        return {"number": 0}

    def latestOffset(self, start: dict[str, int] | None = None, limit: object = None) -> dict[str, int]:  # noqa: ARG002, N802
        """The next one."""
        self._number += 1
        return {"number": self._number}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:  # noqa: ARG002
        """One."""
        return [InputPartition(end["number"])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Its batch."""
        return self._reader.read(partition)


@dataclasses.dataclass
class Counted(WriterCommitMessage):
    """How much a task was given."""

    rows: int
    size: int


class Counting(DataSource):
    """Counts."""

    @classmethod
    def name(cls) -> str:
        """As in `.format(...)`."""
        return "counting"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:  # noqa: ARG002, FBT001
        """Counts."""
        return CountingWriter()


class CountingWriter(DataSourceArrowWriter):
    """Looks at each batch, and at no row."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Counted:
        """In a task."""
        found = Counted(0, 0)
        for batch in iterator:
            found.rows += batch.num_rows
            found.size += batch.nbytes
        return found

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """In the driver."""
