# SPDX-License-Identifier: Apache-2.0
"""What a broker object refuses, makes, and removes, and how it stands to the brokers of other users."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest
from scenario_support.brokers import files
from scenario_support.core_calls import Noted

import shmbroker
from shmbroker import broker as module
from shmbroker._broker import ending
from shmbroker._core import attachment, native, segments
from shmbroker.exceptions import AccessRefused, BrokerNotFound, CorruptSegment, OutOfMemory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

STRANGER = 65533


@pytest.mark.parametrize(
    ("given", "name"),
    [("orders", "orders"), (f"{os.getuid()}/orders", "orders"), (f"{STRANGER}/orders", f"{STRANGER}/orders"),
     (f"000{STRANGER}/7", f"{STRANGER}/7"), (f"00{os.getuid()}/7", "7")],
)  # fmt: skip
def test_the_name_of_a_broker(given: str, name: str) -> None:
    """The number of the calling user is left out of it, and so are zeros in front of a number."""
    assert shmbroker.Broker(given).name == name


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"memory": "16M"}, "memory=16777216: "),
        ({"memory": "65G"}, "memory="),
        ({"mode": 0o644}, "mode=0o644: 0o600 or"),
        ({"mode": [0o600]}, r"mode=\[384\]: 0o600 or"),
    ],
)
def test_options_that_are_refused(broker_name: str, options: dict[str, Any], text: str) -> None:
    """The error names the option when the object is made."""
    with pytest.raises(ValueError, match=text):
        shmbroker.Broker(broker_name, **options)


def test_a_folder_of_data_is_kept(broker_name: str) -> None:
    """It is an attribute of the broker."""
    assert shmbroker.Broker(broker_name, data_dir="/data").data_dir == "/data"


def test_memory_is_compared_in_whole_chunks(broker_name: str) -> None:
    """A limit that is not a multiple of a chunk is the same limit the second time."""
    memory = (64 << 20) + 1
    for _ in range(2):
        broker = shmbroker.Broker(broker_name, memory=memory)
        assert broker.create() is broker
    assert broker.statistics().memory_limit == 64 << 20


def test_a_broker_without_its_first_memory_is_removed(broker_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is raised, and no file stays."""

    def full(_: object) -> None:
        msg = "none is left"
        raise OutOfMemory(msg)

    monkeypatch.setattr(attachment.Attachment, "grow_first", full)
    with pytest.raises(OutOfMemory, match="none is left"):
        shmbroker.Broker(broker_name, memory="32M").create()
    assert files(broker_name) == []


def test_a_broker_of_another_user_is_not_made(broker_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only that user can make it; if it exists, there is nothing to make."""
    name = f"{STRANGER}/{broker_name}"
    with pytest.raises(BrokerNotFound, match=f"no broker '{name}', and only user {STRANGER} can make it"):
        shmbroker.Broker(name).create()
    monkeypatch.setattr(segments, "exists", lambda _: True)
    monkeypatch.setattr(segments, "_missing", lambda *_: [])
    broker = shmbroker.Broker(name)
    assert broker.create() is broker
    assert files(broker_name) == []


# ---- the end ----


class Child:
    """A process that a broker started."""

    returncode = 7

    def __init__(self, deeds: list[str], *, hangs: bool = False, beside: Callable[[], object] | None = None) -> None:
        """Note what is done with it; another thread does something beside the first look at it."""
        self._deeds, self._hangs, self._beside = deeds, hangs, beside

    def poll(self) -> int | None:
        """Whether it has ended, before that other thread did something."""
        self._deeds.append("look")
        seen, beside, self._beside = None if self._hangs else self.returncode, self._beside, None
        if beside is not None:
            beside()
        return seen

    def wait(self, seconds: float | None = None) -> int:
        """It ends, or does not in that time."""
        if seconds is not None and self.poll() is None:
            raise subprocess.TimeoutExpired([], seconds)
        self._deeds.append("wait")
        return self.returncode

    def kill(self) -> None:
        """It is ended by force."""
        self._deeds.append("kill")
        self._hangs = False


def with_child(name: str, deeds: list[str], *, hangs: bool = False, stopped_beside: bool = False) -> shmbroker.Broker:
    """Return a broker object with a child, which another thread may stop beside the first look at the child."""
    broker = shmbroker.Broker(name)
    child = Child(deeds, hangs=hangs, beside=broker.stop if stopped_beside else None)
    broker._child = child  # type: ignore[assignment] # noqa: SLF001
    return broker


@pytest.mark.parametrize("exists", [False, True])
@pytest.mark.parametrize("purge", [False, True])
def test_a_stop_waits_for_the_child(broker_name: str, *, purge: bool, exists: bool) -> None:
    """Until it has ended, also if the broker is gone already."""
    deeds: list[str] = []
    broker = with_child(broker_name, deeds)
    if exists:
        broker.create()
    broker.stop(purge=purge)
    assert deeds != []


def test_a_purge_of_what_cannot_be_read_waits_for_the_child(broker_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As any other purge."""
    deeds: list[str] = []
    broker = with_child(broker_name, deeds).create()
    monkeypatch.setattr(module, "attached_to", Mock(side_effect=CorruptSegment))
    broker.stop(purge=True)
    assert deeds != []


@pytest.mark.parametrize("purge", [False, True])
def test_a_stop_kills_a_child_that_does_not_end(
    broker_name: str,
    monkeypatch: pytest.MonkeyPatch,
    purge: bool,  # noqa: FBT001
) -> None:
    """Once: another stop finds that it has ended."""
    monkeypatch.setattr(ending, "PATIENCE_SECONDS", 0.0)
    deeds: list[str] = []
    broker = with_child(broker_name, deeds, hangs=True)
    for _ in range(2):
        broker.stop(purge=purge)
    assert [deed for deed in deeds if deed != "look"] == ["kill", "wait"]


def test_two_threads_stop_a_broker(broker_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them returns when the child has ended, also if the other one kills it meanwhile."""
    monkeypatch.setattr(ending, "PATIENCE_SECONDS", 0.0)
    deeds: list[str] = []
    with_child(broker_name, deeds, hangs=True, stopped_beside=True).stop()
    assert "kill" in deeds


def test_a_stop_in_a_forked_process(broker_name: str) -> None:
    """It leaves the child of its parent alone: it cannot wait for it, so it cannot know whose number that is."""
    deeds: list[str] = []
    broker = with_child(broker_name, deeds)
    forked = os.fork()
    if forked == 0:
        status = 1
        try:
            broker.stop()
            status = len(deeds)
        finally:
            os._exit(status)
    assert os.waitpid(forked, 0) == (forked, 0)


@pytest.fixture
def deeds(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Note what is done to the memory of a broker, which is there, and belongs to a stranger."""
    noted: list[object] = []

    @contextlib.contextmanager
    def attached(_: object) -> Iterator[SimpleNamespace]:
        yield SimpleNamespace(
            set_stopped=lambda *, stopped: noted.append(f"stopped={stopped}"),
            set_closing=lambda: noted.append("closing"),
            data_dir=None,
        )

    monkeypatch.setattr(module, "attached_to", attached)
    monkeypatch.setattr(segments, "identity", lambda _: (3, 4))
    monkeypatch.setattr(segments, "uid_of", lambda _: STRANGER)
    monkeypatch.setattr(segments, "remove", lambda path, what: noted.append((path, what)))
    monkeypatch.setattr(ending, "await_end", lambda *_: noted.append("ended"))
    monkeypatch.setattr(ending, "keepers_of", lambda _: [])
    return noted


@pytest.mark.parametrize("user", [0, STRANGER])
def test_a_purge(broker_name: str, deeds: list[object], monkeypatch: pytest.MonkeyPatch, user: int) -> None:
    """The user of the broker, or root, cuts off its clients before its memory goes, and waits for its housekeeper."""
    monkeypatch.setattr(os, "geteuid", lambda: user)
    shmbroker.Broker(broker_name).stop(purge=True)
    assert deeds == ["stopped=True", "closing", (segments.path_of(broker_name), (3, 4)), "ended"]


@pytest.mark.parametrize("user", [1, STRANGER + 1])
def test_who_may_not_purge(broker_name: str, deeds: list[object], monkeypatch: pytest.MonkeyPatch, user: int) -> None:
    """Another user may stop the processes of a broker, and is told who alone may purge it."""
    monkeypatch.setattr(os, "geteuid", lambda: user)
    with pytest.raises(AccessRefused, match=f"only user {STRANGER} can purge broker '{broker_name}'") as refused:
        shmbroker.Broker(broker_name).stop(purge=True)
    assert (refused.value.code, deeds) == (403, [])
    shmbroker.Broker(broker_name).stop()
    assert deeds == ["stopped=True", "ended"]


def test_the_end_of_a_with_block_stops_the_processes(broker_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory stays."""
    broker = shmbroker.Broker(broker_name)
    start, stop = Noted(lambda: broker), Noted(lambda: None)
    monkeypatch.setattr(broker, "start", start)
    monkeypatch.setattr(broker, "stop", stop)
    with broker as entered:
        assert (entered, start.calls, stop.calls) == (broker, [()], [])
    assert stop.calls == [()]


# ---- waiting for the housekeeper ----


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Give deadlines the moment 5, and each look at the clock the next one of these; sleeping takes one of them."""
    left: list[int] = []
    clock = SimpleNamespace(monotonic_ns=lambda: left[0], sleep=lambda _: left.pop(0))
    for one in (module, ending):
        monkeypatch.setattr(one, "time", clock)
    monkeypatch.setattr(native, "deadline", lambda _: 5)
    return left


def keeper(*missing: int, stopped: bool = True, closing: bool = False) -> Any:  # noqa: ANN401
    """An attachment whose housekeeper is missing (1), or not (0), one look after the other."""
    left = list(missing)
    facts = SimpleNamespace(stopped=stopped, closing=closing, housekeeper_pid=77)
    return SimpleNamespace(name="b", housekeeper_missing=lambda: bool(left.pop(0)), facts=lambda: facts, left=left)


def test_a_housekeeper_that_starts(times: list[int]) -> None:
    """It is waited for until it is there, also at the last moment."""
    times += [4, 5, 99]
    attached = keeper(1, 1, 0)
    module._await_housekeeper(attached, Child([], hangs=True))  # type: ignore[arg-type] # noqa: SLF001
    assert (attached.left, times) == ([], [99])


def test_a_housekeeper_that_does_not_start(times: list[int]) -> None:
    """The error comes after the deadline, and says how long it was waited for."""
    times += [5, 6, 99]
    with pytest.raises(shmbroker.Timeout, match=r"the housekeeper of broker 'b' did not start in 30.0 seconds"):
        module._await_housekeeper(keeper(1, 1), Child([], hangs=True))  # type: ignore[arg-type] # noqa: SLF001
    assert times == [6, 99]


def test_a_housekeeper_that_ends_at_once(times: list[int]) -> None:
    """The error has its status; there is none if another process is the housekeeper by then."""
    times += [4, 99]
    with pytest.raises(shmbroker.BrokerError, match="'b' ended immediately, with status 7") as failed:
        module._await_housekeeper(keeper(1, 1), Child([]))  # type: ignore[arg-type] # noqa: SLF001
    assert failed.value.code == 541
    attached = keeper(1, 0, 0)
    module._await_housekeeper(attached, Child([]))  # type: ignore[arg-type] # noqa: SLF001
    assert (attached.left, times) == ([], [99])


def test_a_housekeeper_that_ends(times: list[int]) -> None:
    """It is waited for until it is gone, also at the last moment, or until it is wanted again."""
    times += [4, 5, 99]
    attached = keeper(0, 0, 1)
    ending.await_end(attached, [])
    assert (attached.left, times) == ([], [99])
    ending.await_end(keeper(0, stopped=False), [])
    assert times == [99]


def test_the_housekeeper_of_a_broker_that_is_purged(times: list[int]) -> None:
    """It is waited for also if a call that began before the purge has started the broker again."""
    times += [4, 99]
    attached = keeper(0, 1, stopped=False, closing=True)
    ending.await_end(attached, [])
    assert (attached.left, times) == ([], [99])


def test_a_housekeeper_that_stays(times: list[int]) -> None:
    """The error comes after the deadline, and names its process."""
    times += [5, 6, 99]
    with pytest.raises(
        shmbroker.Timeout, match="'b', process 77, was told to end, and has not ended within 30 seconds"
    ):
        ending.await_end(keeper(0, 0), [])
    assert times == [6, 99]


def closing_late(looks: int, pid: int, name: str = segments.AUTOMATIC) -> Any:  # noqa: ANN401
    """An attachment whose housekeeper has given up its place; it lists a connection for some more looks."""
    one, left = SimpleNamespace(id=3, name=name, pid=pid, created_at=1.5), [looks]

    def connections() -> list[SimpleNamespace]:
        left[0] -= 1
        return [one] if left[0] >= 0 else []

    facts = SimpleNamespace(stopped=True, closing=False, housekeeper_pid=pid)
    return SimpleNamespace(
        name="b", housekeeper_missing=lambda: True, facts=lambda: facts, connections=connections, one=one
    )


def test_a_housekeeper_that_has_memory_still(times: list[int]) -> None:
    """It is waited for until its connection is closed, which gives the memory back."""
    times += [4, 5, 99]
    attached = closing_late(2, os.getpid())
    ending.await_end(attached, [attached.one])
    assert times == [99]


def test_a_housekeeper_that_is_killed_at_its_end(times: list[int]) -> None:
    """Its connection stays until a client reaps it: that is not waited for."""
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    times += [99]
    attached = closing_late(9, gone.pid)
    ending.await_end(attached, [attached.one])
    assert times == [99]


@pytest.mark.parametrize(("name", "found"), [("housekeeper", 1), ("automatic housekeeper", 1), ("mine", 0)])
def test_the_connections_of_a_housekeeper(name: str, found: int) -> None:
    """A process that serves a broker may have other connections to it: they are none of the housekeeper's."""
    assert len(ending.keepers_of(closing_late(1, 77, name))) == found


# ---- starting ----


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Note what is done with the housekeepers that are started, which are no processes."""
    noted: list[str] = []
    monkeypatch.setattr(module, "_started", lambda _: (noted.append("start"), Child(noted))[1])
    monkeypatch.setattr(module, "_await_housekeeper", lambda *_: noted.append("await"))
    return noted


def test_a_start(broker_name: str, started: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A housekeeper is started where none runs, whatever has become of the one before it."""
    broker = shmbroker.Broker(broker_name, memory="32M")
    assert broker.start() is broker
    assert started == ["start", "await"]
    broker.start()
    assert started == ["start", "await"] * 2
    with monkeypatch.context() as patched:
        patched.setattr(attachment.Attachment, "housekeeper_missing", lambda _: False)
        broker.start()
    assert len(started) == 4


def test_a_start_in_a_forked_process(broker_name: str, started: list[str]) -> None:
    """The housekeeper is that process's child then, for whose end it waits, and not the parent's any more."""
    broker = shmbroker.Broker(broker_name, memory="32M").create()
    forked = os.fork()
    if forked == 0:
        status = 1
        try:
            broker.start().stop()
            status = int(started != ["start", "await", "look"])
        finally:
            os._exit(status)
    assert os.waitpid(forked, 0) == (forked, 0)


def test_a_start_after_a_stop(broker_name: str, started: list[str]) -> None:
    """Clients may start housekeepers again."""
    broker = shmbroker.Broker(broker_name, memory="32M").create()
    broker.stop()
    with attachment.attached_to(segments.path_of(broker_name)) as attached:
        assert attached.facts().stopped
        broker.start()
        assert not attached.facts().stopped
    assert started == ["start", "await"]


class Replaced:
    """A broker whose housekeepers are given as their ids, one look after the other; what is done to it is noted.

    Attributes:
        automatic: the connections of automatic housekeepers.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, begins: list[bool], pids: list[int]) -> None:
        self.name = "b"
        self.noted: list[object] = []
        self.automatic: list[tuple[int, str]] = []
        self._begins, self._pids = begins, pids
        monkeypatch.setattr(module, "awaiting_place", self._awaiting)

    @contextlib.contextmanager
    def _awaiting(self, path: str) -> Iterator[None]:
        self.noted.append(f"waits for {path}")
        try:
            yield
        finally:
            self.noted.append("waits no longer")

    def begin(self) -> bool:
        """Becomes the housekeeper, or not."""
        self.noted.append("begin")
        return self._begins.pop(0)

    def facts(self) -> SimpleNamespace:
        """What the broker says."""
        return SimpleNamespace(housekeeper_pid=self._pids.pop(0) if len(self._pids) > 1 else self._pids[0])

    def connections(self) -> list[SimpleNamespace]:
        """Who is there."""
        return [SimpleNamespace(pid=pid, name=name) for pid, name in self.automatic]

    def set_stopped(self, *, stopped: bool) -> None:
        """Stops the broker, or lets it go on; wakes the housekeeper."""
        self.noted.append(f"stopped={stopped}")

    def replace(self, broker: shmbroker.Broker) -> list[object]:
        """Ends the housekeeper, and becomes it; what was done between the two ends of the wait."""
        one: Any = self
        broker._replace(one, one)
        assert (self.noted[0], self.noted[-1]) == (f"waits for {segments.path_of(broker.name)}", "waits no longer")
        return self.noted[1:-1]


def test_an_automatic_housekeeper_makes_way(
    broker_name: str, monkeypatch: pytest.MonkeyPatch, times: list[int]
) -> None:
    """It is woken until it has ended, and so is one that a client starts meanwhile; clients may do so all the time."""
    times += [4, 5, 5, 99]
    one = Replaced(monkeypatch, begins=[False, False, False, True], pids=[12, 0, 13])
    one.automatic = [(3, "one"), (12, segments.AUTOMATIC), (13, segments.AUTOMATIC)]
    wakes = ["begin", "stopped=False"]
    assert one.replace(shmbroker.Broker(broker_name)) == [*wakes, *wakes, *wakes, "begin"]
    assert times == [99]


def test_a_housekeeper_that_ends_while_it_is_looked_at(
    broker_name: str, monkeypatch: pytest.MonkeyPatch, times: list[int]
) -> None:
    """Its connection is no longer listed; that does not make it one that was started on purpose."""
    times += [4, 99]
    one = Replaced(monkeypatch, begins=[False, True], pids=[12, 0])
    assert one.replace(shmbroker.Broker(broker_name)) == ["begin", "stopped=False", "begin"]


def test_an_automatic_housekeeper_that_stays(
    broker_name: str, monkeypatch: pytest.MonkeyPatch, times: list[int]
) -> None:
    """The error comes after the deadline, and names its process; nobody is told to end any more."""
    times += [5, 6, 99]
    one = Replaced(monkeypatch, begins=[False, False], pids=[77])
    one.automatic = [(77, segments.AUTOMATIC)]
    with pytest.raises(
        shmbroker.Timeout, match="'b', process 77, was told to end, and has not ended within 30 seconds"
    ):
        one.replace(shmbroker.Broker(broker_name))
    assert (one.noted[-1], times) == ("waits no longer", [6, 99])


@pytest.mark.parametrize("pids", [[12], [13, 12]])
@pytest.mark.parametrize("connections", [[(12, "mine"), (13, segments.AUTOMATIC)], [(13, segments.AUTOMATIC)]])
def test_another_housekeeper_stays(
    broker_name: str,
    monkeypatch: pytest.MonkeyPatch,
    times: list[int],
    pids: list[int],
    connections: list[tuple[int, str]],
) -> None:
    """One that was started on purpose is not ended, also if it was faster than this process."""
    times += [4, 99]
    one = Replaced(monkeypatch, begins=[False, False], pids=pids)
    one.automatic, early = connections, len(pids) - 1
    with pytest.raises(shmbroker.BrokerError, match=f"NOT_ALLOWED - broker '{broker_name}' is being served") as failed:
        one.replace(shmbroker.Broker(broker_name))
    assert failed.value.code == 530
    assert one.noted[1:-1] == ["begin", "stopped=False"] * early + ["begin"]


def test_connections_are_listed_without_one(broker_name: str) -> None:
    """As a connection lists them; the call adds none."""
    broker = shmbroker.Broker(broker_name).create()
    assert broker.connections() == []
    with broker.connect(client_name="worker") as connection:
        assert broker.connections() == connection.connections()
        (found,) = broker.connections()
        assert (found.name, found.pid) == ("worker", os.getpid())


def test_connections_of_a_broker_that_does_not_exist(broker_name: str) -> None:
    """It is refused."""
    with pytest.raises(BrokerNotFound):
        shmbroker.Broker(broker_name).connections()
