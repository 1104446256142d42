# SPDX-License-Identifier: Apache-2.0
"""What tests of the command line share: a broker of their own, and ways to run it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.nursery import nursery
from scenario_support.stores import serving
from typer.testing import CliRunner

import shmbroker
from shmbroker_cli.app import app

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@dataclass(frozen=True)
class Ran:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def facts(self) -> Any:  # noqa: ANN401 (whatever JSON has)
        """What it printed, as the JSON document it should be."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        """The lines of its standard output."""
        return self.out.splitlines()

    def is_refused(self, *words: str, code: int = 1) -> bool:
        """Whether it ended with this code, one line on stderr, and nothing else."""
        one_line = self.err.count("\n") == 1 and self.err.endswith("\n")
        told = all(word in self.err for word in words)
        return self.code == code and one_line and told and not self.out


@pytest.fixture(autouse=True)
def plain_output(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody's terminal, and wishes about colours, count."""
    for name in ("FORCE_COLOR", "NO_COLOR", "CLICOLOR_FORCE", "PY_COLORS", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def broker(broker_name: str) -> Iterator[shmbroker.Broker]:
    """Start a broker, and purge it afterwards."""
    made = nursery().start(shmbroker.Broker(broker_name, memory="32M"))
    yield made
    made.stop(purge=True)


@pytest.fixture
def jobs(broker: shmbroker.Broker) -> Iterator[shmbroker.Queue]:
    """Make a queue called `jobs`."""
    with broker.connect() as connection:
        yield connection.queue("jobs")


@pytest.fixture
def cli(broker_name: str) -> Callable[..., Ran]:
    """Return a function that runs a command in this process, on the test's broker."""

    def run(*arguments: str, given: bytes | str | None = None) -> Ran:
        environment = {"SHMBROKER_BROKER": broker_name}
        result = CliRunner(env=environment).invoke(app, arguments, input=given)
        return Ran(result.exit_code, result.stdout, result.stderr)

    return run


@pytest.fixture
def start(broker_name: str, tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Return a function that starts a command as a process, in an empty folder.

    What still runs when the test is over is killed.
    """
    started: list[subprocess.Popen[str]] = []
    environment = {**os.environ, "SHMBROKER_BROKER": broker_name}

    def run(*arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "shmbroker_cli", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=tmp_path,
            env=environment,
            text=True,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.wait()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


@pytest.fixture
def finish() -> Callable[[subprocess.Popen[str]], Ran]:
    """Return a function that waits for the end of a started command."""

    def wait(process: subprocess.Popen[str]) -> Ran:
        out, err = process.communicate()
        return Ran(process.returncode, out, err)

    return wait


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """Return an empty folder for a store."""
    made = tmp_path / "store"
    made.mkdir()
    return made


@pytest.fixture
def filled(broker_name: str, data_dir: Path) -> Path:
    """Return a store with 300 messages, which no broker uses."""
    with serving(broker_name, data_dir) as broker, broker.connect() as connection:
        connection.queue("jobs", durable=True).put_many([b"%d" % number for number in range(300)])
    return data_dir
