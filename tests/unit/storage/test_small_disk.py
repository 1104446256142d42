# SPDX-License-Identifier: Apache-2.0
"""Where the disk of a store is small: nothing that was confirmed is lost, and what consumers remove makes room.

Each test runs a program in a mount namespace of its own, in which the folder of the store is a tmpfs.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

MOUNT = 'mount -t tmpfs -o size="$0" tmpfs "$1" && shift && exec "$@"'

PRELUDE = """
    import json, os, signal, sys, threading, time
    from pathlib import Path
    import shmbroker

    name, folder = sys.argv[1], Path(sys.argv[2])
    broker = shmbroker.Broker(name, memory="64M", data_dir=folder, store_full=sys.argv[3])

    def body(number, size=1000):
        return (b"%d" % number).ljust(size)

    def fill(jobs, size):
        # numbered messages, until the disk is full
        before = jobs.statistics().added
        while True:
            number = jobs.statistics().added - before
            try:
                jobs.put_many([body(number + one, size) for one in range(10)], timeout=2)
            except shmbroker.StoreFull as full:
                return jobs.statistics().added - before, type(full).__name__
            except shmbroker.Timeout:  # they are in the queue, and reach the disk later
                pass

    def drain(jobs):
        # the numbers of the messages, which are acknowledged
        numbers = []
        while jobs.statistics().ready:
            found = jobs.get_many(100, timeout=0)
            numbers += [int(bytes(one)) for one in found]
            found.ack()
        return numbers

    def is_full():
        return broker.statistics().store.is_full

    def free():
        found = os.statvfs(folder)
        return found.f_bavail * found.f_frsize

    def until(condition):
        while not condition():
            time.sleep(0.01)

    def hog(path, leave=0):
        # another program, which takes all that is left
        with open(path, "wb", buffering=0) as file:
            try:
                while free() > leave:
                    file.write(bytes(min(1 << 16, free() - leave)))
            except OSError:
                pass

    def report(**facts):
        print(json.dumps(facts))
"""


def run(source: str, folder: Path, name: str, policy: str, *arguments: str, mebibytes: int = 24) -> Any:  # noqa: ANN401
    """Run a program where the folder has so many MiB, and return its report; skip where that may not be mounted."""
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("there is no unshare(1)")
    alone = [unshare, "--mount", "--propagation", "private", "sh", "-c", MOUNT, f"{mebibytes}m", str(folder)]
    allowed = subprocess.run([*alone, "true"], capture_output=True, text=True, check=False)
    if allowed.returncode != 0:
        pytest.skip(f"not allowed to mount a tmpfs: {allowed.stderr.strip()}")
    body = textwrap.indent(textwrap.dedent(source), "    ")
    ends = "try:\n    broker.start()\n" + body + "\nfinally:\n    broker.stop(purge=True)\n"
    program = [sys.executable, "-c", textwrap.dedent(PRELUDE) + ends, name, str(folder), policy, *arguments]
    done = subprocess.run([*alone, *program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"status {done.returncode}: {done.stderr}"
    return json.loads(done.stdout.splitlines()[-1])


AGAIN_AND_AGAIN = """
with broker.connect() as connection:
    jobs, rounds = connection.queue("jobs", durable=True), []
    for _ in range(3):
        count, error = fill(jobs, int(sys.argv[4]))
        assert is_full()
        numbers = drain(jobs)
        until(lambda: not is_full())
        rounds.append((count, numbers == [*range(count)], error))
    report(rounds=rounds, doctor=connection.doctor())
"""


@pytest.mark.parametrize("size", [1000, 100_000])
@pytest.mark.parametrize(("policy", "error"), [("block", "StoreFull"), ("refuse", "StoreRefused")])
def test_consuming_makes_room(tmp_path: Path, broker_name: str, policy: str, error: str, size: int) -> None:
    """A full disk takes no message; when consumers have taken all, it takes messages as before, without a restart."""
    found = run(AGAIN_AND_AGAIN, tmp_path, broker_name, policy, str(size))
    assert [(whole, said) for _, whole, said in found["rounds"]] == [(True, error)] * 3
    counts = [count for count, _, _ in found["rounds"]]
    assert min(counts) * size > 2 << 20
    assert found["doctor"] == []


RESTART = """
with broker.connect() as connection:
    count, _ = fill(connection.queue("jobs", durable=True), 1000)
hog(folder / "others")
os.kill(broker.statistics().store.storekeeper_pid, signal.SIGKILL)
broker.stop(purge=True)  # a storekeeper begins on the full disk, and takes a turn
broker.start()
with broker.connect() as connection:
    jobs = connection.queue("jobs", durable=True)
    numbers = drain(jobs)
broker.stop(purge=True)
broker.start()
with broker.connect() as connection:
    left = drain(connection.queue("jobs", durable=True))
report(whole=numbers == [*range(count)], left=left, count=count)
"""


def test_a_restart_on_a_full_disk_loses_nothing(tmp_path: Path, broker_name: str) -> None:
    """Nothing that was confirmed is missing, and nothing that was acknowledged comes again."""
    found = run(RESTART, tmp_path, broker_name, "refuse")
    assert found["count"] > 1000
    assert (found["whole"], found["left"]) == (True, [])


OTHERS = """
with broker.connect() as connection:
    jobs = connection.queue("jobs", durable=True)
    jobs.put_many([body(number) for number in range(2000)])
    until(lambda: (folder / "reserve").stat().st_blocks > 0)
    hog(folder / "others")
    late = []
    def put():
        for number in range(2000, 2100):
            jobs.put(body(number))
            late.append(number)
    thread = threading.Thread(target=put)
    thread.start()
    until(is_full)
    (folder / "others").unlink()
    thread.join()
    until(lambda: not is_full())
    numbers = drain(jobs)
    report(whole=numbers == [*range(2100)], late=len(late))
"""


def test_room_that_comes_back_is_used(tmp_path: Path, broker_name: str) -> None:
    """Another program takes the rest of the disk: publishers wait, and go on when it gives the room back."""
    assert run(OTHERS, tmp_path, broker_name, "block") == {"whole": True, "late": 100}


TAKEN = """
with broker.connect() as connection:
    jobs = connection.queue("jobs", durable=True)
    jobs.put_many([body(number) for number in range(5000)])
    until(lambda: (folder / "reserve").stat().st_blocks > 0)
    hog(folder / "others")
    numbers = drain(jobs)
    jobs.put_many([body(number) for number in range(2000)])
    again = drain(jobs)
    broker.stop(purge=True)
    broker.start()
with broker.connect() as connection:
    left = drain(connection.queue("jobs", durable=True))
report(whole=numbers == [*range(5000)], again=again == [*range(2000)], left=left, free=free())
"""


def test_consuming_makes_room_on_a_disk_that_others_fill(tmp_path: Path, broker_name: str) -> None:
    """No block is free: the reserve lets the removals through, and their pages are room for new messages."""
    found = run(TAKEN, tmp_path, broker_name, "block")
    assert (found["whole"], found["again"], found["left"]) == (True, True, [])
