# SPDX-License-Identifier: Apache-2.0
"""Whatever is damaged: the doctor lives through it, mends nothing, and says so by every way."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from scenario_support.processes import run_python

if TYPE_CHECKING:
    from scenario_support.patient import Patient

SUPPORT = str(Path(__file__).parents[2] / "scenarios")


def test_hints_that_lie_are_no_fault(patient: Patient) -> None:
    """Hints of free slots are never believed: only the slots' headers say what is free."""
    memory = patient.memory
    meta = memory.meta(memory.chunk_of(memory.body_slot("jobs", 7)))
    for value in (0, (1 << 64) - 1):
        for index in range(len(meta.hints)):
            meta.hints[index] = value
        assert patient.complaints() == []


BATTERED = """
    import random, sys
    sys.path.insert(0, sys.argv[2])
    import shmbroker
    from scenario_support.memory import Memory

    chance = random.Random(sys.argv[3])
    memory = Memory(sys.argv[1])
    words = memory.used_words(b"x")
    found = 0
    with shmbroker.connect(sys.argv[1], create=False) as connection:
        for _ in range(int(sys.argv[4])):
            with memory.words_put_back(chance.sample(words, chance.choice([1, 2, 10]))) as damaged:
                for word in damaged:
                    word[0] = chance.choice([chance.getrandbits(64), word[0] ^ 1 << chance.randrange(64), 0,
                                             (word[0] + 1) % 2**64, chance.choice(damaged)[0]])
                before = [word[0] for word in damaged]
                try:
                    found += bool(connection.doctor())
                except shmbroker.ConnectionClosedByBroker:
                    pass  # "closing" was set
                assert [word[0] for word in damaged] == before
    print("survived, found", found)
"""


@pytest.mark.parametrize("seed", range(3))
def test_it_survives_whatever_is_there(patient: Patient, seed: int) -> None:
    """Words overwritten at random, hundreds of times: no crash, no hang, nothing but findings; nothing is mended."""
    done = run_python(BATTERED, patient.broker.name, SUPPORT, f"{seed}", "200")
    assert done.returncode == 0, f"status {done.returncode}: {done.stderr}"
    assert int(done.stdout.removeprefix("survived, found ")) > 60


STARVED = """
    import resource, sys
    import shmbroker
    from pathlib import Path

    with shmbroker.connect(sys.argv[1], create=False) as connection:
        assert connection.doctor() == []
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (256 << 10), -1))
        try:
            print(connection.doctor())
        except shmbroker.BrokerError as error:
            print(error)
"""


def test_without_memory_of_its_own_it_says_so(patient: Patient) -> None:
    """A process that has no memory left for the examination gets an error, not a clean bill of health."""
    done = run_python(STARVED, patient.broker.name)
    assert "was not examined: this process has no memory for that" in done.stdout, done.stdout + done.stderr


def test_the_command_in_a_process_of_its_own(patient: Patient) -> None:
    """One line for each finding, exit code 1, and nothing on standard error; as JSON the same."""
    patient.memory.ledger("jobs").counters[patient.lib.SB_COUNT_ADDED] += 1
    command = [sys.executable, "-m", "shmbroker_cli", "doctor", patient.broker.name]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (1, "")
    assert ran.stdout.splitlines() == [f"{patient.broker.name}: {line}" for line in patient.complaints()]
    ran = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert json.loads(ran.stdout)["problems"] == patient.complaints()
