# SPDX-License-Identifier: Apache-2.0
"""Where /dev/shm is small: an error that says who has the memory, never SIGBUS, and work goes on when there is room.

Each test runs a program in a mount namespace of its own, with a tmpfs of a few dozen MiB over /dev/shm.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import textwrap
from typing import Any

import pytest

import shmbroker
import shmbroker.testing

SHM = "/dev/shm"  # noqa: S108 (it is what the tests are about)
MIB = 1 << 20
LIMIT = 256 * MIB
MOUNT = 'mount -t tmpfs -o size="$0" tmpfs /dev/shm && exec "$@"'

PRELUDE = """
    import json, os, queue, subprocess, sys, threading, time
    from pathlib import Path
    import shmbroker, shmbroker.testing
    from shmbroker import OutOfMemory

    SHM = Path("/dev/shm")

    def fill(jobs, size):
        for count in range(1_000_000):
            try:
                jobs.put(bytes(size), timeout=0)
            except OutOfMemory as full:
                return count, str(full)

    def drain(jobs):
        while jobs.statistics().ready:
            jobs.get_many(1000, timeout=0).ack()

    def report(**facts):
        print(json.dumps(facts))
"""


def run(source: str, mebibytes: float, *arguments: str) -> Any:  # noqa: ANN401 (what the program reports)
    """Run a program where /dev/shm has so many MiB, and return its report; skip where that may not be mounted."""
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("there is no unshare(1)")
    alone = [unshare, "--mount", "--propagation", "private", "sh", "-c", MOUNT, f"{int(mebibytes * 1024)}k"]
    allowed = subprocess.run([*alone, "true"], capture_output=True, text=True, check=False)
    if allowed.returncode != 0:
        pytest.skip(f"not allowed to mount a tmpfs: {allowed.stderr.strip()}")
    program = [sys.executable, "-c", textwrap.dedent(PRELUDE) + textwrap.dedent(source), *arguments]
    done = subprocess.run([*alone, *program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"status {done.returncode}: {done.stderr}"
    assert "Traceback" not in done.stderr, done.stderr
    return json.loads(done.stdout)


FULL = """
    size = int(sys.argv[1])
    with shmbroker.testing.broker("small", memory="256M") as broker, broker.connect() as connection:
        other, hoard = connection.queue("other"), connection.queue("hoard")
        other.put(b"x" * 1000)
        count, said = fill(hoard, size)
        shm = os.statvfs(SHM)
        held = hoard.statistics().bytes
        hoard.get().ack()
        hoard.put(bytes(size), timeout=30)
        drain(hoard)
        others = {}
        for another in (100, 5000, 100_000, 3 << 20):  # what was of one size is there for all others
            others[another] = fill(hoard, another)[0]
            drain(hoard)
        again, _ = fill(hoard, size)
        drain(hoard)
        report(count=count, said=said, held=held, others=others, again=again, free=shm.f_bavail * shm.f_frsize,
               segments=broker.statistics().segments, doctor=connection.doctor())
"""


@pytest.mark.parametrize("size", [100, 100_000, 3 * MIB])
def test_a_full_shm_says_who_has_it(size: int) -> None:
    """A put that finds no memory raises OutOfMemory: what is used, of how much, who holds most, and why no more comes.

    As soon as messages go, there is room again, for bodies of all sizes and for as many as before.
    """
    found = run(FULL, 48, str(size))
    said = found["said"]
    assert f"of {LIMIT} bytes are used" in said
    assert f"queue 'hoard' holds most, {found['held']} bytes" in said
    assert f"{SHM} has no room for segment {found['segments'] + 1} of broker 'small'" in said
    assert f"{48 * MIB - found['free']} of {48 * MIB} bytes are used" in said
    assert found["held"] == found["count"] * size
    assert found["count"] * max(size, 500) > 8 * MIB
    assert found["segments"] == 2
    assert found["again"] >= found["count"] * 0.9 - 1  # long ones need chunks side by side
    assert {another: int(another) * count > MIB for another, count in found["others"].items()} == dict.fromkeys(
        found["others"], True
    )
    assert found["doctor"] == []


WAITING = """
    with shmbroker.testing.broker("small", memory="256M") as broker, broker.connect() as connection:
        hoard = connection.queue("hoard")
        count, _ = fill(hoard, 100_000)
        with broker.connect() as second:
            waiting = second.queue("hoard")
            thread = threading.Thread(target=lambda: waiting.put(b"late" * 25_000))
            thread.start()
            while not connection.doctor() and waiting.statistics().added == count and thread.is_alive():
                hoard.get(timeout=0).ack()
                thread.join(0.2)
            thread.join()
            report(added=waiting.statistics().added - count, doctor=connection.doctor())
"""


def test_a_put_waits_for_memory() -> None:
    """With time, a put waits until messages go, although /dev/shm stays full."""
    assert run(WAITING, 48) == {"added": 1, "doctor": []}


ROOM_AGAIN = """
    filler = SHM / "filler"
    with shmbroker.testing.broker("small", memory="256M") as broker, broker.connect() as connection:
        hoard = connection.queue("hoard")
        shm = os.statvfs(SHM)
        with filler.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, shm.f_bavail * shm.f_frsize - (1 << 20))
        count, said = fill(hoard, 100_000)
        before = broker.statistics().segments
        filler.unlink()
        hoard.put(bytes(100_000), timeout=30)
        more, _ = fill(hoard, 100_000)
        report(count=count, said=said, more=more, before=before, after=broker.statistics().segments,
               doctor=connection.doctor())
"""


def test_it_grows_when_others_have_gone() -> None:
    """Somebody else filled /dev/shm. When he has gone, the broker gets the memory its limit allows."""
    found = run(ROOM_AGAIN, 48)
    assert f"{SHM} has no room for segment 2" in found["said"]
    assert (found["before"], found["after"]) == (1, 2)
    assert found["more"] > 50
    assert found["doctor"] == []


CREATED = """
    said = {}
    for how, make in {
        "start": lambda: shmbroker.Broker("small").start(),
        "connect": lambda: shmbroker.connect("small"),
    }.items():
        try:
            make()
        except OutOfMemory as full:
            said[how] = str(full)
    command = [sys.executable, "-m", "shmbroker_cli", "serve", "small"]
    served = subprocess.run(command, capture_output=True, text=True, check=False)
    report(said=said, code=served.returncode, served=served.stderr, left=sorted(os.listdir(SHM)))
"""


@pytest.mark.parametrize("mebibytes", [0.5, 8, 18.5, 34])
def test_no_broker_where_there_is_no_room(mebibytes: float) -> None:
    """A broker in which no message would fit is not made, in none of the three ways; nothing is left behind."""
    found = run(CREATED, mebibytes)
    assert sorted(found["said"]) == ["connect", "start"]
    for said in (*found["said"].values(), found["served"]):
        assert re.search(rf"{SHM} has no room for segment 0 to [12] of broker 'small', \d+ bytes: 0 of \d+ bytes", said)
        assert f"of {int(mebibytes * MIB)} bytes are used" in said
    assert (found["code"], found["served"].count("\n")) == (1, 1)
    assert found["left"] == []


RACE = """
    import multiprocessing

    def put_until_full(number, barrier, results):
        with shmbroker.connect("small", create=False) as connection:
            jobs = connection.queue("jobs", passive=True)
            barrier.wait()
            count, said = fill(jobs, 100_000)
            results.put((number, count, said, shmbroker.Broker("small").statistics().segments))

    context = multiprocessing.get_context("fork")
    rounds, doctor = [], []
    for _ in range(int(sys.argv[1])):
        with shmbroker.testing.broker("small", memory="256M") as broker:
            with broker.connect() as connection:
                connection.queue("jobs")
            barrier, results = context.Barrier(2), context.SimpleQueue()
            team = [context.Process(target=put_until_full, args=(n, barrier, results)) for n in range(2)]
            for one in team:
                one.start()
            found = [results.get() for _ in team]
            for one in team:
                one.join()
            rounds.append({"codes": [one.exitcode for one in team], "segments": [one[3] for one in found],
                           "counts": [one[1] for one in found]})
            with broker.connect() as connection:
                doctor += connection.doctor()
    report(rounds=rounds, doctor=doctor, left=sorted(os.listdir(SHM)))
"""


def test_two_grow_where_there_is_room_for_one() -> None:
    """Two processes run out of memory together, and there is room for one more segment: both go on with it.

    Neither takes the room for a second one that nobody needs, and neither gives up because the other one was at it.
    """
    found = run(RACE, 38, "10")  # room for two segments, and for a bit
    assert [one["codes"] for one in found["rounds"]] == [[0, 0]] * 10
    assert [one["segments"] for one in found["rounds"]] == [[2, 2]] * 10
    assert found["doctor"] == []
    assert found["left"] == []


def put_for_ever(queue: shmbroker.Queue, size: int) -> None:
    """Put bodies, and wait for nothing."""
    while True:
        queue.put(bytes(size), timeout=0)


@pytest.mark.parametrize("size", [100, 100_000, 3 * MIB])
def test_a_full_broker_says_who_has_it(broker_name: str, size: int) -> None:
    """The same where it is the broker's own limit that is reached: /dev/shm is not to blame then."""
    with shmbroker.testing.broker(broker_name, memory="32M") as broker, broker.connect() as connection:
        other, hoard = connection.queue("other"), connection.queue("hoard")
        other.put(b"x" * 1000)
        with pytest.raises(shmbroker.OutOfMemory) as full:
            put_for_ever(hoard, size)
        held = hoard.statistics().bytes
        assert f"no room for a body of {size} bytes" in str(full.value)
        assert f"of {32 * MIB} bytes are used" in str(full.value)
        assert f"queue 'hoard' holds most, {held} bytes" in str(full.value)
        assert SHM not in str(full.value)
        hoard.get().ack()
        hoard.put(bytes(size), timeout=30)
        assert connection.doctor() == []


JUST_ENOUGH = """
    with shmbroker.connect("small") as connection:
        queue = connection.queue("q")
        queue.put(b"x", timeout=0)
        report(bodies=[bytes(queue.get(auto_ack=True)).decode()])
    shmbroker.Broker("small").stop(purge=True)
"""


def test_a_shm_in_which_a_message_fits() -> None:
    """What is not refused works."""
    assert run(JUST_ENOUGH, 36) == {"bodies": ["x"]}
