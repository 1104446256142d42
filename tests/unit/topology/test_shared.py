# SPDX-License-Identifier: Apache-2.0
"""The exchanges of a broker as a process knows them: what others changed, and the bindings of queues that ended."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.core_calls import Noted, Replaced
from scenario_support.inside import core_of
from scenario_support.waiting import WATCHDOG_SECONDS

from shmbroker._core import journal, native
from shmbroker._topology import changes
from shmbroker._topology.binding import Binding, ToQueue
from shmbroker._topology.shared import Exchanges, exchanges_of
from shmbroker._topology.state import Topology

if TYPE_CHECKING:
    import shmbroker
    from shmbroker._core.connection import CoreConnection

FOR_EVER = native.deadline(None)
Q1, Q2 = ToQueue("q1", 5), ToQueue("q2", 6)
NOW = 0


@pytest.fixture
def core(connection: shmbroker.Connection) -> CoreConnection:
    """The connection in the core."""
    return core_of(connection)


@pytest.fixture
def mine(core: CoreConnection) -> Exchanges:
    """What another process knows: nothing yet."""
    return Exchanges(core.attachment.path)


@pytest.fixture
def theirs(core: CoreConnection) -> Exchanges:
    """What this process knows."""
    return exchanges_of(core)


def bind(table: Exchanges, core: CoreConnection, *queues: ToQueue) -> None:
    """Bind queues to the fanout exchange."""
    for queue in queues:
        table.change(core, FOR_EVER, lambda topology, queue=queue: changes.bind(topology, "amq.fanout", queue))


def unbind(table: Exchanges, core: CoreConnection, *queues: ToQueue) -> None:
    """Undo that."""
    for queue in queues:
        table.change(core, FOR_EVER, lambda topology, queue=queue: changes.unbind(topology, "amq.fanout", queue))


def route(table: Exchanges, core: CoreConnection) -> tuple[ToQueue, ...]:
    """Return the queues that get a message."""
    return table.route(core, "amq.fanout", "", None, ())


def test_a_broker_has_one_table_in_a_process(connection: shmbroker.Connection, other: shmbroker.Connection) -> None:
    """For all connections."""
    assert exchanges_of(core_of(connection)) is exchanges_of(core_of(other))


def test_a_route_is_that_of_now(core: CoreConnection, mine: Exchanges, theirs: Exchanges) -> None:
    """What another process bound or unbound since the last one counts."""
    assert route(mine, core) == ()
    bind(theirs, core, Q1, Q2)
    assert route(mine, core) == (Q1, Q2)
    unbind(theirs, core, Q1)
    assert route(mine, core) == (Q2,)


def test_a_journal_that_was_written_anew(
    core: CoreConnection, mine: Exchanges, theirs: Exchanges, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of the table and the routes before is left in another process, or in that of the writer."""
    bind(theirs, core, Q1, Q2)
    assert route(mine, core) == (Q1, Q2)
    monkeypatch.setattr(Topology, "worth_compacting", lambda *_: True)
    unbind(theirs, core, Q1)
    monkeypatch.undo()
    for table in (mine, theirs):
        assert list(table.refresh(core).bindings_from("amq.fanout")) == [Binding("amq.fanout", Q2)]
        assert route(table, core) == (Q2,)
    bind(mine, core, Q1)
    for table in (mine, theirs):
        assert route(table, core) == (Q2, Q1)


def test_a_change_of_nothing_is_none(core: CoreConnection, mine: Exchanges, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written to the journal."""
    bind(mine, core, Q1)
    written = Noted(journal.Journal.append)
    monkeypatch.setattr(journal.Journal, "append", written)
    bind(mine, core, Q1)
    unbind(mine, core, Q2)
    assert written.calls == []


def of_queues(core: CoreConnection, ended: int, **incarnations: int) -> Any:  # noqa: ANN401
    """Return the connection; so many queues ended, and there are these."""
    asked = Noted(lambda name: incarnations.get(name, 0))
    return Replaced(core, queues_ended=lambda: ended, queue_incarnation=asked)


def test_bindings_of_queues_that_ended(core: CoreConnection, mine: Exchanges) -> None:
    """They are removed after the first one that ended; those of the others stay, and so do those of its successor."""
    q3, successor = ToQueue("q3", 7), ToQueue("q3", 8)
    bind(mine, core, Q1, Q2, q3, successor)
    mine.prune(of_queues(core, 0), NOW)
    assert route(mine, core) == (Q1, Q2, q3, successor)
    mine.prune(of_queues(core, 1, q2=6, q3=8), FOR_EVER)
    assert route(mine, core) == (Q2, successor)


def test_queues_are_looked_for_when_some_ended(core: CoreConnection, mine: Exchanges) -> None:
    """Not again before another one ended."""
    bind(mine, core, Q1)
    first, second, third = (of_queues(core, ended, q1=5) for ended in (1, 1, 2))
    for connection in (first, second, third):
        mine.prune(connection, FOR_EVER)
    assert [one.queue_incarnation.calls for one in (first, second, third)] == [[("q1",)], [], [("q1",)]]


def test_where_no_binding_is_left_over_nothing_is_locked(
    core: CoreConnection, mine: Exchanges, other: shmbroker.Connection
) -> None:
    """Another process may have the topology lock for long."""
    bind(mine, core, Q1)
    has_it, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        with journal.topology_lock(core_of(other), FOR_EVER, "the topology"):
            has_it.set()
            go_on.wait(WATCHDOG_SECONDS)

    with ThreadPoolExecutor(1) as thread:
        held = thread.submit(hold)
        assert has_it.wait(WATCHDOG_SECONDS)
        try:
            mine.prune(of_queues(core, 1, q1=5), NOW)
        finally:
            go_on.set()
        held.result(WATCHDOG_SECONDS)
    assert route(mine, core) == (Q1,)


@pytest.mark.damaged
def test_what_is_wrong_with_the_journal(core: CoreConnection, mine: Exchanges, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told in words, whatever is known of the journal already; nothing is wrong with one that is whole."""
    bind(mine, core, Q1)
    assert mine.problems(core) == []

    def broken(*_: object) -> bytes:
        raise OSError(5, "Input/output error", "a file")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pread", broken)
        assert mine.problems(core) == ["the journal cannot be read: a file: Input/output error"]
    damaging = journal.Journal(core.attachment.path)
    damaging.append(core, b"no record")
    (problem,) = mine.problems(core)
    damaging.replace(core, b"")
    assert "the topology's journal is damaged: record at byte" in problem
