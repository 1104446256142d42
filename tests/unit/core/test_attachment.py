# SPDX-License-Identifier: Apache-2.0
"""The attachment of a process to a broker: its users, its growth, and the errors it words."""

from __future__ import annotations

import gc
import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from scenario_support.brokers import remove_files, segment
from scenario_support.core_calls import Noted, Replaced
from scenario_support.inside import core_of
from scenario_support.interrupting import SIGNALLED_AT
from scenario_support.processes import run_python

import shmbroker
from shmbroker._core import attachment, connection, native, segments
from shmbroker._core.attachment import Attachment, User, acquire, release
from shmbroker._core.connection import CoreConnection
from shmbroker.exceptions import ConnectionClosedByBroker, CorruptSegment, NotAllowed, OutOfMemory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from shmbroker.statistics import ConnectionInfo

LIMIT = 32 << 20
REASON = "no room at all, says the test"
ATTEMPTS = 1000
"""To grow; more than a call makes that asks for memory until it is told that there is none."""


@pytest.fixture
def path(broker_name: str) -> str:
    """Make a broker that no process has attached to."""
    shmbroker.Broker(broker_name, memory=LIMIT).create()
    return segments.path_of(broker_name)


@pytest.fixture
def empty(broker_name: str) -> Iterator[Attachment]:
    """Attach to a broker without any segment for messages."""
    path = segments.path_of(broker_name)
    assert segments.create(path, broker_name, LIMIT, 0o600)
    attached = acquire(path)
    yield attached
    release(attached)


@pytest.fixture
def no_room() -> Iterator[pytest.MonkeyPatch]:
    """Let no broker grow, until this is undone."""
    left = [ATTEMPTS]

    def grow(*_: object) -> None:
        left[0] -= 1
        assert left[0] > 0, "asked for another segment again and again"
        raise OutOfMemory(REASON)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(segments, "grow", grow)
        yield patched


def opened(path: str) -> int:
    """How many of a broker's files this process has open."""
    gc.collect()
    descriptors = list(Path("/proc/self/fd").iterdir())
    return sum(one.is_symlink() and path[1:] in str(one.readlink()) for one in descriptors)


def arena(path: str) -> list[str]:
    """The segments of a broker, its first apart."""
    files = Path(segments.DIRECTORY).glob(f"{path[1:]}.*")
    return sorted(file.suffix[1:] for file in files if file.suffix[1:].isdigit() and file.suffix != ".0")


# ---- users ----


def test_the_last_user_detaches(path: str) -> None:
    """Two connections share one attachment; the process is detached when both are closed."""
    one = CoreConnection(path, "one")
    files = opened(path)
    two = CoreConnection(path, "two")
    assert two.attachment is one.attachment
    assert opened(path) == files > 0
    two.close()
    assert opened(path) == files
    assert two.attached is False
    one.close()
    assert opened(path) == 0
    assert path not in attachment._attached  # noqa: SLF001


def test_a_user_is_noted(path: str) -> None:
    """The first user and one that comes later know that they have it, until they give it back."""
    first, second = User(), User()
    attached = acquire(path, first)
    assert acquire(path, second) is attached
    for user in first, second:
        assert (user.attachment, user.attached) == (attached, True)
    assert attached.users == 2
    release(attached, first)
    assert (first.attached, second.attached, attached.users) == (False, True, 1)
    release(attached, second)
    assert (second.attached, attached.users, attached.handle) == (False, 0, None)
    assert opened(path) == 0


def test_the_attachment_of_a_broker_that_was_purged_goes_with_its_last_user(path: str) -> None:
    """A new one takes its place at once; the old one that is given back later does not end the new one."""
    old, user = acquire(path), User()
    old.set_closing()
    segments.remove(path, segments.identity(path))
    shmbroker.Broker(segments.name_of(path), memory=LIMIT).create()
    files = opened(path)
    new = acquire(path, user)
    assert (new is old, user.attachment, user.attached) == (False, new, True)
    assert acquire(path) is new
    assert opened(path) == 2 * files
    release(old)
    assert opened(path) == files
    assert acquire(path) is new
    for _ in range(3):
        release(new)
    assert opened(path) == 0


def test_who_finds_no_broker_is_no_user(path: str) -> None:
    """The broker was purged and is not there: whoever asks for it has nothing, and the old user still has its own."""
    old, user = acquire(path), User()
    old.set_closing()
    segments.remove(path, segments.identity(path))
    with pytest.raises(shmbroker.BrokerNotFound):
        acquire(path, user)
    assert (user.attached, old.users) == (False, 1)
    release(old)
    assert opened(path) == 0


def test_an_attachment_that_another_thread_gave_back_is_not_used(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its handle is gone before it is forgotten: whoever comes in between attaches anew."""
    gone = acquire(path)
    release(gone)
    monkeypatch.setitem(attachment._attached, path, gone)  # noqa: SLF001
    new, user = acquire(path), User()
    assert new is not gone
    assert acquire(path, user) is new
    release(new, user)
    release(new)
    assert opened(path) == 0


def test_an_attachment_of_the_parent_is_not_used(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A child attaches anew, and leaves that of its parent alone: its memory may be in use by what was inherited."""
    parents, user = acquire(path), User()
    files = opened(path)
    with monkeypatch.context() as patched:
        patched.setattr(parents, "_process", os.getpid() + 1)
        childs = acquire(path, user)
        assert childs is not parents
        assert (user.attachment, user.attached) == (childs, True)
        assert acquire(path) is childs
        assert opened(path) == 2 * files
    release(childs)
    release(childs)
    while parents.users:
        release(parents)
    assert opened(path) == 0


def test_a_child_knows_nothing_of_its_parents_attachments(path: str) -> None:
    """Its table of attachments is empty, so that it attaches as a process of its own."""
    attached = acquire(path)
    child = os.fork()
    if child == 0:
        os._exit(len(attachment._attached))  # noqa: SLF001
    assert os.waitpid(child, 0)[1] == 0
    assert acquire(path) is attached
    release(attached)
    release(attached)


def test_the_end_of_the_object_is_not_the_end_of_its_use(path: str) -> None:
    """The garbage collector may finalize an attachment before the connections that use it: they still can."""
    core = CoreConnection(path, "one")
    files = opened(path)
    core.attachment.__del__()
    assert opened(path) == files
    assert core.queue_slots() == []
    core.close()
    assert opened(path) == 0


class InterruptError(BaseException):
    """What a signal's handler raises."""


class InterruptedAttachment(Attachment):
    """One in which a signal's handler raises as soon as it has its handle."""

    @property
    def handle(self) -> object:
        """The handle of the core."""
        return self.__dict__.get("handle")

    @handle.setter
    def handle(self, handle: object) -> None:
        self.__dict__["handle"] = handle
        if handle is not None:
            raise InterruptError


def test_a_signal_as_soon_as_there_is_a_handle(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process detaches once: a second time would free what is freed."""
    detached = Noted(native.slow.sb_broker_detach)
    monkeypatch.setattr(attachment, "slow", Replaced(native.slow, sb_broker_detach=detached))
    with pytest.raises(InterruptError):
        InterruptedAttachment(path)
    assert opened(path) == 0
    assert len(detached.calls) == 1


def test_a_half_made_attachment_of_the_parent(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a signal's handler left unknown goes with the object in its own process only."""
    half_made = Attachment(path)
    detached = Noted(native.slow.sb_broker_detach)
    with monkeypatch.context() as patched:
        patched.setattr(attachment, "slow", Replaced(native.slow, sb_broker_detach=detached))
        patched.setattr(half_made, "_process", os.getpid() + 1)
        half_made.__del__()
    assert detached.calls == []
    del half_made
    assert opened(path) == 0


# Interrupts the release of an attachment by its last user wherever a signal's handler may raise. A user that still has
# the attachment then releases it once more.
RELEASE_WHERE_SIGNALS_COME = f"""{SIGNALLED_AT}
    from shmbroker._core import attachment, segments

    def opened():
        descriptors = [f"/proc/self/fd/{{one}}" for one in os.listdir("/proc/self/fd")]
        return sum(os.path.islink(one) and path[1:] in os.readlink(one) for one in descriptors)

    path, number, more, wrong = segments.path_of(sys.argv[1]), 0, True, []
    while more:
        user = attachment.User()
        attached = attachment.acquire(path, user)
        files = opened()
        more = signalled_at(number, lambda: attachment.release(attached, user))
        found = user.attached, attached.users, opened()
        if found not in ((True, 1, files), (False, 0, 0)):
            wrong.append((number, found))
        if user.attached:
            attachment.release(attached, user)
        number += 1
    print(json.dumps([number, wrong, files]))
"""


def test_an_interrupted_release_detaches(path: str) -> None:
    """Wherever a signal's handler raises: the user still has the attachment, or the process is detached."""
    done = run_python(RELEASE_WHERE_SIGNALS_COME, segments.name_of(path))
    assert done.returncode == 0, done.stderr
    number, wrong, files = json.loads(done.stdout)
    assert min(number, files) > 1
    assert wrong == []


# ---- growth ----


def test_a_broker_grows_to_its_limit(empty: Attachment) -> None:
    """Each time by one segment, and by none when there are all."""
    limit = empty.facts().segments_limit
    assert limit > 1
    for number in range(1, limit + 1):
        assert empty.facts().segments == number - 1
        empty.grow()
    for _ in range(2):
        empty.grow()
        assert empty.facts().segments == limit
        assert arena(empty.path) == [str(number) for number in range(1, limit + 1)]


class Contended:
    """A lock that another thread has first, which grows the broker meanwhile."""

    def __init__(self, grow: Callable[[], None]) -> None:
        """Let the other thread do this, once."""
        self._grow = [grow]

    def __enter__(self) -> None:
        """Wait for the other thread."""
        while self._grow:
            self._grow.pop()()

    def __exit__(self, *_: object) -> None:
        """Let the next one have it."""


def test_threads_that_need_memory_at_once_share_a_segment(empty: Attachment) -> None:
    """One that waits for another one to grow the broker adds nothing to it; later it grows again."""
    empty._grow_lock = Contended(empty.grow)  # noqa: SLF001
    for count in (1, 2):
        empty.grow()
        assert empty.facts().segments == count
        assert arena(empty.path) == [str(number + 1) for number in range(count)]


def test_the_first_growth_is_the_only_one(empty: Attachment) -> None:
    """A broker has memory to begin with; one that has some needs no more."""
    for _ in range(2):
        empty.grow_first()
        assert empty.facts().segments == 1


def test_no_memory_to_begin_with(empty: Attachment, no_room: pytest.MonkeyPatch) -> None:
    """The error says why there is none; later there may be some."""
    with pytest.raises(OutOfMemory, match=REASON):
        empty.grow_first()
    no_room.undo()
    empty.grow_first()
    assert empty.facts().segments == 1


def test_a_segment_that_does_not_fit_its_broker(empty: Attachment, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the core says of it is an error that names the broker."""
    grown = Replaced(native.slow, sb_broker_grown=lambda *_: native.slow.SB_CORRUPT)
    with monkeypatch.context() as patched:
        patched.setattr(attachment, "slow", grown)
        with pytest.raises(CorruptSegment, match=f"broker {empty.name!r}: shared memory contradicts itself"):
            empty.grow()


@pytest.mark.damaged
def test_a_broker_that_is_removed_does_not_grow(empty: Attachment) -> None:
    """The error is that of a broker that went, and no segment is left behind."""
    empty.set_closing()
    with pytest.raises(ConnectionClosedByBroker):
        empty.grow()
    assert arena(empty.path) == []


def test_without_room_calls_make_do_with_what_there_is(path: str, no_room: pytest.MonkeyPatch) -> None:
    """A call that needs another segment is told that there is no memory, with the reason; a later one grows."""
    with shmbroker.connect(segments.name_of(path), create=False) as connected:
        with pytest.raises(OutOfMemory, match=REASON):
            connected.queue("q")
        no_room.undo()
        core_of(connected).attachment.grow()
        connected.queue("q").put(b"A")


def test_a_broker_that_could_not_grow_tries_again_soon(empty: Attachment, no_room: pytest.MonkeyPatch) -> None:
    """The core is told when: not before, and not much later."""
    again = Noted(native.slow.sb_broker_grow_again)
    no_room.setattr(attachment, "slow", Replaced(native.slow, sb_broker_grow_again=again))
    before = time.monotonic_ns()
    empty.grow()
    after = time.monotonic_ns()
    ((handle, when),) = again.calls
    assert handle == empty.handle
    assert before + 100_000_000 <= when <= after + 100_000_000
    assert empty.facts().segments == 0


# ---- errors ----


def used(attached: Attachment, what: str = "") -> str:
    """What every error of a full broker begins with."""
    facts = attached.facts(in_full=True)
    free = facts.memory_limit - facts.memory_structures - facts.memory_bodies
    return (
        f"broker {attached.name!r} has no room{what}: {facts.memory_used} of {facts.memory_limit} bytes are used; "
        f"{facts.memory_structures} are kept for structures, {facts.memory_bodies} for bodies, {free} are free; "
        f"the longest body that fits now has {facts.memory_room} bytes"
    )


def test_the_error_of_a_full_broker(empty: Attachment, no_room: pytest.MonkeyPatch) -> None:
    """It says what is used; and why there is no more, from a failed growth until the next one that succeeds."""
    assert str(empty.full()) == used(empty)
    assert str(empty.full(" for it", "; held")) == used(empty, " for it") + "; held"
    empty.grow()
    assert str(empty.full(" for it", "; held")) == f"{used(empty, ' for it')}; held; {REASON}"
    no_room.undo()
    empty.grow()
    assert empty.facts().segments == 1
    assert str(empty.full()) == used(empty)


def test_a_broker_that_has_taken_more_than_its_limit_has_nothing_free(
    empty: Attachment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numbers that are read one after the other may add up to more than there is."""
    facts = empty.facts(in_full=True)
    facts = facts._replace(memory_bodies=facts.memory_limit + 1)
    monkeypatch.setattr(empty, "facts", lambda **_: facts)
    assert f"{facts.memory_bodies} for bodies, 0 are free" in str(empty.full())


def test_a_missing_segment_is_told(broker_name: str, path: str) -> None:
    """The error of a broker whose memory is not all there names the broker and what is wrong."""
    segment(broker_name, 1).unlink()
    with pytest.raises(CorruptSegment) as refused:
        acquire(path)
    remove_files(broker_name)
    assert refused.value.text == (
        f"broker {broker_name!r}: its shared memory contradicts itself: it counts segments that do not exist"
    )
    assert opened(path) == 0


def test_too_many_processes(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error of a process that finds no place says which, and how many places there are."""
    refuses = Replaced(native.slow, sb_broker_attach_at=lambda *_: native.slow.SB_LIMIT)
    monkeypatch.setattr(attachment, "slow", refuses)
    with pytest.raises(NotAllowed) as refused:
        Attachment(path)
    assert refused.value.code == 530
    assert refused.value.text == (
        f"NOT_ALLOWED - process {os.getpid()} refused: the limit of broker {segments.name_of(path)!r}, 4096 processes, "
        "is reached: all of these places are taken"
    )


def test_too_many_connections(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says how many are allowed and open, and how many of them are this process's."""
    core = CoreConnection(path, "one")
    monkeypatch.setattr(
        connection, "slow", Replaced(native.slow, sb_connection_open_at=lambda *_: native.slow.SB_LIMIT)
    )
    own = core.attachment.connections

    def connections() -> list[ConnectionInfo]:
        (mine,) = own()
        return [mine, mine.__class__(**{name: getattr(mine, name) for name in mine.__slots__} | {"pid": 1})]

    monkeypatch.setattr(core.attachment, "connections", connections)
    with pytest.raises(NotAllowed) as refused:
        CoreConnection(path, "two")
    assert refused.value.code == 530
    assert refused.value.text == (
        f"NOT_ALLOWED - connection 'two' refused: the limit of broker {segments.name_of(path)!r}, 4095 connections, "
        "is reached: 2 are open, 1 of them in this process"
    )
    core.close()


def test_connections_say_what_they_are(path: str) -> None:
    """Each with its number, name, process and counters, from the first to the last number."""
    before = time.time()
    core = CoreConnection(path, "one")
    core.count_channels(3)
    (found,) = core.attachment.connections()
    assert (found.id, found.name, found.pid, found.channels) == (core.id, "one", os.getpid(), 3)
    assert (found.consumers, found.holding) == (0, 0)
    assert before - 1 < found.created_at < time.time() + 1
    core.close()
