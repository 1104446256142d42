# SPDX-License-Identifier: Apache-2.0
"""What a group says of itself, what its errors say, and what it leaves behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from scenario_support.groups import attached, content, own
from scenario_support.inside import session_of
from scenario_support.observing import listing, put_each

import shmbroker
from shmbroker import exceptions
from shmbroker.leasing.group_state import GroupState, Lease, lease_of, new_token, process_of

if TYPE_CHECKING:
    from collections.abc import Callable


def test_a_group_says_whether_it_is_attached(connection: shmbroker.Connection, queue: shmbroker.Queue) -> None:
    """It is made for a queue, or for its name."""
    group = shmbroker.Group(connection, queue, "g")
    assert (group.name, group.queue_name) == ("g", "q")
    assert repr(group) == "<Group 'g' of queue 'q', not attached>"
    group.attach()
    assert repr(group) == "<Group 'g' of queue 'q', attached>"
    group.release()
    assert repr(group) == "<Group 'g' of queue 'q', not attached>"
    with pytest.raises(ValueError, match="queue name"):
        shmbroker.Group(connection, "", "g")


def test_what_earlier_users_began_is_counted(
    connection: shmbroker.Connection, other: shmbroker.Connection, queue: shmbroker.Queue
) -> None:
    """The next lease begins with it; who does not have the group is not told."""
    put_each(queue, "ABCD")
    earlier = attached(connection)
    assert earlier.begun == 0
    assert queue.move(connection.queue(earlier._attached_state().filling, passive=True), limit=3) == 3  # noqa: SLF001
    group = attached(other)
    assert group.begun == 3
    group.lease(0, max_messages=2)
    assert group.begun == 1
    assert group.lease(1) == 2
    assert (group.begun, content(group, 2)) == (0, "CD")
    with pytest.raises(exceptions.GroupInUse, match="not attached here"):
        _ = shmbroker.Group(other, "q", "g").begun


def test_a_missing_lease_is_told_with_those_there_are(connection: shmbroker.Connection, queue: shmbroker.Queue) -> None:
    """Their numbers, or that there are none."""
    group = attached(connection)
    with pytest.raises(exceptions.LeaseNotFound) as missing:
        group.size(1)
    assert (missing.value.code, missing.value.text) == (
        404,
        "NOT_FOUND - no lease 1 of group 'g': it has none after 0",
    )
    put_each(queue, "AB")
    group.lease(0, max_messages=1)
    group.lease(1)
    with pytest.raises(exceptions.LeaseNotFound, match="no lease 3 of group 'g': it has 1 to 2"):
        group.size(3)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda group: group.lease(True), r"lease\(True\): the number of a lease, an integer, is needed"),  # noqa: FBT003
        (lambda group: group.ack("1"), r"ack\('1'\): the number of a lease, an integer, is needed"),
        (lambda group: group.size(True), "lease True: an integer is needed"),  # noqa: FBT003
        (lambda group: group.messages("1"), "lease '1': an integer is needed"),
    ],
)
@pytest.mark.usefixtures("queue")
def test_a_number_is_needed(connection: shmbroker.Connection, call: Callable[..., object], text: str) -> None:
    """And nothing else."""
    with pytest.raises(TypeError, match=text):
        call(attached(connection))


@pytest.mark.parametrize("option", ["max_messages", "max_bytes"])
@pytest.mark.parametrize("value", [0, True, "1", 1.0])
@pytest.mark.usefixtures("queue")
def test_a_limit_is_a_number_of_one_or_more(connection: shmbroker.Connection, option: str, value: object) -> None:
    """The error names the option."""
    with pytest.raises(ValueError, match=f"{option}={value!r}: an integer >= 1, or None"):
        attached(connection).lease(0, **{option: value})


def test_a_group_of_another_queue_leaves_nothing(connection: shmbroker.Connection, queue: shmbroker.Queue) -> None:
    """An attachment that is refused makes no queue, and takes the group from nobody."""
    put_each(queue, "A")
    group = attached(connection)
    before = own(connection)
    connection.queue("other")
    with pytest.raises(exceptions.PreconditionFailed) as refused:
        shmbroker.Group(connection, "other", "g").attach()
    assert refused.value.code == 406
    assert own(connection) == before
    assert group.lease(0) == 1
    assert listing(queue) == []


def test_a_user_who_is_gone_has_no_process(broker: shmbroker.Broker, connection: shmbroker.Connection) -> None:
    """A token names its user's connection and process; what is no token names nobody."""
    with broker.connect() as user:
        token = new_token(session_of(user))
        assert token != new_token(session_of(user))
        assert process_of(session_of(connection), token) > 0
    assert process_of(session_of(connection), token) == 0
    assert [process_of(session_of(connection), one) for one in ("", "x", "1-2", f"{token}!")] == [0] * 4


def test_a_state_is_what_was_written() -> None:
    """It comes back from JSON's lists as it was."""
    state = GroupState(
        "q", 3, (Lease("a", 1, 2, dense=True), Lease("b", 3, 4, dense=False)), "o", "f", ("s",), ("p",), ("d",)
    )
    written = state.written()
    assert GroupState.read(written) == state
    assert (state.leased, GroupState("q").leased) == (5, 0)
    assert state.changed(acked=4).acked == 4
    assert lease_of("g", 4, "t") == "amq.lease.g.4.t"
