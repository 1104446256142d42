# SPDX-License-Identifier: Apache-2.0
"""Consumer groups: what they lease stays leased, whoever dies, until it is acknowledged.

What: a group takes messages of a queue in numbered leases. A lease is a queue of the broker's own into which messages
were moved; reading it changes nothing, and gives the same messages each time; acknowledging it is deleting it. What the
group has, and whose it is, is in a :mod:`register <shmbroker._system_queues.register>`, the queue ``amq.group.<name>``.

A user *attaches* the group: writes a version of the register with a token of its own. Every other change replaces the
version that the user saw last; so none of an earlier user counts any more, wherever that one was stopped: that one is
*fenced*.

What is moved goes to a queue that only this user fills, ``amq.lease.<name>.<number>.<token>``. The register named it
before the first message came. It becomes a lease, and is not filled any more, by the version that says so. A user who
was stopped in the middle of a move, and goes on after another one took over, moves on into its own queue. To the others
that is a *stray*: its messages are leased before those of the queue. It is deleted when it is empty and everybody who
might move into it, or out of it, is gone.

Messages with a time to live do not expire while they are leased; expired ones are not leased.

Kills, after -> state, and who goes on:

- attach: queue to fill made -> an empty queue that nobody knows, shown by ``shmbroker queue list --all``. Version
  written -> attached by the dead; the next who attaches takes over, and has its queue as a stray.
- lease: some moved -> they are in the queue that is being filled, the next user's stray. In the middle of a move -> the
  core finishes it, or undoes it. Next queue made -> as with attach. Version written -> it is a lease: whoever attaches
  has it, and ``lease(after)`` returns it.
- ack: version written -> acknowledged; the version names the queues that remain to be deleted: the next who attaches
  does that. **The version comes first**, so that whoever is fenced deletes nothing. Only if there is no memory for one,
  the queues go first, after a look that the group is still ours; killed then -> the register says that they are not
  acknowledged, reading them says that they are gone, and who acknowledges them again ends that.
- release: version written -> there are no leases, all messages are strays: who attaches starts at 0, and leases them
  first. Some moved back -> the same with the others. All moved back -> empty queues, and a register that says
  "released": the next release finishes it, or whoever attaches goes on with it.
- The register is deleted under the topology lock, as attaching is done, so that nobody attaches in between.

Stopped for ever, instead of killed: the same, with one exception. Queues are made and deleted under the broker's
topology lock; who is stopped with it keeps others from attaching and from leasing (:exc:`Timeout`) until it is killed.
"""

from shmbroker.leasing.group import Group

__all__ = ["Group"]
