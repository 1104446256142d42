# SPDX-License-Identifier: Apache-2.0
"""What one worker of a pool does, in this process: its messages, its signals, and what it logs."""

from __future__ import annotations

import functools
import logging
import multiprocessing
import os
import pickle
import signal
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self

import pytest
from scenario_support.inside import connection_of
from scenario_support.observing import listing, put_each

import shmbroker
from shmbroker import exceptions, workers
from shmbroker.workers import _handle, _Options, _serve, _set_aside, _set_aside_first, _work

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture(autouse=True)
def waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a worker look at its orders every few milliseconds."""
    monkeypatch.setattr(workers, "_WAIT_SECONDS", 0.005)


def options_for(queue: shmbroker.Queue, *, prefetch: int = 1, attempts: int | None = 5) -> _Options:
    """What a worker of this queue is told."""
    return _Options(queue.name, connection_of(queue).broker_name, prefetch, attempts, f"{queue.name}.set-aside")


def empty(queue: shmbroker.Queue) -> Callable[[], bool]:
    """Whether all messages were dealt with; then a worker ends."""
    return lambda: queue.statistics().message_count == 0


def delivered_again(queue: shmbroker.Queue, bodies: str, times: int = 1) -> None:
    """Put messages that were delivered so often before."""
    put_each(queue, bodies)
    for _ in range(times):
        queue.get_many(len(bodies), timeout=0).nack()


class Seen:
    """A function of a pool, which notes messages, and what other users see meanwhile."""

    def __init__(self, queue: shmbroker.Queue) -> None:
        self.queue = queue
        self.bodies = ""
        self.ready: list[int] = []
        self.prefetch: list[list[int]] = []

    def __call__(self, message: shmbroker.Message) -> None:
        """Note it."""
        self.bodies += bytes(message).decode()
        self.ready.append(self.queue.statistics().ready)
        self.prefetch.append([one.prefetch for one in connection_of(self.queue).consumers() if not one.waiting])


# ---- serving ----


@pytest.mark.parametrize("prefetch", [1, 2, 3])
def test_messages_that_come_for_the_first_time(queue: shmbroker.Queue, prefetch: int) -> None:
    """They are handled one after the other by one consumer, which prefetches, and each is acknowledged."""
    put_each(queue, "ABC")
    seen = Seen(queue)
    _serve(seen, options_for(queue, prefetch=prefetch), empty(queue))
    assert (seen.bodies, seen.prefetch) == ("ABC", [[prefetch]] * 3)
    assert (queue.statistics().acked, connection_of(queue).consumers()) == (3, [])


def test_messages_that_come_again_are_alone(queue: shmbroker.Queue) -> None:
    """Meanwhile there is no consumer, and the others are in the queue; then it prefetches as before."""
    delivered_again(queue, "AB")
    put_each(queue, "C")
    seen = Seen(queue)
    _serve(seen, options_for(queue, prefetch=2), empty(queue))
    assert (seen.bodies, seen.ready, seen.prefetch) == ("ABC", [2, 1, 0], [[], [], [2]])
    assert queue.statistics().acked == 3


def test_a_worker_that_prefetches_nothing_keeps_its_consumer(queue: shmbroker.Queue) -> None:
    """A message that comes again is alone anyway."""
    delivered_again(queue, "AB")
    seen = Seen(queue)
    _serve(seen, options_for(queue), empty(queue))
    assert (seen.bodies, seen.prefetch) == ("AB", [[1], [1]])


@pytest.mark.parametrize(("attempts", "handled", "aside"), [(1, "", "A"), (2, "A", ""), (None, "A", "")])
def test_a_message_is_tried_so_often(queue: shmbroker.Queue, attempts: int | None, handled: str, aside: str) -> None:
    """Beyond that it is set aside, and the worker goes on; without a limit it never is."""
    delivered_again(queue, "A")
    put_each(queue, "B")
    seen = Seen(queue)
    _serve(seen, options_for(queue, attempts=attempts), empty(queue))
    assert seen.bodies == f"{handled}B"
    found = connection_of(queue).queue("q.set-aside")
    assert "".join(bytes(one).decode() for one in found.browse()) == aside


def test_a_worker_waits_for_messages(queue: shmbroker.Queue) -> None:
    """Until it is told to end; it looks again and again."""
    seen, looks = Seen(queue), iter([False, False, True])

    def ended() -> bool:
        if not seen.bodies and connection_of(queue).consumers():  # it found nothing
            put_each(queue, "A")
        return next(looks)

    _serve(seen, options_for(queue), ended)
    assert (seen.bodies, list(looks)) == ("A", [])


def test_a_worker_that_ends_returns_what_it_prefetched(queue: shmbroker.Queue) -> None:
    """Those messages do not count as delivered."""
    put_each(queue, "ABC")
    seen = Seen(queue)
    _serve(seen, options_for(queue, prefetch=3), lambda: bool(seen.bodies))
    assert (seen.bodies, listing(queue)) == ("A", ["B", "C"])
    assert [one.delivery_count for one in queue.get_many(2, timeout=0)] == [1, 1]


def test_a_worker_makes_nothing(queue: shmbroker.Queue, broker_name: str) -> None:
    """Neither a broker nor a queue: it says that there is none."""
    with pytest.raises(exceptions.NotFound, match="no queue 'none'"):
        _serve(print, _Options("none", broker_name, 1, 5, "aside"), lambda: True)
    assert connection_of(queue).queue_names() == ["q"]
    with pytest.raises(exceptions.BrokerNotFound):
        _serve(print, _Options("q", f"{broker_name}-none", 1, 5, "aside"), lambda: True)
    assert f"{broker_name}-none" not in shmbroker.brokers()


# ---- one message ----


def raising(error: BaseException) -> Callable[[shmbroker.Message], None]:
    """A function that raises this, in another one."""

    def deeper() -> None:
        raise error

    def outer(_: shmbroker.Message) -> None:
        deeper()

    return outer


def test_a_function_that_raises_an_error(queue: shmbroker.Queue, caplog: pytest.LogCaptureFixture) -> None:
    """The message goes back, the worker ends with exit code 1, one line says what and where, and DEBUG has the rest."""
    put_each(queue, "A")
    message, error = queue.get(timeout=0), ValueError("two\nlines")
    with caplog.at_level(logging.DEBUG, "shmbroker.workers"), pytest.raises(SystemExit) as ended:
        _handle(raising(error), message)
    assert (ended.value.code, message.settled, listing(queue)) == (1, True, ["A"])
    assert queue.get(timeout=0).delivery_count == 2
    line, trace = [record for record in caplog.records if record.name == "shmbroker.workers"]
    deepest = raising.__code__.co_firstlineno + 4
    assert (line.levelname, trace.levelname) == ("ERROR", "DEBUG")
    assert line.getMessage() == (
        f"raising.<locals>.outer raised ValueError: two lines ({__file__}:{deepest}) for {message!r}"
    )
    assert trace.getMessage() == "traceback of ValueError: two lines"
    assert trace.exc_info is not None
    assert trace.exc_info[1] is error


def test_a_function_without_a_name(queue: shmbroker.Queue, caplog: pytest.LogCaptureFixture) -> None:
    """The line shows it as it is."""
    put_each(queue, "A")
    function: Callable[..., Any] = functools.partial(int, "x")
    with pytest.raises(SystemExit):
        _handle(function, queue.get(timeout=0))
    assert f"{function!r} raised TypeError: " in caplog.text


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(0)])
def test_a_function_that_ends_the_worker(
    queue: shmbroker.Queue, caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    """The message goes back, the exception stays what it is, and nothing is logged."""
    put_each(queue, "A")
    message = queue.get(timeout=0)
    with pytest.raises(type(error)) as ended:
        _handle(raising(error), message)
    assert ended.value is error
    assert (message.settled, listing(queue), caplog.records) == (True, ["A"], [])


def test_a_function_that_settles_its_message(queue: shmbroker.Queue) -> None:
    """It may; if it raises as well, the worker ends all the same."""
    put_each(queue, "AB")
    _handle(shmbroker.Message.reject, queue.get(timeout=0))

    def settle_and_fail(message: shmbroker.Message) -> None:
        message.ack()
        raise ValueError

    with pytest.raises(SystemExit):
        _handle(settle_and_fail, queue.get(timeout=0))
    assert (listing(queue), queue.statistics().acked) == ([], 1)


def test_a_message_that_is_set_aside(queue: shmbroker.Queue, caplog: pytest.LogCaptureFixture) -> None:
    """It is as it was, but for two headers, and lives for ever; the log says where it is."""
    properties = shmbroker.BasicProperties(headers={"a": 1}, expiration="3600000", message_id="m")
    queue.put(b"A", key="k", properties=properties)
    queue.get(timeout=0).nack()
    message = queue.get(timeout=0)
    shown = repr(message)
    _set_aside(queue, message, options_for(queue))
    (found,) = connection_of(queue).queue("q.set-aside", passive=True).browse()
    headers = {"a": 1, "x-shmbroker-queue": "q", "x-shmbroker-attempts": 1}
    assert (bytes(found), found.key, found.expires_at) == (b"A", "k", None)
    assert found.properties == shmbroker.BasicProperties(headers=headers, message_id="m")
    assert (queue.statistics().acked, listing(queue)) == (1, [])
    assert f"{shown.replace('unsettled', 'settled')} was tried 1 times: it is in queue 'q.set-aside' now" in caplog.text


@pytest.mark.parametrize(("attempts", "aside"), [(0, "A"), (1, ""), (None, "")])
def test_the_first_message_is_set_aside(queue: shmbroker.Queue, attempts: int | None, aside: str) -> None:
    """If it was tried that often: another worker may have been faster, then the first is another one and stays."""
    put_each(queue, "A")
    _set_aside_first(queue, options_for(queue, attempts=attempts))
    found = connection_of(queue).queue("q.set-aside")
    assert ("".join(bytes(one).decode() for one in found.browse()), listing(queue)) == (aside, [] if aside else ["A"])
    assert queue.get(timeout=0).delivery_count == 1 if not aside else len(queue) == 0


def test_there_may_be_nothing_to_set_aside(queue: shmbroker.Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for that."""
    times: list[float | None] = []
    get = shmbroker.Queue.get
    monkeypatch.setattr(shmbroker.Queue, "get", lambda one, timeout: times.append(timeout) or get(one, timeout=timeout))
    _set_aside_first(queue, options_for(queue))
    assert times == [0]


def test_what_is_set_aside_lives_as_long_as_its_queue_says(queue: shmbroker.Queue) -> None:
    """As of what is put there."""
    connection_of(queue).queue("q.set-aside", message_ttl=3600)
    put_each(queue, "A")
    _set_aside(queue, queue.get(timeout=0), options_for(queue))
    (found,) = connection_of(queue).queue("q.set-aside", passive=True).browse()
    assert found.expires_at is not None


@pytest.mark.parametrize("ttl", [0.0, 2e8])
def test_what_is_set_aside_lives_for_any_time_that_a_queue_may_have(queue: shmbroker.Queue, ttl: float) -> None:
    """Also for no time, and for longer than a put may say: the message leaves the queue, and the worker goes on."""
    connection_of(queue).queue("q.set-aside", message_ttl=ttl)
    delivered_again(queue, "A", 1)
    put_each(queue, "B")
    seen = Seen(queue)
    _serve(seen, options_for(queue, attempts=1), empty(queue))
    aside = connection_of(queue).queue("q.set-aside", passive=True)
    assert (seen.bodies, queue.statistics().acked) == ("B", 2)
    if ttl:
        (found,) = aside.browse()
        assert found.expires_at == pytest.approx(time.time() + ttl, abs=3600)
    else:
        assert listing(aside) == []


@pytest.mark.parametrize("options", [{}, {"headers": {"a": 1}}, {"properties": shmbroker.BasicProperties(app_id="x")}])
def test_what_is_set_aside_keeps_its_priority(queue: shmbroker.Queue, options: dict[str, Any]) -> None:
    """Whether it was put with headers or properties, or without."""
    queue.put(b"A", priority=3, **options)
    _set_aside(queue, queue.get(timeout=0), options_for(queue))
    (found,) = connection_of(queue).queue("q.set-aside", passive=True).browse()
    assert (found.priority, found.headers.get("a"), found.properties.app_id) == (
        3,
        options.get("headers", {}).get("a"),
        "x" if "properties" in options else None,
    )


def test_a_message_whose_headers_have_no_room_for_two_more(
    queue: shmbroker.Queue, caplog: pytest.LogCaptureFixture
) -> None:
    """It is set aside with its own; the log says where it came from."""
    headers = {"a": "x" * 59_980}
    queue.put(b"A", headers=headers)
    _set_aside(queue, queue.get(timeout=0), options_for(queue))
    (found,) = connection_of(queue).queue("q.set-aside", passive=True).browse()
    assert (bytes(found), found.headers, listing(queue)) == (b"A", headers, [])
    assert "<Message 0 of 'q', 1 bytes, settled> was tried 0 times: it is in queue 'q.set-aside' now" in caplog.text


def test_a_message_that_cannot_be_set_aside(queue: shmbroker.Queue, caplog: pytest.LogCaptureFixture) -> None:
    """It goes back uncounted, the worker ends with exit code 1, and the log says why."""
    connection_of(queue).queue("q.set-aside", max_length=1).put(b"there before")
    delivered_again(queue, "A", 2)
    message = queue.get(timeout=0)
    with pytest.raises(SystemExit) as ended:
        _set_aside(queue, message, options_for(queue, attempts=2))
    assert (ended.value.code, message.settled) == (1, True)
    assert queue.get(timeout=0).delivery_count == 3
    assert "was tried 2 times, and queue 'q.set-aside' has no room for it: " in caplog.text


# ---- the process ----


class Answer:
    """What came through the pipe to the pool; a pool that does not listen any more is an error."""

    def __init__(self, *, listens: bool = True) -> None:
        self.listens, self.closed = listens, False
        self.said: list[str] = []

    def send(self, problem: str) -> None:
        """Note it."""
        if not self.listens:
            raise BrokenPipeError
        self.said.append(problem)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.closed = True


@pytest.fixture
def signals(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let this process be a worker: a child of its parent; its signals are put back."""
    monkeypatch.setattr(multiprocessing, "parent_process", lambda: SimpleNamespace(pid=os.getppid()))
    numbers = (signal.SIGTERM, signal.SIGINT)
    before, blocked = [signal.getsignal(number) for number in numbers], signal.pthread_sigmask(signal.SIG_BLOCK, [])
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


FOUND: list[Any] = []


def end_the_worker(message: shmbroker.Message) -> None:
    """Tell this process to end, and note how it takes Ctrl-C."""
    FOUND[:] = [bytes(message), signal.getsignal(signal.SIGINT), signal.pthread_sigmask(signal.SIG_BLOCK, [])]
    os.kill(os.getpid(), signal.SIGTERM)


def fail_to_load() -> None:
    """Raise what a module may."""
    text = "no\nsuch module"
    raise ImportError(text)


class Unloadable:
    """Cannot be made of its pickle."""

    def __reduce__(self) -> Any:  # noqa: ANN401 (what pickle takes)
        return fail_to_load, ()


@pytest.mark.usefixtures("signals")
@pytest.mark.parametrize("listens", [True, False])
def test_a_worker_finishes_the_message_in_hand(queue: shmbroker.Queue, *, listens: bool) -> None:
    """On SIGTERM; it is deaf to Ctrl-C, which it does not block; the pool is told that it has the function."""
    put_each(queue, "AB")
    FOUND.clear()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    answer = Answer(listens=listens)
    _work(pickle.dumps(end_the_worker), options_for(queue), answer)
    assert [b"A", signal.SIG_IGN, set()] == FOUND
    assert (listing(queue), queue.statistics().acked) == (["B"], 1)
    assert (answer.said, answer.closed) == ([""] if listens else [], True)


@pytest.mark.usefixtures("signals")
def test_a_worker_whose_parent_is_gone(queue: shmbroker.Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends, and takes nothing."""
    monkeypatch.setattr(multiprocessing, "parent_process", lambda: SimpleNamespace(pid=os.getpid()))
    put_each(queue, "A")
    _work(pickle.dumps(print), options_for(queue), Answer())
    assert listing(queue) == ["A"]


@pytest.mark.usefixtures("signals")
def test_a_worker_that_cannot_load_its_function(queue: shmbroker.Queue) -> None:
    """It tells the pool in a line why, and ends with exit code 1 without a message."""
    put_each(queue, "A")
    answer = Answer()
    with pytest.raises(SystemExit) as ended:
        _work(pickle.dumps(Unloadable()), options_for(queue), answer)
    assert (ended.value.code, answer.said, answer.closed) == (1, ["ImportError: no such module"], True)
    assert queue.get(timeout=0).delivery_count == 1


@pytest.mark.usefixtures("signals")
@pytest.mark.parametrize(
    ("error", "code"),
    [
        (exceptions.ConnectionClosedByBroker(320, "purged"), None),
        (exceptions.NotAllowed(530, "not allowed"), 1),
        (exceptions.NotFound(404, "no queue"), 1),
    ],
)
def test_a_worker_that_the_broker_stops(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception, code: int | None
) -> None:
    """A purge is no error; anything else is told in a line, and is exit code 1."""

    def serve(*_: object) -> None:
        raise error

    monkeypatch.setattr(workers, "_serve", serve)
    ended: SystemExit | None = None
    try:
        _work(pickle.dumps(print), _Options("q", "b", 1, 5, "aside"), Answer())
    except SystemExit as exit_:
        ended = exit_
    assert (ended and ended.code) == code
    lines = [] if code is None else [f"worker of queue 'q' of broker 'b': {error}"]
    assert [record.getMessage() for record in caplog.records] == lines
