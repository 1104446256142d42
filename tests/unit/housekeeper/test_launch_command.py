# SPDX-License-Identifier: Apache-2.0
"""The command line of a housekeeper, and how its process is started."""

from __future__ import annotations

import io
import itertools
import logging
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from shmbroker import exceptions
from shmbroker._housekeeper import launch

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
    rest = ["-c", launch._RUN.format(path="['/a', '/b']"), "name"]  # noqa: SLF001
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


@pytest.mark.parametrize("detached", [True, False])
def test_how_the_process_is_started(monkeypatch: pytest.MonkeyPatch, *, detached: bool) -> None:
    """It has no input, its output goes nowhere, its errors come to us; it holds no folder and knows what it is."""
    monkeypatch.delenv(launch.MARK, raising=False)
    started: list[tuple[list[str], dict[str, object]]] = []

    def start(line: list[str], **options: object) -> None:
        started.append((line, options))
        raise OSError(11, "no process")

    monkeypatch.setattr(subprocess, "Popen", start)
    with pytest.raises(launch.CannotStartError, match="no process"):
        launch.start_housekeeper("name", detached=detached)
    options = {
        "stdin": subprocess.DEVNULL,
        "stdout": subprocess.DEVNULL,
        "stderr": subprocess.PIPE,
        "start_new_session": detached,
        "cwd": "/",
        "env": {**os.environ, launch.MARK: "name"},
    }
    assert started == [(launch.command("name", automatic=detached), options)]


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


@pytest.mark.parametrize("case", list(itertools.product([False, True], repeat=4)))
def test_when_a_housekeeper_is_started(monkeypatch: pytest.MonkeyPatch, case: tuple[bool, ...]) -> None:
    """Where there is none, or it is stopped, and the broker is neither closing nor without one on purpose."""
    missing, halted, stopped, closing = case
    seen: list[object] = []
    found = SimpleNamespace(
        housekeeper_missing=lambda: missing,
        housekeeper_stopped=lambda: halted,
        facts=lambda: SimpleNamespace(stopped=stopped, closing=closing),
    )
    # Of this module only: sessions that other tests left are detached whenever the garbage collector finds them.
    attachments = SimpleNamespace(acquire=lambda _path: found, release=lambda one: seen.append(one is found))
    monkeypatch.setattr(launch, "attachment", attachments)
    monkeypatch.setattr(launch, "start_housekeeper", lambda name, *, detached: seen.append((name, detached)))
    launch.ensure_housekeeper("name")
    wanted = (missing or halted) and not stopped and not closing
    assert seen == ([("name", True)] if wanted else []) + [True]


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
