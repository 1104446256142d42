# SPDX-License-Identifier: Apache-2.0
"""The state in a marker: which batches of a publication were published, and which one is being moved."""

from __future__ import annotations

import dataclasses
import json
import uuid

from shmbroker.staging.names import Batch, batch_of

JOBS = 256
"""The number of jobs to remember: the last published ones, and as many of the last dropped ones."""


@dataclasses.dataclass(frozen=True, slots=True)
class Receipt:
    """The receipt of a completed attempt: any process that has it can publish the attempt. A receipt can be pickled.

    The attempt was written under the numbers ``batch``, ``partition`` and ``attempt``. ``token`` distinguishes the
    attempt from others with the same numbers, which another run of the program may make. The attempt has ``count``
    messages, whose bodies have ``bytes`` bytes together. ``timed``: a message has a time to live, or a delay.
    """

    batch: Batch
    partition: int
    attempt: int
    count: int
    bytes: int
    token: str
    timed: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Begun:
    """A batch to publish, its target and its winners.

    In a marker it is the batch that has begun to move: its remaining messages are in the queues of its winners.

    Attributes:
        batch: the batch.
        to: the target.
        receipts: the receipts of its winners, in the order of publishing.
    """

    batch: Batch
    to: str
    receipts: tuple[Receipt, ...]

    @property
    def count(self) -> int:
        """The number of its messages."""
        return sum(receipt.count for receipt in self.receipts)

    @property
    def bytes(self) -> int:
        """The total bytes of its bodies."""
        return sum(receipt.bytes for receipt in self.receipts)


@dataclasses.dataclass(frozen=True, slots=True)
class PublicationState:
    """The state of a publication.

    Attributes:
        last: the number of the last published batch; ``None``: none was published.
        jobs: the last published jobs.
        dropped: the last dropped jobs. Dropped batches with numbers are not listed: they may be published later.
        begun: the batch that is being moved, and so may be published in part; ``None``: there is none.
        target: the birth of the queue that this state is for; 0: for any queue.
    """

    last: int | None = None
    jobs: tuple[uuid.UUID, ...] = ()
    dropped: tuple[uuid.UUID, ...] = ()
    begun: Begun | None = None
    target: int = 0

    def of(self, target: int) -> PublicationState:
        """Returns this state if it is for the target with this birth, otherwise an empty state for the target."""
        return self if self.target == target else PublicationState(target=target)

    def has(self, batch: Batch) -> bool:
        """Whether a batch was published."""
        if isinstance(batch, uuid.UUID):
            return batch in self.jobs
        return self.last is not None and batch <= self.last

    def is_over(self, batch: Batch) -> bool:
        """Whether messages staged for a batch are no longer needed."""
        return self.has(batch) or batch in self.dropped

    def beginning(self, begun: Begun) -> PublicationState:
        """Returns the state after a batch has begun to move."""
        return dataclasses.replace(self, begun=begun)

    def published(self, batch: Batch) -> PublicationState:
        """Returns the state after a batch is published."""
        if isinstance(batch, uuid.UUID):
            return dataclasses.replace(self, jobs=(*self.jobs, batch)[-JOBS:], begun=None)
        return dataclasses.replace(self, last=batch, begun=None)

    def without(self, job: uuid.UUID) -> PublicationState:
        """Returns the state after a job is dropped."""
        return dataclasses.replace(self, dropped=(*self.dropped, job)[-JOBS:])

    def encode(self) -> bytes:
        """Encodes the state as the body of a marker."""
        begun = self.begun and {
            "batch": str(self.begun.batch),
            "to": self.begun.to,
            "receipts": [dataclasses.astuple(one)[1:] for one in self.begun.receipts],
        }
        jobs, dropped = ([str(job) for job in some] for some in (self.jobs, self.dropped))
        said = {"last": self.last, "jobs": jobs, "dropped": dropped, "begun": begun, "target": self.target}
        return json.dumps(said).encode()


def decode(body: bytes) -> PublicationState:
    """Decodes the state in a marker."""
    given = json.loads(body)
    begun = given["begun"]
    if begun is not None:
        batch = batch_of(begun["batch"])
        begun = Begun(batch, begun["to"], tuple(Receipt(batch, *fields) for fields in begun["receipts"]))
    jobs, dropped = (tuple(map(uuid.UUID, given[kind])) for kind in ("jobs", "dropped"))
    return PublicationState(given["last"], jobs, dropped, begun, given["target"])
