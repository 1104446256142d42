# SPDX-License-Identifier: Apache-2.0
"""Whom the chaos stops: the broker's housekeeper. Whatever ends it, nobody stays stopped, and nobody stays behind."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import shmbroker
from tests.chaos.journal import Journal
from tests.chaos.stage import HOUSEKEEPER, Player, Stage, housekeeper_of

ROOT = Path(__file__).parents[2]


def state(pid: int) -> str:
    """What the kernel says of a process: S, T ..."""
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]


def test_the_housekeeper_is_known_and_nobody_is_taken_for_it(broker_name: str) -> None:
    """Not another process that has its number by now, and not another broker's."""
    broker = shmbroker.Broker(broker_name, memory="64M").start()
    pid = broker.statistics().housekeeper_pid
    assert pid
    found = housekeeper_of(broker_name, pid)
    assert found is not None
    assert found.pid == pid
    found.close()
    assert housekeeper_of(f"{broker_name}-2", pid) is None
    assert housekeeper_of(broker_name, os.getpid()) is None
    broker.stop()
    assert housekeeper_of(broker_name, pid) is None


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_stopped_housekeeper_goes_on_when_the_director_ends(tmp_path: Path, number: signal.Signals) -> None:
    """A terminal that goes away ends all processes of the chaos, but not the one that sees to it."""
    with subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"]) as housekeeper:
        command = [sys.executable, "-m", "tests.chaos.stopping", str(housekeeper.pid), str(tmp_path)]
        with subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
        ) as director:
            try:
                assert director.stdout
                guard = int(director.stdout.readline())
                assert state(housekeeper.pid) == "T"
                if number != signal.SIGKILL:
                    os.kill(guard, number)
                os.killpg(director.pid, number)
                director.wait()
                while state(housekeeper.pid) == "T":
                    time.sleep(0.001)
            finally:
                director.kill()
                housekeeper.kill()


def test_no_guard_is_left_that_could_continue_it_later(tmp_path: Path) -> None:
    """A late SIGCONT would come after the next SIGSTOP, and the director would wait for a stop that never comes."""
    with (
        subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"]) as housekeeper,
        Journal(tmp_path / "director") as journal,
        Stage("none", tmp_path, journal, random.Random(0)) as players,
    ):
        player = Player(HOUSEKEEPER, housekeeper.pid)
        try:
            for _ in range(3):
                players.stop_housekeeper(player, 60)
                assert state(housekeeper.pid) == "T"
                assert len(multiprocessing.active_children()) == 1
                players.continue_housekeeper(player)
                assert multiprocessing.active_children() == []
        finally:
            player.close()
            housekeeper.kill()


@pytest.mark.parametrize(("parent", "status", "said"), [("os.getppid()", 0, "lives"), ("1 << 30", -signal.SIGKILL, "")])
def test_who_was_forked_by_a_process_that_is_gone_already_ends(parent: str, status: int, said: str) -> None:
    """It would come when the director has seen everybody go, take messages, and have them missed."""
    program = f"import os; from tests.chaos import presence; presence.die_with_parent({parent}); print('lives')"
    run = subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False, capture_output=True, text=True)
    assert (run.returncode, run.stdout.strip()) == (status, said), run.stderr
