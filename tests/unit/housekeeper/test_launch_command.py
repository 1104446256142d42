# SPDX-License-Identifier: Apache-2.0
"""The command line of a housekeeper, and how its process is started."""

from __future__ import annotations

import contextlib
import io
import itertools
import logging
import os
import subprocess
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from shmbroker import exceptions
from shmbroker._housekeeper import launch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FLAGS = ("isolated", "ignore_environment", "no_user_site", "no_site")


def command(monkeypatch: pytest.MonkeyPatch, *wanted: str, bytecode: bool = True, automatic: bool = False) -> list[str]:
    """The command line that a program with these flags gives its housekeeper."""
    with monkeypatch.context() as other:
        other.setattr(sys, "flags", SimpleNamespace(**{flag: int(flag in wanted) for flag in FLAGS}))
        other.setattr(sys, "dont_write_bytecode", not bytecode)
        other.setattr(launch, "interpreter", lambda: "/python")
        other.setattr(launch, "_path", lambda: ["/a", "/b"])
        return launch.command("name", automatic=automatic)


def test_a_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the interpreter, its flags, the program, the places of modules, and the name of the broker."""
    run = launch._RUN  # noqa: SLF001
    code = run.format(path="['/a', '/b']", package="shmbroker._housekeeper", program="housekeeper")
    rest = ["-c", code, "name"]
    assert command(monkeypatch) == ["/python", "-P", *rest]
    assert command(monkeypatch, automatic=True) == ["/python", "-P", *rest, "--automatic"]
    assert command(monkeypatch, *FLAGS[:3], bytecode=False) == ["/python", "-P", "-I", "-E", "-s", "-B", *rest]


def test_a_housekeeper_does_without_site_as_its_program_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that was started with `-S` and imported `site` itself has a housekeeper with `site`."""
    monkeypatch.setitem(sys.modules, "site", SimpleNamespace())
    assert "-S" not in command(monkeypatch, "no_site")
    monkeypatch.delitem(sys.modules, "site")
    assert "-S" in command(monkeypatch, "no_site")
    assert "-S" not in command(monkeypatch)


@pytest.mark.parametrize(
    ("script", "path", "found"),
    [
        ("/s/main.py", ["/s", "/lib"], ["/lib", "/s"]),
        ("/s/main.py", ["/lib", "/s"], ["/lib", "/s"]),
        ("/s/main.py", ["/lib", "/other"], ["/lib", "/other"]),
        ("/s/main.py", [], []),
        (None, ["/s", "/lib"], ["/s", "/lib"]),
    ],
)
def test_the_folder_of_the_script(
    monkeypatch: pytest.MonkeyPatch, script: str | None, path: list[str], found: list[str]
) -> None:
    """It is searched last if the program searches it first; all else keeps its place."""
    with monkeypatch.context() as other:
        other.setitem(sys.modules, "__main__", SimpleNamespace(__file__=script))
        other.setattr(sys, "path", path)
        result = launch._path()  # noqa: SLF001
    assert result == found


@pytest.mark.parametrize("kept", [[], [7]])
@pytest.mark.parametrize("detached", [True, False])
def test_how_the_process_is_started(monkeypatch: pytest.MonkeyPatch, kept: list[int], *, detached: bool) -> None:
    """It has no input, its output goes nowhere, its errors come to us; it holds no folder and knows what it is.

    The descriptor that it inherits is the only one, and an argument says its number.
    """
    monkeypatch.delenv(launch.MARK, raising=False)
    started: list[tuple[list[str], dict[str, object]]] = []

    def start(line: list[str], **options: object) -> None:
        started.append((line, options))
        raise OSError(11, "no process")

    monkeypatch.setattr(subprocess, "Popen", start)
    with pytest.raises(launch.CannotStartError, match="no process"):
        launch.start_housekeeper("name", detached=detached, inherits=kept[0] if kept else None)
    options = {
        "stdin": subprocess.DEVNULL,
        "stdout": subprocess.DEVNULL,
        "stderr": subprocess.PIPE,
        "start_new_session": detached,
        "cwd": "/",
        "pass_fds": kept,
        "env": {**os.environ, launch.MARK: "name"},
    }
    line = [*launch.command("name", automatic=detached), *(["--starting=7"] if kept else [])]
    assert started == [(line, options)]


def test_no_housekeeper_starts_a_housekeeper(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that was started in the place of one is told so."""
    monkeypatch.setenv(launch.MARK, "other")
    monkeypatch.setattr(subprocess, "Popen", None)
    with pytest.raises(launch.CannotStartError, match="in the place of a housekeeper of broker 'other'"):
        launch.start_housekeeper("name", detached=True)


@pytest.mark.parametrize("compiled", [True, False])
def test_a_frozen_program_has_no_interpreter(monkeypatch: pytest.MonkeyPatch, *, compiled: bool) -> None:
    """One that was compiled has none either."""
    if compiled:
        monkeypatch.setitem(sys.modules, "__main__", SimpleNamespace(__compiled__=True))
    else:
        monkeypatch.setattr(sys, "frozen", True, raising=False)
    with pytest.raises(launch.CannotStartError, match="frozen"):
        launch.interpreter()


def test_what_looks_like_no_interpreter_is_not_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that embeds Python can be executed, and is left out."""
    monkeypatch.setattr(sys, "executable", "/bin/true")
    assert launch.interpreter() != "/bin/true"


def test_a_program_that_does_not_know_its_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that embeds Python may have no `sys.executable`: the interpreter beside it is found."""
    monkeypatch.setattr(sys, "executable", None)
    assert os.access(launch.interpreter(), os.X_OK)


class Launched:
    """A broker whose state is given, in the place of the one that `ensure_housekeeper` looks at."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Put it there."""
        self.missing = self.halted = self.stopped = self.closing = False
        self.descriptor: int | None = 7
        self.when_locked: Callable[[], None] = lambda: None
        self.now = 1000.0
        self.seen: list[object] = []
        self.found = SimpleNamespace(
            path="/path",
            housekeeper_missing=lambda: self.missing,
            housekeeper_stopped=lambda: self.halted,
            facts=lambda: SimpleNamespace(stopped=self.stopped, closing=self.closing),
        )
        # Of this module only: sessions that other tests left are detached whenever the garbage collector finds them.
        monkeypatch.setattr(launch, "attachment", SimpleNamespace(attached_to=self.attached_to))
        monkeypatch.setattr(launch, "starting", self.starting)
        monkeypatch.setattr(launch, "start_housekeeper", self.start)
        monkeypatch.setattr(launch, "_starting_since", {})
        monkeypatch.setattr(launch, "time", SimpleNamespace(monotonic=lambda: self.now))

    @contextlib.contextmanager
    def attached_to(self, _path: str) -> Iterator[SimpleNamespace]:
        """The broker, which is given back afterwards."""
        try:
            yield self.found
        finally:
            self.seen.append(True)

    @contextlib.contextmanager
    def starting(self, path: str) -> Iterator[int | None]:
        """Whether another process is starting one is given."""
        assert path == "/path"
        self.when_locked()
        yield self.descriptor

    def start(self, name: str, *, detached: bool, inherits: int | None) -> None:
        """Note it."""
        self.seen.append((name, detached, inherits))

    def starts(self) -> list[object]:
        """What is started when a process looks."""
        self.seen.clear()
        launch.ensure_housekeeper("name")
        assert self.seen.pop() is True
        return self.seen


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> Launched:
    """A broker that has a housekeeper."""
    return Launched(monkeypatch)


@pytest.mark.parametrize("case", list(itertools.product([False, True], repeat=4)))
def test_when_a_housekeeper_is_started(launched: Launched, case: tuple[bool, ...]) -> None:
    """Where there is none, or it is stopped, and the broker is neither closing nor without one on purpose."""
    launched.missing, launched.halted, launched.stopped, launched.closing = case
    wanted = (launched.missing or launched.halted) and not launched.stopped and not launched.closing
    assert launched.starts() == ([("name", True, 7)] if wanted else [])


def test_a_housekeeper_that_serves_by_now_is_enough(launched: Launched) -> None:
    """One that another process started may come to serve between the look and the lock."""
    launched.missing = True
    launched.when_locked = lambda: setattr(launched, "missing", False)
    assert launched.starts() == []


def test_a_start_of_another_process_has_its_time(launched: Launched) -> None:
    """Within five seconds no second one is started; then one is, for each five seconds without a housekeeper."""
    launched.missing, launched.descriptor = True, None
    found = []
    for now in (1000.0, 1005.0, 1005.1, 1005.2, 1010.3, 1030.0, 1030.1, 1035.0, 1035.5):
        launched.now = now
        found.append(bool(launched.starts()))
    assert found == [False, False, True, False, True, False, False, False, True]


def test_the_time_of_a_start_ends_with_it(launched: Launched) -> None:
    """What was waited for a housekeeper that served then does not count for the next one."""
    launched.missing, launched.descriptor = True, None
    assert launched.starts() == []
    launched.now, launched.missing = 1004.0, False
    assert launched.starts() == []
    launched.now, launched.missing = 1006.0, True
    assert launched.starts() == []


def test_a_broker_that_is_gone_needs_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is told."""

    def gone(_path: object) -> None:
        raise exceptions.BrokerNotFound

    monkeypatch.setattr(launch.attachment, "acquire", gone)
    launch.ensure_housekeeper("name")


@pytest.mark.parametrize(
    ("status", "level"), [(0, logging.INFO), (1, logging.INFO), (-15, logging.INFO), (3, logging.WARNING)]
)
def test_the_end_of_a_housekeeper_is_logged(caplog: pytest.LogCaptureFixture, status: int, level: int) -> None:
    """As a warning, unless somebody ended it or it was not needed."""
    child = SimpleNamespace(stderr=io.BytesIO(b"a word \n"), wait=lambda: status, pid=7)
    with caplog.at_level(logging.INFO, "shmbroker"):
        launch._follow("name", child)  # type: ignore[arg-type]  # noqa: SLF001
    assert child.stderr.closed
    assert [(one.levelno, one.getMessage()) for one in caplog.records] == [
        (logging.WARNING, "the housekeeper of broker 'name' says: a word"),
        (level, f"the housekeeper of broker 'name', process 7, ended with status {status}"),
    ]
