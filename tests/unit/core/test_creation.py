# SPDX-License-Identifier: Apache-2.0
"""The files of a new broker: all of them or none, whatever meets those who make them."""

from __future__ import annotations

import fcntl
import json
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from scenario_support.brokers import files, remove_files
from scenario_support.interrupting import INTERRUPTED_AT
from scenario_support.processes import WATCHDOG_SECONDS, run_python

import shmbroker
from shmbroker._core import segments

if TYPE_CHECKING:
    from collections.abc import Iterator

MEMORY = 32 << 20
WHOLE = {"0", "lock", "journal-0", "journal-1"}

# Makes a broker, interrupted before some instruction of the package, and prints what is there afterwards.
CREATED_AT_EVERY_INSTRUCTION = f"""{INTERRUPTED_AT}
    from pathlib import Path

    from shmbroker._core import segments

    name, (mode, memory, step) = sys.argv[1], map(int, sys.argv[2:])
    path = segments.path_of(name)

    def create():
        segments.create(path, name, memory, mode)

    number, found = 0, set()
    while interrupted_at(number, create):
        files = [file.name[len(path):] for file in Path(segments.DIRECTORY).glob(path[1:] + ".*")]
        found.add(" ".join(sorted(files)))
        segments.remove(path, segments.identity(path))
        for file in Path(segments.DIRECTORY).glob(path[1:] + ".*"):
            file.unlink()
        number += step
    segments.remove(path, segments.identity(path))
    print(json.dumps([number, sorted(found)]))
"""


def suffixes(name: str) -> set[str]:
    """The files of a broker, without its name."""
    return {file.rpartition(".")[2] for file in files(name)}


@pytest.mark.parametrize(("mode", "step"), [(0o600, 1), (0o660, 7)])
def test_an_interrupted_creation_leaves_a_whole_broker_or_nothing(broker_name: str, mode: int, step: int) -> None:
    """Wherever a signal's handler raises: one that is visible has its lock and its journals, and stays.

    Other processes may use it by then.
    """
    done = run_python(CREATED_AT_EVERY_INSTRUCTION, broker_name, str(mode), str(MEMORY), str(step))
    assert done.returncode == 0, done.stderr
    number, found = json.loads(done.stdout)
    assert number > 100
    least = WHOLE if mode == 0o600 else WHOLE | {"1", "2", "3", "4"}
    assert [set(names.split()) for names in found] == [set(), least]


@pytest.fixture
def unmade(broker_name: str) -> Iterator[str]:
    """Give the name of a broker that others make; remove what they leave."""
    yield broker_name
    remove_files(broker_name)


class SecondMaker:
    """A thread that makes the same broker while the first one is in the middle of it.

    Args:
        name: Of the broker.
        monkeypatch: Has the second one say that it waits for the first, or that it goes past it.
    """

    def __init__(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.there, self.first_has_ended = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=shmbroker.Broker(name, memory=MEMORY).create)
        self._flock = fcntl.flock
        monkeypatch.setattr(segments, "_PATIENCE_SECONDS", WATCHDOG_SECONDS)
        monkeypatch.setattr(segments, "fcntl", SimpleNamespace(**vars(fcntl) | {"flock": self._locks}))

    def begin(self) -> None:
        """Starts it, and waits until it meets the first one, or would make the first segment beside it."""
        self._thread.start()
        assert self.there.wait(WATCHDOG_SECONDS)

    def end(self) -> None:
        """Tells it that the first one is done, and waits for its end."""
        self.first_has_ended.set()
        self._thread.join(WATCHDOG_SECONDS)
        assert not self._thread.is_alive()

    def is_current(self) -> bool:
        """Is this its thread?"""
        return threading.current_thread() is self._thread

    def meets(self) -> None:
        """Says that it is there, and waits for the end of the first one."""
        self.there.set()
        assert self.first_has_ended.wait(WATCHDOG_SECONDS)

    def _locks(self, descriptor: int, operation: int) -> None:
        if self.is_current() and self.there.is_set():
            # It has met the first one. It must not get the lock after the first one let go of it, and before that one
            # takes its files back: each would wait for the other.
            assert self.first_has_ended.wait(WATCHDOG_SECONDS)
        try:
            self._flock(descriptor, operation)
        except BlockingIOError:
            if self.is_current():
                self.there.set()
            raise


def test_who_fails_to_make_a_broker_leaves_the_next_one_whole(unmade: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that finds no room takes its files back; another one that makes the same broker meanwhile has all of its."""
    second, make_first = SecondMaker(unmade, monkeypatch), segments._make_first  # noqa: SLF001

    def fails_or_waits(*arguments: object) -> bool:
        if second.is_current():
            second.meets()
            return make_first(*arguments)  # type: ignore[arg-type] # what it was called with
        second.begin()
        raise segments.no_room(segments.path_of(unmade), 0, MEMORY)

    monkeypatch.setattr(segments, "_make_first", fails_or_waits)
    with pytest.raises(shmbroker.OutOfMemory):
        shmbroker.Broker(unmade, memory=MEMORY).create()
    second.end()
    assert suffixes(unmade) >= WHOLE
    with shmbroker.connect(unmade, create=False) as connection:
        connection.queue("q").put(b"m")
    shmbroker.Broker(unmade).stop(purge=True)


def test_who_fails_after_another_made_the_broker_removes_nothing(unmade: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was stopped for long finds that another one had no patience, and went on with its files."""
    monkeypatch.setattr(segments, "_PATIENCE_SECONDS", 0.01)
    make_first = segments._make_first  # noqa: SLF001

    def fails_beside(*_: object) -> bool:
        monkeypatch.setattr(segments, "_make_first", make_first)
        shmbroker.Broker(unmade, memory=MEMORY).create()
        raise segments.no_room(segments.path_of(unmade), 0, MEMORY)

    monkeypatch.setattr(segments, "_make_first", fails_beside)
    with pytest.raises(shmbroker.OutOfMemory):
        shmbroker.Broker(unmade, memory=MEMORY).create()
    assert suffixes(unmade) >= WHOLE
