# SPDX-License-Identifier: Apache-2.0
"""The processes of `shmbroker demo-spark`: how they fail, what they said, and that all they started ends with them."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest
from scenario_support.waiting import becomes, eventually

from shmbroker_cli.demo_spark.processes import Process, _is_alive_in
from shmbroker_cli.errors import Refused

if TYPE_CHECKING:
    from pathlib import Path

READS = """
import sys
sys.stdin.read()
"""
FAILS = """
import sys
print("out", flush=True)
print("err", file=sys.stderr)
sys.exit(3)
"""
LOOKS = """
import os, stat
print(stat.S_ISFIFO(os.fstat(0).st_mode))
"""
STAYS = """
import os, signal
for own_group in (False, True):
    if os.fork() == 0:
        if own_group:
            os.setpgid(0, 0)
        break
else:
    print("ready", flush=True)
while True:
    signal.pause()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with modules that can be started."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "pack").mkdir()
    for name, source in (("reads", READS), ("fails", FAILS), ("looks", LOOKS), ("stays", STAYS)):
        (tmp_path / "pack" / f"{name}.py").write_text(source, encoding="ascii")
    return tmp_path


def test_a_process_that_runs_as_long_as_its_input(folder: Path) -> None:
    """Nobody writes to it; at the end of the block it is gone, with exit code 0 or killed."""
    with Process("pack.reads", folder=folder) as process:
        assert process.runs()
        assert process.left() == [process.pid]
    assert process.left() == []
    with pytest.raises(ChildProcessError):
        os.waitpid(process.pid, os.WNOHANG)


def test_a_process_that_fails(folder: Path) -> None:
    """The error has its name, its exit code and the last line that it printed."""
    with Process("pack.fails", folder=folder) as process:
        with pytest.raises(Refused, match=r"^the fails ended with exit code 3: err$"):
            eventually(lambda: not process.runs())
        assert (folder / "pack.fails.log").read_text(encoding="ascii") == "out\nerr\n"


def test_a_process_that_ended_well(folder: Path) -> None:
    """It does not run, which is no error; its standard input was a pipe."""
    with Process("pack.looks", folder=folder) as process:
        becomes(process.runs, False)  # noqa: FBT003 - what it becomes
        assert (folder / "pack.looks.log").read_bytes() == b"True\n"


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (b"", "it printed nothing"),
        (b"one\ntwo\n", "two"),
        (b"one\n\xff\n", r"\xff"),
        (b"ValueError: a\nbye\n", "ValueError: a"),
        (b"ValueError: a\n  KeyError: indented\njson.JSONDecodeError: b\nbye\n", "json.JSONDecodeError: b"),
        (b"shmbroker.exceptions.NotFound: a\nshmbroker.exceptions.Timeout: b\npy4j.protocol.Py4JJavaError: c\n",
         "shmbroker.exceptions.Timeout: b"),
    ],
)  # fmt: skip
def test_what_a_process_said_last(folder: Path, said: bytes, told: str) -> None:
    """The broker's own error, else any, else the last line; what is no UTF-8 is shown."""
    with Process("pack.reads", folder=folder) as process:
        (folder / "pack.reads.log").write_bytes(said)
        error = process.failed("gave up")
    assert isinstance(error, Refused)
    assert str(error) == f"the reads gave up: {told}"


def ready(folder: Path, process: Process) -> list[int]:
    """Wait until all three are there, and return them."""
    becomes((folder / "pack.stays.log").read_bytes, b"ready\n")
    return eventually(lambda: pids if len(pids := process.left()) == 3 else [])


def test_a_group_is_killed(folder: Path) -> None:
    """With SIGKILL, and waited for; what has a group of its own stays until the end of the block."""
    with Process("pack.stays", folder=folder) as process:
        pids = ready(folder, process)
        (apart,) = eventually(lambda: [pid for pid in pids if os.getpgid(pid) == pid != process.pid])
        process.kill()
        with pytest.raises(ChildProcessError):
            os.waitpid(process.pid, os.WNOHANG)
        with pytest.raises(Refused, match=f"ended with exit code -{signal.SIGKILL:d}: ready"):
            process.runs()
        becomes(process.left, [apart])
    assert process.left() == []


def test_all_of_a_session_ends_with_the_block(folder: Path) -> None:
    """Whatever its group is, also after an error."""
    error = RuntimeError("in the block")
    with pytest.raises(RuntimeError) as raised, Process("pack.stays", folder=folder) as process:  # noqa: PT012 (with its end)
        pids = ready(folder, process)
        raise error
    assert raised.value is error
    assert process.left() == []
    assert [_is_alive_in(pid, process.pid) for pid in pids] == [False] * 3


def test_a_zombie_is_not_alive(folder: Path) -> None:
    """It ended, although nobody has waited for it; what is of another session does not count either."""
    with Process("pack.reads", folder=folder) as process:
        assert _is_alive_in(process.pid, process.pid)
        assert not _is_alive_in(process.pid, os.getsid(0))
        os.kill(process.pid, signal.SIGKILL)
        becomes(process.left, [])
        assert os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT) is not None
