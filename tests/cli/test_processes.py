# SPDX-License-Identifier: Apache-2.0
"""Facts about processes: those of real ones, and none where the system does not show the process that is meant."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from scenario_support.inside import connection_of

from shmbroker_cli import processes
from shmbroker_cli.processes import ProcessFacts, ProcessId, ProcessSums, cpu_percent, look_at, process_of, sums

if TYPE_CHECKING:
    from collections.abc import Iterator

    import shmbroker

FACTS = ProcessFacts(
    name="worker",
    command=("worker", "--fast"),
    started_at=1_000_000.0,
    age=100.0,
    cpu_seconds=5.0,
    cpu_percent=5.0,
    memory=3000,
    memory_shared=1000,
)


def identity(pid: int) -> ProcessId:
    """Return what identifies a process of this namespace, read without psutil."""
    fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    return ProcessId(pid, int(fields[19]), Path("/proc/self/ns/pid").stat().st_ino)


@contextlib.contextmanager
def child(code: str) -> Iterator[subprocess.Popen[str]]:
    """Run a Python program that prints a line when it is ready; afterwards it is gone."""
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


IDLE = "print('ready', flush=True); input()"
BUSY = "print('ready', flush=True)\nwhile True: pass"


def test_facts_of_this_process(jobs: shmbroker.Queue) -> None:
    """The broker recorded what identifies it; the facts are those that psutil has."""
    (mine,) = {process_of(one) for one in connection_of(jobs).connections() if one.pid == os.getpid()}
    assert mine == identity(os.getpid())
    before, known, found = psutil.Process().cpu_times(), psutil.Process(), look_at([mine])
    after = psutil.Process().cpu_times()
    assert list(found) == [mine]
    facts = found[mine]
    assert (facts.name, list(facts.command)) == (known.name(), known.cmdline())
    assert facts.started_at == known.create_time()
    assert before.user + before.system <= facts.cpu_seconds <= after.user + after.system
    assert facts.cpu_percent == pytest.approx(100 * facts.cpu_seconds / facts.age)
    assert 0 < facts.memory_shared < facts.memory


def test_age_is_the_time_since_the_start() -> None:
    """On the clock that runs while the machine sleeps, as start times are."""
    with child(IDLE) as process:
        who = identity(process.pid)
        started = who.start_ticks / os.sysconf("SC_CLK_TCK")
        before = time.clock_gettime(time.CLOCK_BOOTTIME)
        age = look_at([who])[who].age
        assert before - started <= age <= time.clock_gettime(time.CLOCK_BOOTTIME) - started


def test_several_processes_are_looked_at_once_each() -> None:
    """With those that another program has."""
    with child(IDLE) as process:
        other, mine = identity(process.pid), identity(os.getpid())
        found = look_at(one for one in (mine, other, mine))
        assert set(found) == {mine, other}
        assert found[other].command == (sys.executable, "-c", IDLE)


@pytest.mark.parametrize(
    "change",
    [
        {"start_ticks": 0},
        {"start_ticks": 12345},
        {"pid_namespace": 0},
        {"pid_namespace": 1},
    ],
    ids=str,
)
def test_no_facts_of_what_may_be_another_process(change: dict[str, int]) -> None:
    """With this pid, but another start or namespace, or one that is not known."""
    assert look_at([identity(os.getpid())._replace(**change)]) == {}


@pytest.mark.parametrize("ticks", [-1, 1])
def test_a_start_is_compared_to_the_tick(ticks: int) -> None:
    """A process that got the pid a hundredth of a second later is another one."""
    mine = identity(os.getpid())
    assert look_at([mine._replace(start_ticks=mine.start_ticks + ticks)]) == {}


def test_no_facts_without_proc(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Then neither this process nor the broker knows a namespace."""
    monkeypatch.setattr(processes, "PID_NAMESPACE", tmp_path / "missing")
    assert look_at([identity(os.getpid())._replace(pid_namespace=0)]) == {}


def hide_command_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the system refuse them, as it may for those of other users."""

    def hidden(process: psutil.Process) -> list[str]:
        raise psutil.AccessDenied(process.pid)

    monkeypatch.setattr(psutil.Process, "cmdline", hidden)


@pytest.mark.parametrize("hidden", [False, True])
def test_no_facts_of_a_process_that_has_ended(monkeypatch: pytest.MonkeyPatch, *, hidden: bool) -> None:
    """Neither while its parent has not read its exit code, nor afterwards; also if its command line is hidden."""
    if hidden:
        hide_command_lines(monkeypatch)
    with child(IDLE) as process:
        who = identity(process.pid)
        assert list(look_at([who])) == [who]
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert psutil.Process(process.pid).status() == psutil.STATUS_ZOMBIE
        assert look_at([who]) == {}
        process.wait()
        assert look_at([who]) == {}


@pytest.mark.parametrize("method", ["create_time", "cpu_times", "memory_info", "name", "status"])
@pytest.mark.parametrize("error", [psutil.AccessDenied, psutil.NoSuchProcess, psutil.ZombieProcess])
def test_no_facts_where_the_system_refuses_them(
    monkeypatch: pytest.MonkeyPatch, method: str, error: type[psutil.Error]
) -> None:
    """Or the process ends while it is looked at: others are shown."""
    with child(IDLE) as process:
        refused, mine = identity(process.pid), identity(os.getpid())
        real = getattr(psutil.Process, method)

        @functools.wraps(real)  # with the attributes by which psutil remembers results
        def refusing(looked_at: psutil.Process) -> Any:  # noqa: ANN401 (what the method returns)
            if looked_at.pid == refused.pid:
                raise error(looked_at.pid)
            return real(looked_at)

        monkeypatch.setattr(psutil.Process, method, refusing)
        assert list(look_at([refused, mine])) == [mine]


def test_no_facts_if_the_pid_was_used_again_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the look it is compared again: some numbers may be of another process."""
    monkeypatch.setattr(psutil.Process, "is_running", lambda _process: False)
    assert look_at([identity(os.getpid())]) == {}


def test_a_hidden_command_line_hides_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """The name of the program stands in its place."""
    hide_command_lines(monkeypatch)
    (facts,) = look_at([identity(os.getpid())]).values()
    assert facts.command == ()
    assert facts.command_text == facts.name == psutil.Process().name()


def test_a_command_line_in_a_table() -> None:
    """On one line, without the folder of the program, and of sixty characters at most."""
    assert FACTS.command_text == "worker --fast"
    assert (
        dataclasses.replace(FACTS, command=("/a/b/worker", "-c", "\n x\n", "/a/b")).command_text == "worker -c x /a/b"
    )
    for length, text in ((60, "x" * 60), (61, "x" * 59 + "…")):
        assert dataclasses.replace(FACTS, command=("x" * length,)).command_text == text


def test_what_a_process_uses_between_two_looks() -> None:
    """In percent of one processor; unknown without an earlier look, or at the same time."""
    now = dataclasses.replace(FACTS, age=102.0, cpu_seconds=8.0)
    assert cpu_percent(FACTS, now) == 150.0
    assert cpu_percent(None, now) is None
    assert cpu_percent(FACTS, FACTS) is None
    assert cpu_percent(now, FACTS) is None
    assert cpu_percent(dataclasses.replace(FACTS, cpu_seconds=9.0), now) == 0.0


def test_what_a_busy_process_uses() -> None:
    """It is seen to use the processor: as much as the system counted between the looks."""
    with child(BUSY) as process:
        who = identity(process.pid)
        before = now = look_at([who])[who]
        while now.cpu_seconds == before.cpu_seconds:
            now = look_at([who])[who]
        used = now.cpu_seconds - before.cpu_seconds
        assert cpu_percent(before, now) == pytest.approx(100 * used / (now.age - before.age))


def test_sums_are_over_what_is_known() -> None:
    """And say how many that are."""
    first, second, hidden = (ProcessId(pid, 1, 1) for pid in (1, 2, 3))
    facts = {first: FACTS, second: FACTS, ProcessId(9, 9, 9): FACTS}
    assert sums([first, second, hidden], facts) == ProcessSums(3, 2, 10.0, 6000, 2000)
    assert sums([], facts) == ProcessSums(0, 0, 0, 0, 0)


LOADED = """
import sys
import shmbroker_cli
import shmbroker_cli.clients
from shmbroker_cli.top import command
sys.argv[1:] = ["list"]
try:
    shmbroker_cli.main()
finally:
    print("psutil" in sys.modules)
"""


def test_psutil_is_loaded_by_commands_that_show_processes() -> None:
    """Not by others, which start sooner without it, nor with the modules of the commands."""
    done = subprocess.run([sys.executable, "-c", LOADED], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "False"
