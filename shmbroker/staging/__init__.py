# SPDX-License-Identifier: Apache-2.0
"""Batches that are written by many processes, where nobody sees them, and published once, whoever is killed.

>>> import shmbroker, shmbroker.staging
>>> with shmbroker.connect("doctest-staging") as connection:
...     out = connection.queue("out")
...     stage = shmbroker.staging.Stage(connection, "query")
...     with stage.attempt(batch=0, partition=0, attempt=0) as writer:  # in any process
...         writer.put(b"hello")
...     stage.publish(0, [writer.receipt], "out")  # where it is known who won
...     stage.publish(0, [writer.receipt], "out")
1
0
>>> shmbroker.Broker("doctest-staging").stop(purge=True)

What: an *attempt* is a queue of the broker's own into which one writer puts; publishing takes the messages of one
attempt at each partition to the target. The *marker* of a publication is the one message of another such queue. It
says which batches were published; who holds it publishes, all others wait. A transaction that publishes replaces it.

A batch of up to ``at_once`` messages is published by one transaction: all of it, or nothing. Bodies are there twice
while it runs; long ones are read in place and copied once. A larger one, or one that its target has no room for at
once, is *begun*: the marker names the attempts that won, then their messages are moved, which copies nothing, and
then the marker says that the batch is published. It is exactly once, but not all at once: if its publisher is killed,
what is missing comes with the next call of ``publish`` for it, or for any later batch. What has a time to live or a
delay, or goes to a queue that drops or limits lives, is published by transactions of its own instead of being moved.

Options of messages are those of a put. Times to live and delays count from publishing, so that nothing expires while
it is staged, and a batch has what its receipts say. ``timestamp`` is the time of publishing, or, of what is moved, of
staging.

Death (after -> state, and who repairs it):

 marker made for the first attempt -> nothing; the next one finds it.
 attempt's queue made, messages put -> left over: the next publish of a batch that is not below, ``drop``, or
  ``expires``.
 completed, the receipt lost -> the same.
 marker's queue made, no marker put -> whoever needs it next puts one: under an exclusive queue of the one who founds,
  which goes when all that he did was carried out or undone.
 marker taken -> it is in its place again when he has been reaped; so are messages that were taken from the stage.
 in the transaction -> undone, or carried out, by the reaper (decision 0012): bodies, stage and marker are one.
 begun, some messages moved -> the marker says so; each message is in the stage or in the target (Queue.move). Whoever
  gets the marker next goes on with the winners it names: not with those of his own.
 all moved, the marker not replaced -> he finds nothing left to move, and replaces it.
 published, attempts not dropped -> the next publish drops them, also one that has nothing to publish.

Who is late (a zombie: an attempt or a publisher that lives on although another one took its place):

 an attempt that writes while its batch is published by another one -> its queue is gone: NotStaged, at its next put
  or its end
 an attempt that begins after that -> completes, is never published (the batch is not above the last, or a job that
  is known), dropped by the next publish
 an attempt at a job that was dropped -> NotStaged at its end, and its queue is gone; of the batch of a stream, which
  may come again -> as above
 an attempt with the numbers of another one, of an earlier run -> its own queue: only the one of the receipt is
  published
 a publisher that was stopped while it held the marker -> others wait, up to their timeout; going on, it publishes,
  they get 0
 a publisher with attempts that lost, after the batch was published -> 0
 a publisher with others than those that were begun -> those that were begun are finished, its own are dropped
 a publisher of a batch that was dropped meanwhile -> NotStaged, nothing was published
"""

from shmbroker.staging.stage import AT_ONCE, Stage, StageInfo, stages
from shmbroker.staging.state import Receipt
from shmbroker.staging.writer import Writer

__all__ = ["AT_ONCE", "Receipt", "Stage", "StageInfo", "Writer", "stages"]
