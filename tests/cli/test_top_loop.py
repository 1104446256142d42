# SPDX-License-Identifier: Apache-2.0
"""`shmbroker top` without a broker to watch: when it looks, draws and ends, and its keyboard."""

from __future__ import annotations

import os
import pty
import sys
import termios
import time
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self

import pytest
from scenario_support.inside import connection_of

from shmbroker_cli.signals import Stopper
from shmbroker_cli.top import command, keyboard
from shmbroker_cli.top.command import _sort_index, _watch
from shmbroker_cli.top.keyboard import Keyboard
from shmbroker_cli.top.view import View

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Theatre:
    """A clock, a keyboard and a screen, all of them played."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, script: list[tuple[float, str]]) -> None:
        """Play a script of keys, each with the time at which it is pressed."""
        self.now, self.script = 100.0, script
        self.seen: list[tuple[object, ...]] = []
        self.options: dict[str, Any] = {}
        self.stopper = Stopper()
        monkeypatch.setattr(command, "time", SimpleNamespace(monotonic=lambda: self.now))
        monkeypatch.setattr(command, "take_sample", self.sample)
        monkeypatch.setattr(command, "compare", lambda before, now: (before and before.taken, now.taken))
        monkeypatch.setattr(command, "Keyboard", lambda: self)
        monkeypatch.setattr(command, "Live", self.live)
        monkeypatch.setattr(command, "Screen", lambda snapshot, view: (snapshot, view.paused))
        monkeypatch.setattr(command, "console", lambda: "the console")

    def sample(self, connection: str, broker: str) -> Any:  # noqa: ANN401 (what does for a sample)
        """Take a sample."""
        assert (connection, broker) == ("connection", "b")
        self.seen.append(("look", self.now))
        return SimpleNamespace(taken=self.now)

    @contextmanager
    def live(self, first: object, **options: Any) -> Iterator[Theatre]:  # noqa: ANN401 (of any option)
        """Be the screen."""
        self.seen.append(("begin", first))
        self.options = options
        yield self
        self.seen.append(("end",))

    def update(self, what: object, *, refresh: bool = False) -> None:
        """Draw."""
        self.seen.append(("draw" if refresh else "note", what))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def read(self, due: float, _signals: int) -> list[str]:
        """Give the keys that are pressed before a time."""
        self.seen.append(("wait", due))
        at, key = self.script.pop(0)
        if key == "signal":
            self.stopper.on_signal(15, None)
            return []
        self.now = at
        return [key] if key else []

    def watch(self) -> list[tuple[object, ...]]:
        """Watch with an interval of 10 seconds."""
        connection: Any = "connection"
        _watch(connection, "b", View(), 10.0, self.stopper)
        return self.seen


def test_it_looks_when_it_is_due_and_draws_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that comes before is drawn before; each look is compared with the one before."""
    theatre = Theatre(monkeypatch, [(103.0, "s"), (110.0, ""), (120.5, ""), (121.0, "q")])
    assert theatre.watch() == [
        ("look", 100.0),
        ("begin", ((None, 100.0), False)),
        ("draw", ((None, 100.0), False)),
        ("wait", 110.0),
        ("draw", ((None, 100.0), False)),
        ("wait", 110.0),
        ("look", 110.0),
        ("draw", ((100.0, 110.0), False)),
        ("wait", 120.0),
        ("look", 120.5),
        ("draw", ((110.0, 120.5), False)),
        ("wait", 130.5),
        ("end",),
    ]
    assert theatre.options == {"console": "the console", "screen": True, "auto_refresh": False}


def test_paused_it_draws_and_does_not_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every half second, whatever is due; it looks as soon as it goes on."""
    theatre = Theatre(monkeypatch, [(103.0, "p"), (200.0, ""), (300.0, "p"), (301.0, "q")])
    assert theatre.watch()[2:] == [
        ("draw", ((None, 100.0), False)),
        ("wait", 110.0),
        ("draw", ((None, 100.0), True)),
        ("wait", 103.5),
        ("draw", ((None, 100.0), True)),
        ("wait", 200.5),
        ("look", 300.0),
        ("draw", ((100.0, 300.0), False)),
        ("wait", 310.0),
        ("end",),
    ]


def test_a_signal_ends_it_like_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the look that was under way; the terminal is switched back."""
    theatre = Theatre(monkeypatch, [(0.0, "signal")])
    assert theatre.watch()[3:] == [("wait", 110.0), ("end",)]


@pytest.fixture
def once(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return how long it slept between the two looks, without sleeping."""
    slept: list[float] = []
    monkeypatch.setattr(command, "time", SimpleNamespace(sleep=slept.append, monotonic=time.monotonic))
    return slept


@pytest.mark.usefixtures("jobs")
def test_a_snapshot_is_a_head_and_a_table(cli: Callable[..., Any], once: list[float]) -> None:
    """Between two looks it waits for the interval; what was chosen is what is shown."""
    lines = cli("top", "--interval", "3", "--table", "exchanges", "--sort", "name", "--reverse").lines
    assert once == []
    assert lines == []
    lines = cli("top", "--interval", "3", "--table", "exchanges", "--sort", "type", "--reverse").lines
    assert once == [3.0]
    assert lines[0].startswith("broker t-")
    names = [line.split()[0] for line in lines[3:]]
    assert names == ["amq.topic", "amq.headers", "amq.match", "amq.fanout", "(default)", "amq.direct"]
    lines = cli("top", "--table", "exchanges", "--filter", "MATCH").lines
    assert [line.split()[0] for line in lines[3:]] == ["amq.match"]
    assert once == [3.0, 1.0]


def test_a_snapshot_as_json_has_what_was_chosen(cli: Callable[..., Any], jobs: Any, once: list[float]) -> None:  # noqa: ANN401 (a queue)
    """In its table; the others are whole."""
    connection_of(jobs).queue("other")
    facts = cli("top", "--json", "--filter", "other").facts
    assert list(facts) == ["broker", "queues", "exchanges", "channels", "clients", "consumers", "memory"]
    assert facts["broker"]["queue_count"] == 2
    assert [one["queue"] for one in facts["queues"]] == ["other"]
    assert facts["queues"][0]["rate_in"] == 0.0
    assert len(facts["exchanges"]) == 6
    assert once == [1.0]


@pytest.mark.parametrize(("name", "index"), [("bindings in", 2), ("bindings_in", 2), ("exchange", 0)])
def test_a_column_is_known_by_heading_and_name(name: str, index: int) -> None:
    """Without one it is the first."""
    assert _sort_index("exchanges", name) == index
    assert _sort_index("exchanges", None) == 0


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """Have a terminal for standard input, and a descriptor for signals."""
    master, slave = pty.openpty()
    readable, writable = os.pipe()
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(fileno=lambda: slave))
    has = SimpleNamespace(master=master, slave=slave, signals=readable, signal=writable)
    yield has
    for descriptor in (has.master, slave, readable, writable):
        if descriptor >= 0:
            os.close(descriptor)


FOR_EVER = time.monotonic() + 86400


def test_the_terminal_gives_keys_as_they_are_pressed(terminal: SimpleNamespace) -> None:
    """Without echo or lines meanwhile, and as it was before afterwards."""
    before = termios.tcgetattr(terminal.slave)
    with Keyboard() as keys:
        assert not termios.tcgetattr(terminal.slave)[3] & (termios.ECHO | termios.ICANON)
        os.write(terminal.master, "qé\x1b[A".encode())
        assert keys.read(FOR_EVER, terminal.signals) == ["q", "é", "up"]
        os.write(terminal.master, "é".encode()[:1])
        assert keys.read(FOR_EVER, terminal.signals) == []
        os.write(terminal.master, "é".encode()[1:] + b"\n")
        assert keys.read(FOR_EVER, terminal.signals) == ["é", "enter"]
    assert termios.tcgetattr(terminal.slave) == before


def test_a_key_that_is_no_text_is_replaced(terminal: SimpleNamespace) -> None:
    """It ends nothing."""
    with Keyboard() as keys:
        os.write(terminal.master, b"\xffx")
        assert keys.read(FOR_EVER, terminal.signals) == ["\ufffd", "x"]


def test_a_wait_for_keys_has_an_end(terminal: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """At its deadline, and immediately if that has passed."""
    waits: list[float] = []

    def select(first: list[int], _second: object, _third: object, wait: float) -> tuple[list[int], ...]:
        assert first == [terminal.slave, terminal.signals]
        waits.append(wait)
        return [], [], []

    monkeypatch.setattr(keyboard, "select", SimpleNamespace(select=select))
    monkeypatch.setattr(keyboard, "time", SimpleNamespace(monotonic=lambda: 100.0))
    with Keyboard() as keys:
        assert [keys.read(deadline, terminal.signals) for deadline in (103.5, 100.0, 99.0)] == [[], [], []]
    assert waits == [3.5, 0.0, 0.0]


def test_a_signal_ends_a_wait_for_keys(terminal: SimpleNamespace) -> None:
    """Its descriptor is read empty; keys that are there are given all the same."""
    with Keyboard() as keys:
        os.write(terminal.signal, b"\x0f\x0f")
        assert keys.read(FOR_EVER, terminal.signals) == []
        os.set_blocking(terminal.signals, False)
        with pytest.raises(BlockingIOError):
            os.read(terminal.signals, 1)
        os.write(terminal.signal, b"\x0f")
        os.write(terminal.master, b"x")
        assert keys.read(FOR_EVER, terminal.signals) == ["x"]


def test_a_terminal_that_is_gone_is_an_end(terminal: SimpleNamespace) -> None:
    """Not a wait for ever."""
    keys = Keyboard()
    os.close(terminal.master)
    terminal.master = -1
    with pytest.raises(EOFError):
        keys.read(FOR_EVER, terminal.signals)
