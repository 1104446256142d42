# SPDX-License-Identifier: Apache-2.0
"""What a marker says: which batches of a publication were published, and of which one that has begun."""

from __future__ import annotations

import dataclasses
import json
import uuid

from shmbroker.staging.names import Batch, batch_of

JOBS = 256
"""So many jobs are remembered that were published, the last ones; and so many that were dropped."""


@dataclasses.dataclass(frozen=True, slots=True)
class Receipt:
    """What a completed attempt is published by. It pickles.

    ``batch``, ``partition`` and ``attempt`` are those that it was written under, ``token`` tells it apart from attempts
    of the same numbers, which another run of the program may make. ``count`` messages were written, whose bodies are
    together ``bytes`` long; ``timed``: one of them has a time to live, or a delay.
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
    """A batch that is being moved to its target. What is left of it is in the queues of its winners.

    Attributes:
        batch: which.
        to: the target.
        receipts: of its winners, in the order in which they are published.
    """

    batch: Batch
    to: str
    receipts: tuple[Receipt, ...]

    @property
    def count(self) -> int:
        """How many messages it has."""
        return sum(receipt.count for receipt in self.receipts)

    @property
    def bytes(self) -> int:
        """How long its bodies are together."""
        return sum(receipt.bytes for receipt in self.receipts)


@dataclasses.dataclass(frozen=True, slots=True)
class State:
    """Of a publication.

    Attributes:
        last: the number of the last batch that was published; ``None``: none was.
        jobs: the last jobs that were published.
        dropped: the last jobs that were dropped. A batch with a number may come again, a job does not.
        begun: what may be published in part.
        target: the incarnation of the queue that all this holds for; 0: for any queue.
    """

    last: int | None = None
    jobs: tuple[uuid.UUID, ...] = ()
    dropped: tuple[uuid.UUID, ...] = ()
    begun: Begun | None = None
    target: int = 0

    def of(self, target: int) -> State:
        """What holds for the queue of that incarnation: nothing, if it is another one than before."""
        return self if self.target == target else State(target=target)

    def has(self, batch: Batch) -> bool:
        """Was that batch published?"""
        if isinstance(batch, uuid.UUID):
            return batch in self.jobs
        return self.last is not None and batch <= self.last

    def is_over(self, batch: Batch) -> bool:
        """Is nothing wanted any more that is staged for that batch?"""
        return self.has(batch) or batch in self.dropped

    def beginning(self, begun: Begun) -> State:
        """From when a batch is being moved."""
        return dataclasses.replace(self, begun=begun)

    def published(self, batch: Batch) -> State:
        """From when a batch is published."""
        if isinstance(batch, uuid.UUID):
            return dataclasses.replace(self, jobs=(*self.jobs, batch)[-JOBS:], begun=None)
        return dataclasses.replace(self, last=batch, begun=None)

    def without(self, job: uuid.UUID) -> State:
        """From when a job is dropped."""
        return dataclasses.replace(self, dropped=(*self.dropped, job)[-JOBS:])

    def encode(self) -> bytes:
        """As the body of a marker."""
        begun = self.begun and {
            "batch": str(self.begun.batch),
            "to": self.begun.to,
            "receipts": [dataclasses.astuple(one)[1:] for one in self.begun.receipts],
        }
        jobs, dropped = ([str(job) for job in some] for some in (self.jobs, self.dropped))
        said = {"last": self.last, "jobs": jobs, "dropped": dropped, "begun": begun, "target": self.target}
        return json.dumps(said).encode()


def decode(body: bytes) -> State:
    """The state that a marker says."""
    given = json.loads(body)
    begun = given["begun"]
    if begun is not None:
        batch = batch_of(begun["batch"])
        begun = Begun(batch, begun["to"], tuple(Receipt(batch, *fields) for fields in begun["receipts"]))
    jobs, dropped = (tuple(map(uuid.UUID, given[kind])) for kind in ("jobs", "dropped"))
    return State(given["last"], jobs, dropped, begun, given["target"])
