# SPDX-License-Identifier: Apache-2.0
"""The exchanges of a broker as a process knows them: what others changed, and the bindings of queues that ended."""

from __future__ import annotations

import errno
import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.core_calls import Noted, Replaced
from scenario_support.inside import core_of
from scenario_support.interrupting import SIGNALLED_AT
from scenario_support.processes import run_python
from scenario_support.waiting import WATCHDOG_SECONDS

import shmbroker.testing
from shmbroker._core import journal, native
from shmbroker._topology import changes, state
from shmbroker._topology.binding import Binding, ToQueue
from shmbroker._topology.shared import Exchanges, exchanges_of
from shmbroker._topology.state import Topology

if TYPE_CHECKING:
    from collections.abc import Callable

    from shmbroker._core.connection import CoreConnection

FOR_EVER = native.deadline(None)
Q1, Q2, Q3 = ToQueue("q1", 5), ToQueue("q2", 6), ToQueue("q3", 7)
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
    successor = ToQueue("q3", 8)
    bind(mine, core, Q1, Q2, Q3, successor)
    mine.prune(of_queues(core, 0), NOW)
    assert route(mine, core) == (Q1, Q2, Q3, successor)
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
    damaging.read_new(core)
    damaging.append(core, b"no record")
    (problem,) = mine.problems(core)
    damaging.read_new(core)
    damaging.replace(core, b"")
    assert "the topology's journal is damaged: record at byte" in problem


def then_interrupted(deed: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that does the same, and then raises."""

    def interrupted(*given: Any) -> None:  # noqa: ANN401
        deed(*given)
        raise KeyboardInterrupt

    return interrupted


@pytest.mark.parametrize("rewritten", [False, True])
@pytest.mark.parametrize("interrupted", [(journal.Journal, "read_new"), (Topology, "replay")])
def test_an_interrupted_replay_loses_nothing(
    core: CoreConnection, mine: Exchanges, monkeypatch: pytest.MonkeyPatch, interrupted: tuple[type, str],
    *, rewritten: bool,
) -> None:  # fmt: skip
    """The next use has the table of the journal. No record counts twice: an auto-delete exchange would be lost."""
    theirs, (of, name) = exchanges_of(core), interrupted
    theirs.change(core, FOR_EVER, lambda topology: changes.declare(topology, "x", "fanout", auto_delete=True))

    def change(way: Callable[..., bytes], queue: ToQueue) -> None:
        theirs.change(core, FOR_EVER, lambda topology: way(topology, "x", queue))

    for queue in (Q1, Q2):
        change(changes.bind, queue)
    assert mine.route(core, "x", "", None, ()) == (Q1, Q2)
    with monkeypatch.context() as patch:
        patch.setattr(Topology, "worth_compacting", lambda *_: rewritten)
        change(changes.unbind, Q1)  # a second time, it would remove the last binding
        change(changes.bind, Q3)
        change(changes.unbind, Q2)
        change(changes.bind, Q1)
        change(changes.unbind, Q3)
    with monkeypatch.context() as patch:
        patch.setattr(of, name, then_interrupted(getattr(of, name)))
        with pytest.raises(KeyboardInterrupt):
            mine.refresh(core)
    assert mine.route(core, "x", "", None, ()) == (Q1,)
    assert mine.refresh(core).snapshot() == theirs.refresh(core).snapshot()


# Calls `deed`, and runs a handler at its n-th place, where `signalled_at` would raise.
HANDLED_AT = f"""{SIGNALLED_AT}
    from shmbroker._core import native
    from shmbroker._topology import changes
    from shmbroker._topology.binding import ToQueue
    from shmbroker._topology.shared import Exchanges
    from shmbroker._topology.state import Topology

    def handled_at(number, deed, handler):
        left = number

        def look(frame, event, _):
            nonlocal left
            if event in ("call", "c_return") and frame.f_code.co_filename.startswith(package):
                left -= 1
                if left < 0:
                    sys.setprofile(None)
                    handler()

        sys.setprofile(look)
        try:
            deed()
        finally:
            sys.setprofile(None)
        return left < 0
"""

# Interrupts the replay of changes at its n-th place, for each n there is; or uses the table there, and then
# lets the replay go on.
REPLAY_AT_EVERY_PLACE = f"""{HANDLED_AT}
    name, way, rewritten = sys.argv[1], sys.argv[2], sys.argv[3] == "True"
    connection = shmbroker.connect(name, create=False)
    core = connection._session.core
    mine, theirs = (Exchanges(core.attachment.path) for _ in range(2))
    queues = [ToQueue(f"q{{number}}", 5 + number) for number in range(3)]

    def change(make, *given, **options):
        theirs.change(core, native.deadline(None), lambda topology: make(topology, "x", *given, **options))

    def found(table):
        routed = [queue.name for queue in table.route(core, "x", "", None, ())]
        return [table.refresh(core).snapshot().hex(), routed]

    def handle():
        inside.append(found(mine))

    def at(number, deed):
        return signalled_at(number, deed) if way == "raises" else handled_at(number, deed, handle)

    number, more, wrong = 0, True, []
    while more:
        Topology.worth_compacting = lambda *_: True  # a short journal is replayed soon
        change(changes.declare, "fanout", auto_delete=True)
        for queue in queues[:2]:
            change(changes.bind, queue)
        mine.refresh(core)
        Topology.worth_compacting = lambda *_: rewritten
        for make, queue in zip([changes.unbind, changes.bind] * 2, [0, 2, 1, 0]):
            change(make, queues[queue])
        change(changes.unbind, queues[2])
        inside, returned = [], []
        more = at(number, lambda: returned.append(mine.refresh(core)))
        wanted = found(theirs)
        tables = [wanted[0] == one.snapshot().hex() for one in returned]
        if not all(tables) or [one for one in [*inside, found(mine)] if one != wanted]:
            wrong.append(number)
            mine = Exchanges(core.attachment.path)
        number += 1
    print(json.dumps([number, wrong]))
"""


@pytest.mark.exhaustive
@pytest.mark.parametrize("rewritten", [False, True])
@pytest.mark.parametrize("way", ["raises", "handles"])
def test_a_signal_handler_in_a_replay_harms_no_table(broker_name: str, way: str, *, rewritten: bool) -> None:
    """Wherever it raises, or uses the table itself: it and the program have the table of the journal."""
    with shmbroker.testing.broker(broker_name, memory="32M") as broker:
        done = run_python(REPLAY_AT_EVERY_PLACE, broker.name, way, str(rewritten))
    assert done.returncode == 0, done.stderr
    number, wrong = json.loads(done.stdout)
    assert number > 100
    assert wrong == []


# Runs a handler that changes the topology at the n-th place of a change, of a route or of a listing, for each n
# there is. Or interrupts a change there.
CHANGED_AT_EVERY_PLACE = f"""{HANDLED_AT}
    name, deed, rewritten = sys.argv[1], sys.argv[2], sys.argv[3] == "True"
    connection = shmbroker.connect(name, create=False)
    core = connection._session.core
    mine = Exchanges(core.attachment.path)
    queues = [ToQueue(name, 5) for name in ("kept", "also-kept", "outer", "inner", "inner-of-another-length")]
    tables = [dict(a=1), {{"x-match": "any", "a": 1}}, {{"x-match": "any", "a": 1, "b": 2}}]

    def change(make, *given, **options):
        mine.change(core, native.deadline(None), lambda topology: make(topology, "x", *given, **options))

    def bind(queue):
        for table in tables:
            change(changes.bind, queue, "", table)

    def route(table):
        return [queue.name for queue in table.route(core, "x", "", dict(a=1, b=2), ())]

    def listed():
        returned.append([one.destination.name for one in mine.all(core)[1]][::len(tables)])

    def bound():
        change(changes.bind, queues[2], "", tables[0])

    deeds = dict(change=bound, interrupted=bound, route=lambda: returned.append(route(mine)), all=listed)
    if deeds[deed] is bound:
        del tables[1:]

    def handle():
        if deed == "interrupted":
            raise Signalled
        for queue in queues[3:]:
            bind(queue)
        for table in tables:
            change(changes.unbind, queues[1], "", table)
        inside.append(route(mine))

    def compact(way):
        Topology.worth_compacting = lambda *_: way

    number, more, wrong = 0, True, []
    while more:
        compact(True)  # a short journal is replayed soon
        change(changes.delete)
        change(changes.declare, "headers")
        bind(queues[0])
        bind(queues[1])
        mine.refresh(core)
        compact(rewritten)
        inside, returned = [], []
        try:
            more = handled_at(number, deeds[deed], handle)
        except Signalled:
            pass
        compact(False)
        anew = Exchanges(core.attachment.path)
        end = sorted(route(anew))
        outer = deed == "change" or (deed == "interrupted" and "outer" in end)  # an interrupt comes before it, or after
        wanted = {{"kept"}} | ({{"outer"}} if outer else set())
        wanted |= {{"inner", "inner-of-another-length"}} if inside else {{"also-kept"}}
        before, after = ["kept", "also-kept"], ["kept", "inner", "inner-of-another-length"]
        if (end, mine.problems(core)) != (sorted(wanted), []) or route(mine) != route(anew):
            wrong.append([number, end, mine.problems(core)])
            mine = Exchanges(core.attachment.path)
        elif [one for one in returned if one not in (before, after)]:
            wrong.append([number, returned])
        elif [one for one in inside if set(one) - {{"outer"}} != set(after)]:
            wrong.append([number, inside])
        number += 1
    print(json.dumps([number, wrong]))
"""


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("deed", "rewritten"),
    [(deed, again) for deed in ("change", "interrupted", "route") for again in (False, True)] + [("all", False)],
)
def test_a_signal_handler_may_change_the_topology(broker_name: str, deed: str, *, rewritten: bool) -> None:
    """Wherever it runs, its changes and that of the program are there. What is read is of before them or after them.

    If it raises, the change of the program is there whole or not at all.
    """
    with shmbroker.testing.broker(broker_name, memory="32M") as broker:
        done = run_python(CHANGED_AT_EVERY_PLACE, broker.name, deed, str(rewritten))
    assert done.returncode == 0, done.stderr
    number, wrong = json.loads(done.stdout)
    assert number > 40
    assert wrong == []


def test_a_change_is_checked_against_those_of_a_signal_handler(core: CoreConnection, mine: Exchanges) -> None:
    """The handler runs after the check: it deletes the exchange of a binding, or declares an exchange otherwise."""

    def then_handled(
        make: Callable[..., bytes], handler: Callable[..., bytes], *given: object
    ) -> Callable[[Topology], bytes]:
        left = [True]

        def made(topology: Topology) -> bytes:
            record = make(topology, "x", *given)
            if left:
                left.clear()
                mine.change(core, FOR_EVER, lambda topology: handler(topology, "x"))
            return record

        return made

    def declare(topology: Topology, name: str) -> bytes:
        return changes.declare(topology, name, "fanout")

    mine.change(core, FOR_EVER, lambda topology: declare(topology, "x"))
    with pytest.raises(shmbroker.NotFound, match="no exchange 'x'"):
        mine.change(core, FOR_EVER, then_handled(changes.bind, changes.delete, Q1))
    with pytest.raises(shmbroker.PreconditionFailed, match="inequivalent arg 'type'"):
        mine.change(core, FOR_EVER, then_handled(changes.declare, declare, "direct"))
    assert mine.problems(core) == []


def test_a_change_stands_where_the_journal_cannot_be_shortened(
    core: CoreConnection, mine: Exchanges, theirs: Exchanges, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no room for the snapshot in /dev/shm: the change is no error, and few later changes try again."""
    monkeypatch.setattr(state, "_SPARE", 1000)
    length, tried, replace = journal.Journal(core.attachment.path).length, [], journal.Journal.replace

    def full(*given: Any) -> None:  # noqa: ANN401
        tried.append(length(core))
        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", answering_full)
            replace(*given)

    def answering_full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "no space")

    bind(mine, core, Q1)
    with monkeypatch.context() as patch:
        patch.setattr(journal.Journal, "replace", full)
        while length(core) < 5000:
            bind(mine, core, Q2)
            unbind(mine, core, Q2)
            assert route(mine, core) == route(theirs, core) == (Q1,)
    assert len(tried) == 4
    assert min(after - before for before, after in zip([0, *tried], tried, strict=False)) > 1000
    longest = length(core)
    while length(core) >= 5000:
        bind(mine, core, Q2)
        unbind(mine, core, Q2)
        longest = max(longest, length(core))
    assert longest < 6500
    for _ in range(100):
        bind(mine, core, Q2)
        unbind(mine, core, Q2)
        assert length(core) < 1500
    assert route(mine, core) == route(theirs, core) == (Q1,)


def test_a_change_stands_when_another_thread_closes_the_connection(
    core: CoreConnection, theirs: Exchanges, other: shmbroker.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The close comes when the change is in effect: the change is no error, the next one is."""
    append, closed = journal.Journal.append, core_of(other)

    def then_closed(*given: Any) -> int:  # noqa: ANN401
        length = append(*given)
        with ThreadPoolExecutor(1) as thread:
            thread.submit(other.close).result(WATCHDOG_SECONDS)
        return length

    with monkeypatch.context() as patch:
        patch.setattr(journal.Journal, "append", then_closed)
        bind(theirs, closed, Q1)
    assert route(theirs, core) == (Q1,)
    with pytest.raises(shmbroker.ConnectionClosed):
        bind(theirs, closed, Q2)


def test_a_change_in_a_signal_handler_outlives_a_compaction(
    core: CoreConnection, mine: Exchanges, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The handler runs in the middle of the replay of another change, which then rewrites the journal."""
    replay = Topology.replay

    def handled(topology: Topology, data: bytes) -> None:
        monkeypatch.setattr(Topology, "replay", replay)
        bind(mine, core, Q2)
        replay(topology, data)

    monkeypatch.setattr(Topology, "worth_compacting", lambda *_: True)
    monkeypatch.setattr(Topology, "replay", handled)
    bind(mine, core, Q1)
    assert Topology.replay is replay
    assert route(mine, core) == route(exchanges_of(core), core) == (Q1, Q2)


@pytest.mark.damaged
def test_a_damaged_journal_is_told_of_at_each_use(core: CoreConnection, mine: Exchanges, theirs: Exchanges) -> None:
    """Nothing is declared on top of it. When the journal is whole again, so is the table."""
    bind(mine, core, Q1)
    good = theirs.refresh(core).snapshot()
    damaging = journal.Journal(core.attachment.path)
    damaging.read_new(core)
    damaging.append(core, b"no record")
    length = damaging.length(core)
    for _ in range(2):
        with pytest.raises(shmbroker.CorruptSegment):
            route(mine, core)
        with pytest.raises(shmbroker.CorruptSegment):
            bind(mine, core, Q2)
    assert damaging.length(core) == length
    damaging.read_new(core)
    damaging.replace(core, good)
    assert route(mine, core) == (Q1,)


def test_an_error_before_the_replay_leaves_the_table(
    core: CoreConnection, mine: Exchanges, other: shmbroker.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The use of a closed connection does not make the next use read the whole journal anew."""
    bind(mine, core, Q1)
    table = mine.refresh(core)
    closed = core_of(other)
    other.close()
    with pytest.raises(shmbroker.ConnectionClosed):
        mine.refresh(closed)
    read = Noted(os.pread)
    monkeypatch.setattr(os, "pread", read)
    assert mine.refresh(core) is table
    assert read.calls == []
