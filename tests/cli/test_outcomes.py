# SPDX-License-Identifier: Apache-2.0
"""How a command line ends: its exit code, its one line, and what becomes of its output."""

from __future__ import annotations

import os
import queue
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import typer
from typer.core import TyperGroup

from shmbroker_cli import errors
from shmbroker_cli.errors import CommandGroup, explain
from shmbroker_cli.functions import describe, find_function, see_working_directory

if TYPE_CHECKING:
    from collections.abc import Callable


class Complaint(Exception):  # noqa: N818 (what the parser of the command line raises)
    """Looks as one of the parser's."""

    exit_code = 2

    def __init__(self, path: str | None) -> None:
        """Say where it comes from."""
        self.ctx = None if path is None else type("Context", (), {"command_path": path})()

    def format_message(self) -> str:
        """What is wrong."""
        return "bad word"


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (Complaint("shmbroker list"), 2, "bad word (see shmbroker list --help)"),
        (Complaint(None), 2, "bad word"),
        (ValueError(""), 2, ""),
        (queue.Full("no room for it"), 1, "no room for it"),
        (OSError("odd"), 1, "odd"),
        (KeyError("k"), 1, "'k'"),
    ],
)
def test_what_is_told_of_an_error(error: Exception, code: int, text: str) -> None:
    """Wrong usage is told with the place of the right one."""
    assert explain(error) == (code, text)


def ended(run: Callable[[], object]) -> object:
    """Return the code with which a command line ends."""
    with pytest.raises(SystemExit) as end:
        errors._exit(run)  # noqa: SLF001 - its own parts
    return end.value.code


def raising(error: BaseException) -> Callable[[], object]:
    """Return a command that raises."""

    def run() -> object:
        raise error

    return run


@pytest.mark.parametrize(
    ("run", "code"),
    [
        (lambda: None, 0),
        (lambda: "text", 0),
        (lambda: 5, 5),
        (raising(KeyboardInterrupt()), 130),
        (raising(typer.Abort()), 130),
    ],
)
def test_a_command_line_that_ends_without_a_word(
    capsys: pytest.CaptureFixture[str], run: Callable[[], object], code: int
) -> None:
    """A number is its exit code, an interrupt is 130, and all else is 0."""
    assert ended(run) == code
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("value", ["", None])
def test_an_error_is_one_line_without_a_traceback(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, value: str | None
) -> None:
    """Unless it is asked for: an empty wish is none."""
    monkeypatch.delenv("SHMBROKER_TRACEBACK", raising=False)
    if value is not None:
        monkeypatch.setenv("SHMBROKER_TRACEBACK", value)
    assert ended(raising(ValueError("a\n b"))) == 2
    assert capsys.readouterr() == ("", "shmbroker: a b\n")


def test_a_traceback_comes_before_the_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """On standard error, both."""
    monkeypatch.setenv("SHMBROKER_TRACEBACK", "1")
    assert ended(raising(RuntimeError("lost"))) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("Traceback")
    assert err.endswith("\nshmbroker: lost\n")


def test_output_that_nobody_reads_is_exit_code_1(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a word: what is left of it goes nowhere, though it is written at the end only."""
    read, write = os.pipe()
    os.close(read)
    before = len([*Path("/proc/self/fd").iterdir()])
    with os.fdopen(write, "w", encoding="utf-8") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        assert ended(lambda: [stream.write("x")]) == 1
        assert Path(f"/proc/self/fd/{write}").readlink() == Path(os.devnull)
        assert len([*Path("/proc/self/fd").iterdir()]) == before


def test_output_that_the_system_does_not_take_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A full disk is noticed when what was printed is written."""
    with Path("/dev/full").open("w", encoding="utf-8") as stream, Path(os.devnull).open("w") as sink:
        monkeypatch.setattr(sys, "stdout", stream)
        assert ended(lambda: stream.write("x")) == 1
        monkeypatch.undo()
        os.dup2(sink.fileno(), stream.fileno())
    assert "No space left on device" in capsys.readouterr().err


def test_the_group_of_commands_hands_everything_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Called from Python it returns what the command returned, or raises what it raised."""
    seen: list[object] = []

    def main(_self: object, *arguments: object, **options: object) -> str:
        seen.extend((arguments, options))
        return "result"

    monkeypatch.setattr(TyperGroup, "main", main)
    group = CommandGroup(name="x")
    assert group.main(["a"], "name", "variable", standalone_mode=False, windows_expand_args=False, more=1) == "result"
    arguments = (["a"], "name", "variable")
    assert seen == [arguments, {"standalone_mode": False, "windows_expand_args": False, "more": 1}]
    with pytest.raises(SystemExit) as end:
        group.main(["a"], "name", "variable", more=1)
    assert end.value.code == 0
    assert seen[2:] == [arguments, {"standalone_mode": False, "windows_expand_args": True, "more": 1}]


def test_the_working_directory_comes_first_and_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that lies there is found before others of its name."""
    monkeypatch.setattr(sys, "path", ["/elsewhere"])
    monkeypatch.chdir(tmp_path)
    see_working_directory()
    assert sys.path == [str(tmp_path), "/elsewhere"]
    see_working_directory()
    assert sys.path == [str(tmp_path), "/elsewhere"]


def test_a_function_is_found_by_its_name() -> None:
    """Also in a class, or whatever else has it."""
    assert find_function("os.path:join").__qualname__ == os.path.join.__qualname__
    assert find_function("os:path.join") is find_function("os.path:join")


def test_a_function_is_found_in_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `python -m` has it."""
    name = f"found_{os.getpid()}"
    (tmp_path / f"{name}.py").write_text("def f(message): return 5", encoding="ascii")
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    function: Any = find_function(f"{name}:f")
    monkeypatch.delitem(sys.modules, name)
    assert function(None) == 5


@pytest.mark.parametrize("target", ["json", "json:", ":dumps", ":", ""])
def test_a_function_without_both_names_is_wrong_usage(target: str) -> None:
    """The text says what is needed."""
    with pytest.raises(ValueError, match=f"^'{target}' is not of the form module:function$"):
        find_function(target)


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ("no_such_module_at_all:f", "ModuleNotFoundError: No module named 'no_such_module_at_all'"),
        ("json:a:b", "AttributeError: module 'json' has no attribute 'a:b'"),
        ("json:dumps.no", "AttributeError: 'function' object has no attribute 'no'"),
        ("json:__name__", "it is not a function"),
    ],
)
def test_a_function_that_is_not_there_is_refused(target: str, text: str) -> None:
    """The text says why."""
    with pytest.raises(errors.Refused) as refused:
        find_function(target)
    assert str(refused.value) == f"cannot load {target}: {text}"


def test_an_error_is_described_in_a_line() -> None:
    """By its type, and its text if it has one."""
    assert describe(ValueError("two\n lines")) == "ValueError: two lines"
    assert describe(ValueError("  ")) == "ValueError"
    assert describe(SystemExit(5)) == "SystemExit: 5"


def test_usage_is_told_with_its_place(cli: Callable[..., Any]) -> None:
    """That of the command that was called wrongly."""
    ran = cli("queue", "list", "--odd")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.endswith("queue list --help)\n")
