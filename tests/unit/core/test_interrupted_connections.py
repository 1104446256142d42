# SPDX-License-Identifier: Apache-2.0
"""Signal handlers that run in the middle of `connect`, of a call and of `close`: they may raise, and connect."""

from __future__ import annotations

import json

import pytest
from scenario_support.interrupting import INTERRUPTED_AT, SIGNALLED_AT
from scenario_support.processes import run_python

import shmbroker.testing

pytestmark = pytest.mark.exhaustive

# Raises before the n-th instruction of the package, for each n there is: a handler may run before some of them.
AT_EVERY_INSTRUCTION = f"""{INTERRUPTED_AT}
    name, kept = sys.argv[1:]

    def connect():
        shmbroker.connect(name, create=False)

    first = shmbroker.connect(name, create=False) if kept == "kept" else None
    broker = shmbroker.Broker(name)
    before = broker.statistics()
    descriptors, number = len(os.listdir("/proc/self/fd")), 0
    gc.freeze()  # so that collecting is fast
    while interrupted_at(number, connect):
        gc.collect()  # a connection refers to itself: the next one would use what it has attached
        number += 1
    gc.collect()
    after = broker.statistics()
    more = len(os.listdir("/proc/self/fd")) - descriptors
    # The line of `acquire` that notes an attachment has no call, so no handler runs in it. But it is interrupted here:
    # before three of its instructions, each of which leaves two descriptors, and before those that follow, which leave
    # one attachment for the next connection. Which of them are met depends on when Python collects garbage.
    print(json.dumps([number, after.connection_count - before.connection_count, more <= 8 * (kept != "kept")]))
"""


def interrupted(broker_name: str, kept: str) -> tuple[int, int, bool]:
    """Interrupts `connect` everywhere; at how many places, how many connections that left, and whether descriptors."""
    with shmbroker.testing.broker(broker_name, memory="32M") as broker:
        done = run_python(AT_EVERY_INSTRUCTION, broker.name, kept)
    assert done.returncode == 0, done.stderr
    number, connections, few = json.loads(done.stdout)
    return number, connections, few


def test_an_interrupted_connect_leaves_no_connection(broker_name: str) -> None:
    """Wherever a signal handler raises, in the first connection of a process as well."""
    number, connections, few = interrupted(broker_name, "none")
    assert number > 100
    assert (connections, few) == (0, True)


def test_an_interrupted_connect_beside_another_connection(broker_name: str) -> None:
    """The connections of one process share what they attach; that of the other one goes on."""
    number, connections, few = interrupted(broker_name, "kept")
    assert number > 100
    assert (connections, few) == (0, True)


# Runs a handler before the n-th line of what is interrupted, for each n there is.
AT_EVERY_LINE = """
    import gc, json, os, pickle, sys, threading
    import shmbroker

    name = sys.argv[1]
    package = os.path.dirname(shmbroker.__file__)

    def handled_at(number, deed, handler):
        left = number

        def trace(frame, event, _):
            nonlocal left
            if not frame.f_code.co_filename.startswith(package):
                return None
            if event == "line":
                left -= 1
                if left < 0:
                    sys.settrace(None)
                    handler()
            return trace

        sys.settrace(trace)
        try:
            deed()
        finally:
            sys.settrace(None)
        return left < 0

    broker = shmbroker.Broker(name)
    with broker.connect() as connection:
        queue = connection.queue("q")
        queue.put(b"A")
        pickled = pickle.dumps(queue)

    def connect_and_stay():
        kept.append(shmbroker.connect(name, create=False))
        kept[-1].queue("q", passive=True)

    def connect_and_close():
        with shmbroker.connect(name, create=False) as connection:
            assert len(connection.queue("q", passive=True)) == 1

    def load():
        assert len(pickle.loads(pickled)) == 1

    def load_anew():
        from shmbroker._process.connections import _shared
        for connection in list(_shared.values()):
            connection.close()
        load()

    numbers = []
    for deed in (connect_and_close, load_anew):
        for handler in (connect_and_stay, connect_and_close, load):
            number, more = 0, True
            while more:
                kept = []
                more = handled_at(number, deed, handler)
                for connection in kept:
                    assert len(connection.queue("q", passive=True)) == 1
                    connection.close()
                number += 11  # of several hundred
            numbers.append(number)
    load_anew()
    gc.collect()
    print(json.dumps([numbers, broker.statistics().connection_count, broker.statistics().process_count]))
"""


def test_a_signal_handler_that_connects_or_loads_a_queue(broker_name: str) -> None:
    """It may run anywhere in `connect`, and in the loading of a queue; neither hangs or harms the other."""
    with shmbroker.testing.broker(broker_name, memory="32M") as broker:
        done = run_python(AT_EVERY_LINE, broker.name)
    assert done.returncode == 0, done.stderr
    numbers, connections, processes = json.loads(done.stdout)
    assert min(numbers) > 100
    assert (connections, processes) == (2, 2)  # the housekeeper's, and that of the queues that were loaded


# Interrupts a call of a connection before its n-th instruction, for each n there is, and drops the connection.
# The collection while a body is viewed has the effect that the next one finalizes the core's part first.
CALL_AT_EVERY_INSTRUCTION = f"""{INTERRUPTED_AT}
    from shmbroker import body_references

    name, number, more = sys.argv[1], 0, True
    gc.collect()
    gc.disable()
    while more:
        connection = shmbroker.connect(name, create=False)
        queue = connection.queue("q", passive=True)
        body = body_references.body_at(connection, next(body_references.of_queue(queue))[1])
        del queue
        more = interrupted_at(number, lambda: connection._session.core.queue_slots())
        kept = [connection]
        del connection
        gc.collect()
        kept.pop().close()
        del body
        gc.collect()
        number += 1
    print(json.dumps([number, shmbroker.Broker(name).statistics().connection_count]))
"""


def test_a_connection_with_an_interrupted_call_is_finalized_in_any_order(
    broker_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The garbage collector may finalize the core's part first: finalizers that run later do not use its handle."""
    monkeypatch.setenv("MALLOC_PERTURB_", "90")  # the C library overwrites what is freed: a use of it crashes
    with shmbroker.testing.broker(broker_name, memory="32M") as broker:
        with broker.connect() as connection:
            connection.queue("q").put(bytes(10_000))
        done = run_python(CALL_AT_EVERY_INSTRUCTION, broker.name)
    assert done.returncode == 0, done.stderr
    number, connections = json.loads(done.stdout)
    assert number > 20
    assert connections == 1  # the housekeeper's


# Interrupts a call of a connection wherever a signal's handler may raise, and closes the connection.
CALL_WHERE_SIGNALS_COME = f"""{SIGNALLED_AT}
    def through_with(core):
        with core.call():
            core.attachment.closing()

    deeds = dict(in_flight=lambda core: core.queue_slots(), call=through_with)
    name, deed, number, more, kept, counts = sys.argv[1], deeds[sys.argv[2]], 0, True, [], []
    while more:
        connection = shmbroker.connect(name, create=False)
        more = signalled_at(number, lambda: deed(connection._session.core))
        connection.close()
        kept.append(connection)
        counts.append(shmbroker.Broker(name).statistics().connection_count)
        number += 1
    print(json.dumps([number, [one._session.core.calls for one in kept], counts]))
"""


@pytest.mark.parametrize("way", ["in_flight", "call"])
def test_a_call_that_a_signal_interrupts_is_over(broker_name: str, way: str) -> None:
    """Closing gives back what the connection has, although the object lives on."""
    with shmbroker.testing.broker(broker_name, memory="32M") as broker:
        done = run_python(CALL_WHERE_SIGNALS_COME, broker.name, way)
    assert done.returncode == 0, done.stderr
    number, calls, connections = json.loads(done.stdout)
    assert number > 3
    assert set(calls) == {0}
    assert set(connections) == {1}  # the housekeeper's


# Interrupts the closing of a connection that holds messages before its n-th instruction, for each n there is. Then the
# program closes the connection once more, or drops it.
CLOSE_AT_EVERY_INSTRUCTION = f"""{INTERRUPTED_AT}
    name, io, again = sys.argv[1], "io" in sys.argv, "again" in sys.argv
    other = shmbroker.connect(name, create=False)
    queue, number, more, wrong = other.queue("q"), 0, True, []
    queue.put_many([b"A", b"B", b"C"])
    while more:
        connection = shmbroker.connect(name, create=False)
        held = connection.queue("q", passive=True).get_many(3, timeout=0)
        if io:
            connection._session.core.start_io()
        more = interrupted_at(number, connection.close)
        if again:
            connection.close()
        del connection, held
        gc.collect()
        found = [bytes(message) for message in queue.browse()], [str(one) for one in other.doctor()]
        if found != ([b"A", b"B", b"C"], []):
            wrong.append([number, repr(found)])
            queue.delete()
            queue = other.queue("q")
            queue.put_many([b"A", b"B", b"C"])
        number += 1
    print(json.dumps([number, wrong, shmbroker.Broker(name).statistics().connection_count]))
"""


@pytest.mark.parametrize("options", [[], ["again"], ["io", "again"]])
def test_an_interrupted_close_returns_what_the_connection_holds(broker_name: str, options: list[str]) -> None:
    """Wherever a signal's handler raises, if the program closes the connection again, or forgets it."""
    with shmbroker.testing.broker(broker_name, memory="32M") as broker:
        done = run_python(CLOSE_AT_EVERY_INSTRUCTION, broker.name, *options)
    assert done.returncode == 0, done.stderr
    number, wrong, connections = json.loads(done.stdout)
    assert number > 50
    assert wrong == []
    assert connections == 2  # the housekeeper's, and that of the program


# Interrupts the closing of a connection wherever a signal's handler may raise, and does not close it again.
CLOSE_WHERE_SIGNALS_COME = f"""{SIGNALLED_AT}
    name, number, more, kept, wrong = sys.argv[1], 0, True, [], []
    other = shmbroker.connect(name, create=False)
    queue = other.queue("q")
    queue.put_many([b"A", b"B", b"C"])
    while more:
        connection = shmbroker.connect(name, create=False)
        kept += [connection, connection.queue("q", passive=True).get_many(3, timeout=0)]
        connection._session.core.start_io()
        more = signalled_at(number, connection.close)
        if connection._session.core.closed and len(queue) != 3:
            wrong.append(number)
        connection.close()
        number += 1
    print(json.dumps([number, wrong]))
"""


def test_what_a_closed_connection_held_is_back_whatever_interrupted_it(broker_name: str) -> None:
    """A connection that says that it is closed holds nothing, even if its object and its IO thread live on."""
    with shmbroker.testing.broker(broker_name, memory="32M") as broker:
        done = run_python(CLOSE_WHERE_SIGNALS_COME, broker.name)
    assert done.returncode == 0, done.stderr
    number, wrong = json.loads(done.stdout)
    assert number > 10
    assert wrong == []


# Interrupts the making of a connection wherever a signal's handler may raise, and checks which processes are attached.
ATTACHED_WHERE_SIGNALS_COME = f"""{SIGNALLED_AT}
    from shmbroker._core import attachment, connection, segments

    path, kept = segments.path_of(sys.argv[1]), sys.argv[2] == "kept"
    number, more, users, made = 0, True, [], []  # finalizers run when nothing is interrupted: they get no second turn
    first = connection.CoreConnection(path, "first") if kept else None
    while more:
        more = signalled_at(number, lambda: made.append(connection.CoreConnection(path, "one")))
        made.clear()
        gc.collect()
        users.append(attachment._attached[path].users if path in attachment._attached else 0)
        number += 1
    print(json.dumps([number, users]))
"""


@pytest.mark.parametrize(("kept", "users"), [("none", 0), ("kept", 2)])
def test_an_interrupted_connect_gives_back_the_attachment(broker_name: str, kept: str, users: int) -> None:
    """Else the process stays attached until it ends; another connection of it keeps the two uses that it has."""
    with shmbroker.testing.broker(broker_name, memory="32M") as broker:
        done = run_python(ATTACHED_WHERE_SIGNALS_COME, broker.name, kept)
    assert done.returncode == 0, done.stderr
    number, found = json.loads(done.stdout)
    assert number > 20
    assert [(at, count) for at, count in enumerate(found) if count != users] == []


# Interrupts the closing of a connection, or the end of what keeps its handle, wherever a signal's handler may raise.
# Closes the connection again, and checks which processes are attached while the object lives on.
DETACHED_WHERE_SIGNALS_COME = f"""{SIGNALLED_AT}
    from shmbroker import body_references
    from shmbroker._core import attachment, segments
    from shmbroker._core.queue import CoreQueue

    def users():
        return attachment._attached[path].users if path in attachment._attached else 0

    name, way = sys.argv[1:]
    path, number, more, kept, wrong = segments.path_of(name), 0, True, [], []
    gc.collect()
    gc.disable()  # what goes, goes where it is dropped
    while more:
        connection = shmbroker.connect(name, create=False)
        core = connection._session.core
        kept += [connection, core]
        if way == "io":
            core.start_io()
        if way == "view":
            queue = connection.queue("q", passive=True)
            held = [body_references.body_at(connection, next(body_references.of_queue(queue))[1])]
            core.close()
        if way == "queue":
            held = [CoreQueue(core, "q", core.queue_slot("q"))]
        before = users()
        more = signalled_at(number, core.close if way in ("close", "io") else held.clear)
        core.close()
        if before < 1 or users():
            wrong.append([number, before, users()])
            attachment._attached.clear()
        number += 1
    print(json.dumps([number, wrong]))
"""


@pytest.mark.parametrize("way", ["close", "io", "view", "queue"])
def test_an_interrupted_end_detaches_at_the_next_close(broker_name: str, way: str) -> None:
    """Else the process stays attached as long as the program keeps the closed connection, or until it ends."""
    with shmbroker.testing.broker(broker_name, memory="32M") as broker:
        with broker.connect() as connection:
            connection.queue("q").put(bytes(10_000))
        done = run_python(DETACHED_WHERE_SIGNALS_COME, broker.name, way)
    assert done.returncode == 0, done.stderr
    number, wrong = json.loads(done.stdout)
    assert number > 3
    assert wrong == []


# Interrupts what opens files of the broker wherever a signal's handler may raise.
FILES_WHERE_SIGNALS_COME = f"""{SIGNALLED_AT}
    from shmbroker._core import housekeeper, journal, native, segments

    name, what = sys.argv[1:]
    path, number, more, wrong = segments.path_of(name), 0, True, []
    core = shmbroker.connect(name, create=False)._session.core
    written = journal.Journal(path)

    def alone():
        with segments._one_at_a_time(path):
            pass

    def awaiting():
        with housekeeper.awaiting_place(path):
            pass

    def written_to():
        with journal.topology_lock(core, 0, "a test"):
            written.read_new(core)
            written.append(core, b"")
            written.replace(core, b"")

    while more:
        opened = len(os.listdir("/proc/self/fd"))
        more = signalled_at(number, globals()[what])
        found = len(os.listdir("/proc/self/fd")) - opened, native.slow.sb_housekeeper_is_awaited(core.attachment.handle)
        if found != (0, False):
            wrong.append([number, *found])
        number += 1
    print(json.dumps([number, wrong]))
"""


@pytest.mark.parametrize("what", ["alone", "awaiting", "written_to"])
def test_an_interrupted_use_of_a_file_closes_it(broker_name: str, what: str) -> None:
    """Its descriptor does not stay open, nor its locks held: a housekeeper would end for nobody."""
    with shmbroker.testing.broker(broker_name, memory="32M") as broker:
        done = run_python(FILES_WHERE_SIGNALS_COME, broker.name, what)
    assert done.returncode == 0, done.stderr
    number, wrong = json.loads(done.stdout)
    assert number > 10
    assert wrong == []
