# SPDX-License-Identifier: Apache-2.0
"""Consumer groups: a leased message stays leased until it is acknowledged, even if any process dies.

A group takes messages of a queue in numbered leases. A lease is a queue of the broker's own into which messages were
moved. Reading a lease changes nothing, and gives the same messages each time. Acknowledging a lease deletes its queue.
The state of the group and its user are in a :mod:`register <shmbroker._system_queues.register>`, the queue
``amq.group.<name>``.

A user *attaches* the group: it writes a version of the register with its own token. Every other change replaces the
version that the user saw last. So no change of an earlier user counts any more, wherever that user was stopped: that
user is *fenced*.

A user moves messages into a queue that only this user fills, ``amq.lease.<name>.<number>.<token>``. The register names
this queue before the first message is moved there. Then a version of the register makes the queue a lease, which is not
filled any more. A user that was stopped during a move, and continues after another user took over, still moves messages
into its own queue. For other users that queue is a *stray*: its messages are leased before those of the source queue. A
stray is deleted when it is empty and every user that might move messages into or out of it is gone.

Messages with a time to live do not expire while they are leased; expired messages are not leased.

If the broker has a store and the queue is durable, so are the register and the queues of leases. Attaching, leasing,
acknowledging and the first step of a release return when they are on the disk. Before the first message is moved into a
queue, the register on the disk names that queue. A message that is moved is on the disk in one of the two queues (I125
of ``sb_turns.h``). After the loss of the memory and a start from the store, a group is as after a kill of its user at
some step below. The token of a user names the memory, so users of before count as gone. A group stays durable, or not,
as the queue was when the first user attached the group.

Kills, the state after each, and which user continues:

- attach: queue to fill made -> an unregistered empty queue, shown by ``shmbroker queue list --all``. Version written ->
  attached by the dead user; the next user that attaches takes over, and has the dead user's queue as a stray.
- lease: some messages moved -> they are in the queue being filled, the next user's stray. Killed during a move -> the
  core finishes or undoes it. Queue for the next lease made -> as with attach. Version written -> the filled queue is a
  lease: the next user that attaches has it, and ``lease(after)`` returns its number.
- ack: version written -> acknowledged; the version names the queues still to be deleted: the next user that attaches
  deletes them. **The version comes first**, so that a fenced user deletes nothing. Only if there is no memory for a
  version, the queues are deleted first, after a check that the user still has the group. Killed then -> the register
  says that the leases are not acknowledged, reading them says that they are gone, and acknowledging them again resolves
  that.
- release: version written -> there are no leases, all messages are in strays: a user that attaches starts at 0, and
  leases them first. Some messages moved back -> the others are still in strays. All moved back -> empty queues, and a
  register that says "released": the next release finishes it, or a user that attaches continues with it.
- The register is deleted under the topology lock, under which users attach. So no user attaches between the last look
  at the register and its deletion.

A user stopped for ever has the same effect as a killed user, with three exceptions, which last until it is killed. Its
strays, and the register of a group that was released, are not deleted. A message that it was just moving stays out of
reach. And a user that was stopped while it held the broker's topology lock, under which queues are made and deleted,
keeps others from attaching and from leasing (:exc:`Timeout`). Acknowledging and releasing raise :exc:`Timeout`, too,
since they cannot delete queues. Both may take effect nevertheless: an acknowledgement as :meth:`Group.ack` says; after
a release the group may have ended and its messages may be back, and only strays and the register are left.
"""

from shmbroker.leasing.group import Group

__all__ = ["Group"]
