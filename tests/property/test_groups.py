# SPDX-License-Identifier: Apache-2.0
"""Users of one consumer group who come, go, stop in the middle of a lease and go on, in any order.

Whatever they do, each message is in one place; a lease stays what it was; only the last who attached changes anything.
"""

from __future__ import annotations

import contextlib
import itertools
import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import hypothesis.strategies as st
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from scenario_support.waiting import becomes

import shmbroker
from shmbroker import exceptions
from shmbroker._amqp.names import LEASE

if TYPE_CHECKING:
    from collections.abc import Callable

FAST = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)
MOST_USERS = 4
NAMES = itertools.count()
FILLING: Callable[[shmbroker.Group], shmbroker.Queue | None] = operator.attrgetter("_filling")
REFUSED = (exceptions.GroupInUse, exceptions.GroupRewound, exceptions.LeaseNotFound)


@dataclass
class User:
    """One of them, with a connection of its own."""

    connection: shmbroker.Connection
    group: shmbroker.Group


class GroupMachine(RuleBasedStateMachine):
    """The users, and what is known of the group from outside."""

    broker: shmbroker.Broker
    connection: shmbroker.Connection

    @initialize()
    def begin(self) -> None:
        """Make a queue; nobody uses the group yet."""
        self.name = f"g{next(NAMES)}"
        self.queue = self.connection.queue(self.name)
        self.users: list[User] = []
        self.owner: User | None = None
        self.put, self.acked = 0, 0
        self.last_acked = 0
        self.leases: dict[int, list[bytes]] = {}

    def contents(self, group: shmbroker.Group, number: int) -> list[bytes]:
        """What is in a lease."""
        return [bytes(message) for message in group.messages(number)]

    # ---- rules ----

    @rule(count=st.integers(1, 4))
    def put_some(self, count: int) -> None:
        """Messages come."""
        self.queue.put_many([b"%d" % number for number in range(self.put, self.put + count)])
        self.put += count

    @precondition(lambda self: len(self.users) < MOST_USERS)
    @rule()
    def come(self) -> None:
        """Another user."""
        connection = self.broker.connect()
        self.users.append(User(connection, shmbroker.Group(connection, self.name, self.name)))

    @precondition(lambda self: self.users)
    @rule(data=st.data())
    def attach(self, data: st.DataObject) -> None:
        """Somebody takes the group; what the one before had is there."""
        user = data.draw(st.sampled_from(self.users))
        user.group.attach()
        self.owner = user
        assert (user.group.acked, user.group.leased) == (self.last_acked, self.last_acked + len(self.leases))

    @precondition(lambda self: self.users)
    @rule(data=st.data(), most=st.integers(1, 5))
    def lease(self, data: st.DataObject, most: int) -> None:
        """The owner gets the next lease if there is anything; others get nothing new."""
        user = data.draw(st.sampled_from(self.users))
        known = user.group.leased
        if user is not self.owner:
            with contextlib.suppress(REFUSED):
                assert user.group.lease(known, max_messages=most) == known
            return
        filling = FILLING(user.group)
        begun = 0 if filling is None else len(filling)  # by a call that did not get to its end
        number = user.group.lease(known, max_messages=most)
        if number != known:
            self.leases[number] = self.contents(user.group, number)
            assert 1 <= len(self.leases[number]) <= max(most, begun)
        else:
            assert len(self.queue) == 0

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def ack(self, data: st.DataObject) -> None:
        """Only the owner's acknowledgement counts."""
        user = data.draw(st.sampled_from(self.users or [None]))
        number = data.draw(st.sampled_from(sorted(self.leases)))
        if user is None:
            return
        if user is not self.owner:
            with contextlib.suppress(REFUSED):
                assert user.group.ack(number) == 0
            return
        ended = [one for one in sorted(self.leases) if one <= number]
        assert user.group.ack(number) == sum(len(self.leases[one]) for one in ended)
        self.acked += sum(len(self.leases.pop(one)) for one in ended)
        self.last_acked = number

    @precondition(lambda self: self.users)
    @rule(data=st.data(), most=st.integers(1, 4))
    def move_a_part(self, data: st.DataObject, most: int) -> None:
        """Somebody is in the middle of a lease, perhaps since long, and stops there."""
        user = data.draw(st.sampled_from(self.users))
        filling = FILLING(user.group)
        if filling is not None and filling.name in user.connection.queue_names(all=True):
            own = user.connection.queue(self.name, passive=True)
            own.move(filling, limit=most)

    @precondition(lambda self: self.users)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        """Somebody ends, wherever it was."""
        user = data.draw(st.sampled_from(self.users))
        self.users.remove(user)
        user.connection.close()
        if user is self.owner:
            self.owner = None

    @precondition(lambda self: self.owner is not None)
    @rule()
    def release(self) -> None:
        """The owner ends the group; the next one begins at 0."""
        assert self.owner is not None
        self.owner.group.release()
        self.owner, self.leases, self.last_acked = None, {}, 0

    # ---- what holds always ----

    @invariant()
    def each_message_is_in_one_place(self) -> None:
        """In the queue, in a lease, or on the way: none is lost, none is there twice."""
        if not hasattr(self, "queue"):
            return
        found: list[bytes] = [bytes(message) for message in self.queue.browse()]
        for name in self.connection.queue_names(all=True):
            if name.startswith(f"{LEASE}{self.name}."):
                found += [bytes(message) for message in self.connection.queue(name, passive=True).browse()]
        assert len(found) == len(set(found)) == self.put - self.acked

    @invariant()
    def leases_are_what_they_were(self) -> None:
        """Whoever reads them."""
        if hasattr(self, "queue"):
            reader = shmbroker.Group(self.connection, self.name, self.name)
            for number, bodies in self.leases.items():
                assert self.contents(reader, number) == bodies

    def teardown(self) -> None:
        """At the end everything can be released, and nothing is left but what a living user might be moving into."""
        if not hasattr(self, "queue"):
            return
        for user in self.users:
            user.connection.close()
        last = shmbroker.Group(self.connection, self.name, self.name)
        last.attach()
        last.release()
        assert [name for name in self.connection.queue_names(all=True) if name.startswith("amq.")] == []
        assert len(self.queue) == self.put - self.acked
        self.queue.delete()
        becomes(self.connection.doctor, [])


def test_a_group_whatever_its_users_do(broker: shmbroker.Broker, connection: shmbroker.Connection) -> None:
    """Nothing is lost, nothing is twice."""

    class Machine(GroupMachine):
        pass

    Machine.broker, Machine.connection = broker, connection
    run_state_machine_as_test(Machine, settings=FAST)
