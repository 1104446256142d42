# SPDX-License-Identifier: Apache-2.0
"""The program as a whole: its standard streams, what may stand before a command, and the benchmarks."""

from __future__ import annotations

import importlib
import importlib.metadata
import io
import json
import os
import subprocess
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import shmbroker
import shmbroker_cli
import shmbroker_cli.app
import shmbroker_cli.bench
from shmbroker_cli.errors import Refused
from shmbroker_cli.options import Common, _common

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# The application is left out: what counts is what it finds when it is called.
OBSERVES = """
import json, os, sys, types

def link(number):
    try:
        return os.readlink(f"/proc/self/fd/{number}")
    except FileNotFoundError:
        return None

def observe():
    found = {
        "null": [number for number in range(20) if link(number) == os.devnull],
        "streams": [(stream.fileno(), stream.encoding, stream.writable()) for stream in (sys.stdout, sys.stderr)],
    }
    with open(sys.argv[1], "w", encoding="ascii") as file:
        json.dump(found, file)

sys.modules["shmbroker_cli.app"] = types.SimpleNamespace(main=observe)
import shmbroker_cli
os.closerange(0, 3)
sys.stdin = sys.stdout = sys.stderr = None
shmbroker_cli.main()
"""


def test_closed_streams_are_replaced_by_the_null_device(tmp_path: Path) -> None:
    """All three numbers are its, and no other; what is written to them has UTF-8 whatever the locale."""
    words = [sys.executable, "-I", "-X", "utf8=0", "-c", OBSERVES, str(tmp_path / "found")]
    environment = {**os.environ, "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"}
    assert subprocess.run(words, check=False, capture_output=True, env=environment).returncode == 0
    found = json.loads((tmp_path / "found").read_text("ascii"))
    assert found == {
        "null": [0, 1, 2],
        "streams": [[1, "utf-8", True], [2, "utf-8", True]],
    }


@pytest.fixture
def application(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Return what standard output and error are when the application is called; it does nothing else."""
    seen: list[object] = []
    monkeypatch.setattr(shmbroker_cli.app, "main", lambda: seen.extend((sys.stdout, sys.stderr)))
    return seen


def test_open_streams_stay(application: list[object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Only standard output gets another way to write what it cannot encode, if it encodes at all."""
    out, err = io.TextIOWrapper(io.BytesIO(), "ascii"), io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    shmbroker_cli.main()
    assert application == [out, err]
    assert (out.errors, out.encoding) == ("backslashreplace", "ascii")
    monkeypatch.setattr(sys, "stdout", err)
    shmbroker_cli.main()
    assert application[2:] == [err, err]


def test_an_interrupt_is_exit_code_130(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if it comes before the application handles it."""

    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(shmbroker_cli.app, "main", interrupted)
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    with pytest.raises(SystemExit) as ended:
        shmbroker_cli.main()
    assert ended.value.code == 130


def test_the_program_takes_the_words_of_its_process(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And exits with the code of the command."""
    monkeypatch.setattr(sys, "argv", ["shmbroker", "--version"])
    with pytest.raises(SystemExit) as ended:
        shmbroker_cli.app.main()
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("shmbroker ")


@pytest.mark.parametrize("command", [(), ("list",)])
def test_version_is_one_line(cli: Callable[..., Any], command: tuple[str, ...]) -> None:
    """And no command runs."""
    ran = cli("--version", *command)
    assert (ran.code, ran.lines) == (0, [f"shmbroker {importlib.metadata.version('shmbroker')}"])


def test_an_empty_name_of_a_broker_is_the_default_one(cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Before a command as well as after it."""

    def asked(name: str) -> shmbroker.Broker:
        message = f"asked for {name}"
        raise Refused(message)

    monkeypatch.setattr(shmbroker, "Broker", asked)
    assert cli("--broker", "", "status").is_refused("asked for default")
    assert cli("--broker", "", "status", "--broker", "").is_refused("asked for default")
    assert cli("--broker", "other", "status", "--broker", "").is_refused("asked for other")


def test_a_command_without_what_stands_before_it() -> None:
    """It has the default broker, and prints no JSON."""
    context: Any = SimpleNamespace(find_root=lambda: SimpleNamespace(obj=None))
    assert _common(context) == Common("default", as_json=False)


def test_help_is_not_printed_with_a_command(cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does JSON follow from anything but `--json`."""
    monkeypatch.setattr(shmbroker, "brokers", list)
    assert cli("list").lines == ["no brokers"]
    assert cli("list", "--json").facts == []


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return a function that lays benchmarks with this text into the working directory."""
    name = f"benchmarks_{os.getpid()}_{tmp_path.name}".replace("-", "_")
    monkeypatch.setattr(shmbroker_cli.bench, "PACKAGE", name)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)

    def lay(text: str) -> None:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
        (tmp_path / name / "__main__.py").write_text(text, encoding="ascii")
        importlib.invalidate_caches()

    return lay


@pytest.mark.parametrize(("result", "code"), [("len(words)", 3), ("None", 0), ("0", 0)])
def test_bench_hands_over_to_the_working_directory(
    cli: Callable[..., Any], checkout: Callable[[str], None], result: str, code: int
) -> None:
    """All words are the benchmarks', which need not be on Python's path; what they return is the exit code."""
    checkout(f"def main(words):\n    print(*words)\n    return {result}\n")
    ran = cli("bench", "--quick", "--help", "x")
    assert (ran.code, ran.out, ran.err) == (code, "--quick --help x\n", "")


@pytest.mark.parametrize("text", ["", "import no_such_module_at_all\n"])
def test_bench_that_cannot_be_run_is_refused(
    cli: Callable[..., Any], checkout: Callable[[str], None], text: str
) -> None:
    """The line says why: something is missing in it."""
    checkout(text)
    assert cli("bench").is_refused("cannot be run", "no_such_module_at_all" if text else "no attribute 'main'")


@pytest.mark.usefixtures("checkout")
def test_bench_without_benchmarks_is_refused(cli: Callable[..., Any]) -> None:
    """The line says where they are."""
    assert cli("bench").is_refused("source checkout")
