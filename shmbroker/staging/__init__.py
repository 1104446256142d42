# SPDX-License-Identifier: Apache-2.0
"""Batches that many processes write out of sight, and that are published exactly once, even if processes are killed.

>>> import shmbroker, shmbroker.staging
>>> with shmbroker.connect("doctest-staging") as connection:
...     out = connection.queue("out")
...     stage = shmbroker.staging.Stage(connection, "query")
...     with stage.attempt(batch=0, partition=0, attempt=0) as writer:  # in any process
...         writer.put(b"hello")
...     stage.publish(0, [writer.receipt], "out")  # where the winners are known
...     stage.publish(0, [writer.receipt], "out")
1
0
>>> shmbroker.Broker("doctest-staging").stop(purge=True)

A *publication* is all batches of one stream, or of the jobs that write to one queue; a :class:`Stage` gives it a name.
A batch has a number in a stream, or is a *job* with a UUID. An *attempt* is one try of a writer to write one partition
of a batch; it puts into a queue of the broker's own. Publishing takes the messages of one attempt at each partition to
the target. The *marker* of a publication is the only message of another such queue, and says which batches were
published. The process that holds the marker publishes, all others wait. A transaction that publishes a whole batch also
replaces the marker.

A batch of up to ``at_once`` messages and ``bytes_at_once`` bytes is published by one transaction: all of it, or
nothing. Its bodies exist twice while the transaction runs; long ones are read in place and copied once. A batch is
*begun* instead if it is larger, if its target cannot hold it in one step, or if there is no memory for the copies.
First the marker names the attempts that won. Then their messages are moved, which copies nothing. Then the marker says
that the batch is published. This is exactly once, but not one step: if the publisher is killed, the missing messages
come with the next call of ``publish`` for this batch, or for any later batch. An attempt at a begun batch is published
in parts, by separate transactions, instead of being moved, if one of its messages has a time to live or a delay, or if
the target drops new messages or limits their lives.

Options of messages are those of a put. Times to live and delays count from publishing. So no message expires while it
is staged, and a batch has the messages that its receipts state. ``timestamp`` is the time of publishing or, for moved
messages, of staging.

Death (after -> state, and which process repairs it):

 marker made for the first attempt -> nothing; the next attempt finds it.
 attempt's queue made, messages put -> the queue is left over. The next publish of this or a later batch, ``drop``, or
  ``expires`` removes it; the publish of another job does not.
 completed, but the receipt lost -> as in the line above: the queue is left over.
 marker's queue made, no marker put -> the next process that needs a marker puts one. First it waits until the exclusive
  queue that the dead process had as a lock (`names.founding_name`) is gone. From then on, all operations of the
  connection that owned this queue, such as the put of the marker, are carried out or undone.
 marker taken -> it is at its position again when its holder has been reaped; so are messages taken from the stage.
 in the transaction -> undone, or carried out, by the reaper (docs/adr/0012-commit.md): bodies, stage and marker change
  together.
 begun, some messages moved -> the marker says so; each message is in the stage or in the target (Queue.move). The next
  holder of the marker continues with the winners that the marker names, not with its own.
 all moved, the marker not replaced -> the next holder finds nothing left to move, and replaces it.
 published, attempts not dropped -> the next publish drops them, also if it has nothing to publish.

Late processes (an attempt or a publisher that continues although another one replaced it):

 an attempt that writes while another attempt of its batch is published -> its queue is gone: NotStaged, at its next
  put or its end
 an attempt that begins after its batch was published -> completes, and is never published (the number of the batch is
  not above the last one, or the batch is a job that the marker remembers); the next publish drops it
 an attempt at a job that was dropped -> its queue is gone: NotStaged, at its next put or its end
 an attempt at a batch of a stream that was dropped -> NotStaged if the drop deleted its queue; an attempt that begins
  after the drop can be published, as the batch may come again
 an attempt with the same numbers as one of an earlier run -> has a queue of its own; a receipt names one of the two,
  and only that one is published
 a publisher that was stopped while it held the marker -> others wait, up to their timeout; when it continues, it
  publishes, and their ``publish`` returns 0
 a publisher whose attempts lost, after the batch was published -> its ``publish`` returns 0
 a publisher with other attempts than those that were begun -> the begun ones are finished, its own are dropped
 a publisher of a batch that was dropped since -> NotStaged, nothing was published
"""

from shmbroker.staging.publication import Receipt
from shmbroker.staging.stage import AT_ONCE, Stage, StageInfo, stages
from shmbroker.staging.writer import Writer

__all__ = ["AT_ONCE", "Receipt", "Stage", "StageInfo", "Writer", "stages"]
