# SPDX-License-Identifier: Apache-2.0
"""What goes wrong is one line on standard error and an exit code."""

from __future__ import annotations

import errno
import os
import queue
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

import shmbroker
from shmbroker_cli.errors import Refused, explain

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


ON_A_BROKER = [
    ("status",),
    ("stop",),
    ("doctor",),
    ("queue", "list"),
    ("queue", "create", "q"),
    ("queue", "show", "q"),
    ("publish", "q", "x"),
    ("consume", "q"),
    ("browse", "q"),
    ("exchange", "list"),
    ("exchange", "create", "e"),
    ("exchange", "delete", "e"),
    ("bind", "e", "q"),
    ("unbind", "e", "q"),
    ("bindings",),
    ("connections",),
    ("channels",),
    ("consumers",),
    ("top",),
]


@pytest.mark.parametrize("arguments", ON_A_BROKER, ids=" ".join)
def test_a_broker_that_does_not_exist_is_refused(
    cli: Callable[..., Any], broker_name: str, arguments: tuple[str, ...]
) -> None:
    """The line names it, and it is not made by asking for it."""
    assert cli(*arguments).is_refused(broker_name)
    assert broker_name not in shmbroker.brokers()


@pytest.mark.parametrize(
    "arguments",
    [
        ("no-such-command",),
        ("queue",),
        ("queue", "no-such-command"),
        ("exchange",),
        ("exchange", "create"),
        ("bind", "e"),
        ("unbind",),
        ("serve",),
        ("publish",),
        ("list", "--no-such-option"),
        ("top", "--sort", "no-such-column"),
        ("top", "--interval", "soon"),
        ("top", "--interval", "inf"),
        ("demo", "--workers", "0"),
    ],
    ids=" ".join,
)
def test_wrong_usage_is_exit_code_2(cli: Callable[..., Any], arguments: tuple[str, ...]) -> None:
    """One line, not the whole help."""
    assert cli(*arguments).is_refused(code=2)


def test_without_a_command_it_explains_itself(cli: Callable[..., Any]) -> None:
    """The help names the commands."""
    ran = cli()
    assert ran.code == 0
    assert "consume" in ran.out


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (Refused("no"), 1, "no"),
        (shmbroker.exceptions.NotFound(404, "NOT_FOUND"), 1, "404 NOT_FOUND"),
        (queue.Full(), 1, "the queue is full"),
        (ValueError("size=0"), 2, "size=0"),
        (OSError(errno.ENOENT, "Gone", "here"), 1, "here: Gone"),
        (OSError(errno.ENOSPC, "No space"), 1, "[Errno 28] No space"),
        (RuntimeError(), 1, "RuntimeError"),
    ],
)
def test_every_error_has_a_code_and_a_text(error: Exception, code: int, text: str) -> None:
    """None is without words."""
    assert explain(error) == (code, text)


def test_an_unforeseen_error_is_one_line_too(cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Line breaks in its text become spaces."""

    def fail() -> None:
        message = "all\nis lost"
        raise RuntimeError(message)

    monkeypatch.setattr(shmbroker, "brokers", fail)
    assert cli("list").is_refused("all is lost")


INTERRUPTED_EARLY = """
import sys

class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == "typer":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupts())
import shmbroker_cli
shmbroker_cli.main()
"""


def test_an_interrupt_while_it_is_loaded_is_told_like_any_other() -> None:
    """Exit code 130, and no traceback."""
    ran = subprocess.run([sys.executable, "-c", INTERRUPTED_EARLY], check=False, capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (130, "")


@pytest.mark.parametrize("closed", ["<&- >&- 2>&-", ">&- 2>&-", ">&-"])
def test_closed_output_is_nobody_s_matter(broker: shmbroker.Broker, closed: str) -> None:
    """A command does its work when the caller has closed its standard streams, and tells nobody of it."""
    for command in (("queue", "create", "jobs"), ("publish", "jobs", "A"), ("queue", "list")):
        words = [sys.executable, "-m", "shmbroker_cli", "--broker", broker.name, *command]
        ran = subprocess.run(
            ["/bin/sh", "-c", f'"$@" {closed}', "sh", *words], check=False, capture_output=True, text=True
        )  # fmt: skip
        assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
    with broker.connect() as connection:
        assert [bytes(message) for message in connection.queue("jobs").browse()] == [b"A"]


def test_a_name_that_the_output_cannot_show(broker: shmbroker.Broker) -> None:
    """Its characters are shown by their numbers, and everything else as ever."""
    with broker.connect() as connection:
        connection.queue("é")
    words = [sys.executable, "-m", "shmbroker_cli", "--broker", broker.name, "queue", "list"]
    ran = subprocess.run(
        words, check=False, capture_output=True, text=True, env={**os.environ, "PYTHONIOENCODING": "ascii"}
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.splitlines()[-1].split()[0] == r"\xe9"


def test_closed_input_is_refused(broker: shmbroker.Broker) -> None:
    """Where a message is to come from it."""
    with broker.connect() as connection:
        connection.queue("jobs")
    words = [sys.executable, "-m", "shmbroker_cli", "--broker", broker.name, "publish", "jobs", "-"]
    ran = subprocess.run(["/bin/sh", "-c", '"$@" <&-', "sh", *words], check=False, capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (1, "shmbroker: standard input is closed\n")


def test_who_wants_a_traceback_gets_one(cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """With `SHMBROKER_TRACEBACK` set."""
    monkeypatch.setenv("SHMBROKER_TRACEBACK", "1")
    assert "Traceback" in cli("consume", "q").err


def test_bench_runs_what_the_checkout_has(
    cli: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All arguments are handed over, and the exit code back."""
    folder = tmp_path / "benchmarks"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "__main__.py").write_text("def main(argv):\n    return len(argv)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    for name in ("benchmarks", "benchmarks.__main__"):
        monkeypatch.delitem(__import__("sys").modules, name, raising=False)
    assert cli("bench", "--quick", "--help", "--only", "x").code == 4


def test_bench_elsewhere_is_refused(cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The benchmarks are not installed."""
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    assert cli("bench").is_refused("checkout")
