# SPDX-License-Identifier: Apache-2.0
"""Finalizers: an exception of a signal's handler that comes in one is raised, and not printed and dropped."""

from __future__ import annotations

import gc
import json
import re
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from scenario_support.interrupting import SIGNALLED_AT
from scenario_support.processes import run_python

import shmbroker
import shmbroker.testing
from shmbroker._core import native

if TYPE_CHECKING:
    from collections.abc import Iterator

_MOST_CALLS = 100


class StopError(Exception):
    """What a signal's handler raises."""


class Raising(native.Finalized):
    """Its finalizer raises these errors, one in each call; then it returns."""

    def __init__(self, *errors: BaseException) -> None:
        self.errors = list(errors)
        self.calls: list[int] = []

    def _finalize(self) -> None:
        self.calls.append(threading.get_ident())
        if self.errors:
            raise self.errors.pop(0)


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch) -> list[BaseException | None]:
    """Note what Python would print of finalizers."""
    errors: list[BaseException | None] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda one: errors.append(one.exc_value))
    return errors


def dropped(*errors: BaseException) -> list[int]:
    """Drop an object whose finalizer raises; the threads of its calls are returned, if nothing is raised."""
    kept = [Raising(*errors)]
    calls = kept[0].calls
    kept.clear()
    return calls


def test_a_finalizer_is_called_once(printed: list[BaseException | None]) -> None:
    """If it raises nothing."""
    assert dropped() == [threading.get_ident()]
    assert printed == []


@pytest.mark.parametrize("error", [KeyboardInterrupt(), StopError("now", 7)])
def test_what_a_finalizer_raises_once_is_raised(printed: list[BaseException | None], error: BaseException) -> None:
    """It came from a signal's handler; the finalizer is called again, and has no part of the traceback."""
    kept = [Raising(error)]
    calls = kept[0].calls
    with pytest.raises(type(error)) as raised:
        kept.clear()
    assert raised.value is error
    assert [entry.name for entry in raised.traceback] == ["test_what_a_finalizer_raises_once_is_raised"]
    assert len(calls) == 2
    assert printed == []


def test_the_first_of_several_interrupts_is_raised(printed: list[BaseException | None]) -> None:
    """As Python raises one KeyboardInterrupt if Ctrl-C is pressed twice before it looks."""
    with pytest.raises(KeyboardInterrupt, match="one"):
        dropped(KeyboardInterrupt("one"), KeyboardInterrupt("two"), KeyboardInterrupt("three"))
    assert printed == []


def test_what_a_finalizer_always_raises_is_printed(printed: list[BaseException | None]) -> None:
    """It is an error of the finalizer."""
    error = ValueError("of the finalizer")
    assert len(dropped(*[error] * _MOST_CALLS)) == _MOST_CALLS
    assert printed == [error]
    with pytest.raises(ValueError, match="of the finalizer"):
        dropped(*[error] * (_MOST_CALLS - 1))


def test_another_thread_prints(printed: list[BaseException | None]) -> None:
    """No signal's handler runs there; the finalizer is called again all the same."""
    error, calls = StopError(), []
    thread = threading.Thread(target=lambda: calls.extend(dropped(error)))
    thread.start()
    thread.join()
    assert calls == [thread.ident] * 2
    assert printed == [error]


def test_an_exception_that_is_on_its_way_stays(printed: list[BaseException | None]) -> None:
    """A finalizer runs while an exception ends the function that had the object."""

    def fail() -> None:
        one = Raising()
        raise StopError(one.errors)

    with pytest.raises(StopError):
        fail()
    assert printed == []


@pytest.fixture
def alone() -> Iterator[None]:
    """Keep other threads from collecting, and functions of others, such as hypothesis, from running in a collection."""
    callbacks = gc.callbacks.copy()
    gc.disable()
    gc.collect()
    gc.callbacks.clear()
    yield
    gc.callbacks.extend(callbacks)
    gc.enable()


@pytest.mark.usefixtures("alone")
def test_a_finalizer_of_a_cycle(printed: list[BaseException | None]) -> None:
    """The garbage collector finalizes it; what it raises is raised after the collection."""
    one = Raising(StopError())
    vars(one)["itself"] = one
    calls = one.calls
    del one
    with pytest.raises(StopError):
        gc.collect()
    assert len(calls) == 2
    assert printed == []


def test_a_finalizer_of_cffi(printed: list[BaseException | None]) -> None:
    """It is given a pointer, and is run in the same way."""
    one = Raising(StopError())
    with pytest.raises(StopError):
        native.run_finalizer(one._finalize, None)  # noqa: SLF001
    assert len(one.calls) == 2
    with pytest.raises(TypeError, match="2 arguments are needed, 1 were given"):
        native.run_finalizer(one._finalize)  # type: ignore[call-arg]  # noqa: SLF001
    assert printed == []


def test_no_class_has_a_destructor_of_python() -> None:
    """Python drops an exception that a signal's handler raises as `__del__` begins."""
    sources = list(Path(shmbroker.__file__).parent.rglob("*.py"))
    assert len(sources) > 100
    assert [
        str(path) for path in sources if re.search(r"def __del__|weakref\.finalize|WeakValueDict", path.read_text())
    ] == []


# Drops an object wherever a signal's handler may raise while it goes, with all it refers to.
DROPPED_WHERE_SIGNALS_COME = f"""{SIGNALLED_AT}
    from shmbroker import body_references
    from shmbroker._core import attachment, channel, consumer, native, queue as core_queue, segments, watch
    from shmbroker._core.attachment import Attachment

    name, what = sys.argv[1:]
    path, printed, number, more, raised, left, counts = segments.path_of(name), [], 0, True, [], [], []
    sys.unraisablehook = lambda one: printed.append(repr(one.exc_value))
    broker = shmbroker.Broker(name)

    modules, freed = dict(consumer=consumer, channel=channel, watch=watch, queue=core_queue), []

    class Counted:  # the core; it counts the handles that are freed
        def __getattr__(self, name):
            function = getattr(native.slow, name)
            return (lambda handle: freed.append(function(handle))) if name == f"sb_{{what}}_free" else function

    def kept_view(queue):
        with queue.reserve(10) as memory:
            return memory[:]

    def made(connection):
        if what == "connection":
            return connection
        if what == "attachment":
            return Attachment(path)
        queue = connection.queue("q", passive=True)
        if what == "view":
            return body_references.body_at(connection, next(body_references.of_queue(queue))[1])
        if what == "reservation":
            return kept_view(queue)
        if what == "consumer":
            return connection.consumer("q")
        if what == "channel":
            return channel.CoreChannel(connection._session.core, 7)
        if what == "watch":
            return watch.CoreWatch(queue._core, os.eventfd(0), room=False)
        return core_queue.CoreQueue(connection._session.core, "q", queue._core.slot)

    gc.disable()  # what goes, goes where it is dropped
    while more:
        connection = shmbroker.connect(name, create=False)
        kept = [made(connection)]
        if what in ("view", "reservation", "consumer"):
            connection.close()
        del connection
        gc.collect()
        raised.append(False)
        freed.clear()
        if what in modules:
            modules[what].slow = Counted()

        def drop():
            try:
                kept.clear()
                gc.collect()
            except Signalled:
                raised[-1] = True

        more = signalled_at(number, drop)
        gc.collect()
        counts.append(len(freed))
        left.append([broker.statistics().connection_count, path in attachment._attached])
        number += 1
    print(json.dumps([raised, left, counts, printed]))
"""


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "what",
    ["connection", "attachment", "view", "reservation", "consumer", "channel", "watch", "queue"],
)
def test_an_interrupt_while_an_object_goes_is_raised(broker_name: str, what: str) -> None:
    """Wherever it comes; and all that the object had is given back."""
    with shmbroker.testing.broker(broker_name, memory="32M") as broker:
        with broker.connect() as connection:
            connection.queue("q").put(bytes(10_000))
        done = run_python(DROPPED_WHERE_SIGNALS_COME, broker.name, what)
    assert (done.returncode, done.stderr) == (0, "")
    raised, left, freed, printed = json.loads(done.stdout)
    assert printed == []
    assert len(raised) > 3
    assert raised == [True] * (len(raised) - 1) + [False]
    assert set(freed) == {freed[-1]}  # as without an interrupt
    assert (freed[-1] > 0) == (what in {"consumer", "channel", "watch", "queue"})
    assert [(at, found) for at, found in enumerate(left) if found != [1, False]] == []  # the housekeeper's
