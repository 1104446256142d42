# SPDX-License-Identifier: Apache-2.0
"""`python -m benchmarks.deep`: a durable queue that is far deeper than the memory of its broker.

One producer fills the queue; the memory is lost, and made again from the folder; three consumers with different
selectors drain it, while consumers and storekeepers are killed. A sampler looks at the memory meanwhile. Then the same
number of messages, or as many as fit, are drained from a memory that has them all, by one consumer, and by one through
the budget, for a ratio.

    python -m benchmarks.deep --messages 10000000 --json deep.json --plot docs/images/deep-queue.svg
"""

from __future__ import annotations

import argparse
import json
import os
import queue as standard_queue
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from benchmarks import machine
from benchmarks.plot import deep_queue
from benchmarks.shm import broker as brokers

if TYPE_CHECKING:
    from collections.abc import Sequence

    import shmbroker

QUEUE = "deep"
KINDS = ("a", "b", "c")
BODY_BYTES = 1024
BATCH = 999  # in each, a third is of each kind
SAMPLE_SECONDS = 0.01
KEEP_SECONDS = 0.25  # of the samples, one in this time comes into the results
KILL_SECONDS = 1.0
WAIT_SECONDS = 60.0
BUILD = Path(__file__).parents[1] / "build"
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 (where POSIX shared memory lies on Linux)
BLOCK_BYTES = 512
_NUMBER = struct.Struct("<Q")
_AGAIN = 1 << 63  # the bit of a number that was delivered before


class Sampler:
    """Samples the memory of a broker: its shared memory, and the private memory of its storekeeper.

    Args:
        name: the name of the broker.
    """

    def __init__(self, name: str) -> None:
        """Sample from now on."""
        self._name = name
        self._ended = threading.Event()
        self._keeper: psutil.Process | None = None
        self._began = time.monotonic()
        self.rows: list[dict[str, float]] = []
        self.most = {"shared": 0, "storekeeper": 0}
        self.samples = 0
        self.phase = ""
        self.queue: shmbroker.Queue | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        kept = 0.0
        while not self._ended.wait(SAMPLE_SECONDS):
            found = {"shared": self._shared(), "storekeeper": self._private()}
            self.samples += 1
            for name, value in found.items():
                self.most[name] = max(self.most[name], value)
            now = time.monotonic() - self._began
            if now - kept >= KEEP_SECONDS:
                kept = now
                self.rows.append({"seconds": round(now, 2), "messages": self._messages(), **found})

    def _shared(self) -> int:
        total = 0
        for file in SHARED_MEMORY.glob(f"shmbroker-*.{self._name}.*"):
            try:
                total += file.stat().st_blocks * BLOCK_BYTES
            except FileNotFoundError:
                continue
        return total

    def _private(self) -> int:
        try:
            if self._keeper is None or not self._keeper.is_running():
                self._keeper = storekeeper(self._name)
            if self._keeper is None:
                return 0
            lines = Path(f"/proc/{self._keeper.pid}/status").read_text(encoding="ascii").splitlines()
            return next((int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon")), 0)
        except (psutil.Error, OSError):
            self._keeper = None
            return 0

    def _messages(self) -> int:
        queue = self.queue
        return 0 if queue is None else queue.statistics().message_count

    def end(self) -> None:
        """Sample no more."""
        self._ended.set()
        self._thread.join()


def storekeeper(name: str) -> psutil.Process | None:
    """The process of the storekeeper of a broker, if there is one."""
    for process in psutil.process_iter(["cmdline"]):
        line = " ".join(process.info["cmdline"] or ())
        if "_storekeeper" in line and name in line:
            return process
    return None


def fill(queue: shmbroker.Queue, count: int) -> float:
    """Puts so many messages, each batch on the disk before the next; returns the seconds."""
    began = time.perf_counter()
    body = bytes(BODY_BYTES - _NUMBER.size)
    for first in range(0, count, BATCH):
        for place, kind in enumerate(KINDS):
            numbers = range(first + place, min(count, first + BATCH), len(KINDS))
            bodies = [_NUMBER.pack(number) + body for number in numbers]
            if bodies:
                queue.put_many(bodies, timeout=WAIT_SECONDS, headers={"kind": kind})
    return time.perf_counter() - began


def drain(queue: shmbroker.Queue, count: int) -> float:
    """Gets and acknowledges so many messages, which have to come in their order; returns the seconds."""
    began = time.perf_counter()
    for _ in range(count):
        queue.get(timeout=WAIT_SECONDS).ack()
    return time.perf_counter() - began


def consume(name: str, kind: str, path: str) -> None:
    """A consumer, in a process of its own: notes the number of each message before it acknowledges it."""
    stop = Path(f"{path}.stop")
    with open(path, "ab", buffering=0) as notes, brokers.connected(name) as connection:  # noqa: PTH123
        queue = connection.queue(QUEUE, passive=True)
        with queue.consume(selector=f"kind = '{kind}'", prefetch=100) as consumer:
            while not stop.exists():
                message = _next(consumer)
                if message is not None:
                    (number,) = _NUMBER.unpack(bytes(message)[: _NUMBER.size])
                    notes.write(_NUMBER.pack(number | _AGAIN * message.redelivered))
                    message.ack()


def _next(consumer: Any) -> Any:  # noqa: ANN401
    try:
        return consumer.get(timeout=0.5)
    except standard_queue.Empty:
        return None


class Consumers:
    """Three processes, one for each kind; some are killed and started again."""

    def __init__(self, name: str, folder: Path) -> None:
        """Start them."""
        self._name, self._folder = name, folder
        self.kills = {"consumers": 0, "storekeepers": 0}
        self._processes = {kind: self._start(kind) for kind in KINDS}

    def _start(self, kind: str) -> subprocess.Popen[bytes]:
        line = [sys.executable, "-m", "benchmarks.deep", "--consume", self._name, kind, str(self._folder / kind)]
        return subprocess.Popen(line)  # noqa: S603 - our own module

    def kill_one(self, chance: random.Random) -> None:
        """Kills a consumer, which starts again, and the storekeeper."""
        kind = chance.choice(KINDS)
        self._processes[kind].kill()
        self._processes[kind].wait()
        self._processes[kind] = self._start(kind)
        self.kills["consumers"] += 1
        keeper = storekeeper(self._name)
        if keeper is not None:
            keeper.send_signal(signal.SIGKILL)
            self.kills["storekeepers"] += 1

    def end(self) -> list[int]:
        """Ends them; returns the numbers of all messages that they acknowledged, or were killed before they did.

        A number has `_AGAIN` if the message said that it was delivered before.
        """
        for kind in KINDS:
            (self._folder / f"{kind}.stop").touch()
        for process in self._processes.values():
            process.wait(WAIT_SECONDS)
        found = []
        for kind in KINDS:
            noted = (self._folder / kind).read_bytes()
            whole = len(noted) // _NUMBER.size * _NUMBER.size
            found += [number for (number,) in _NUMBER.iter_unpack(noted[:whole])]
        return found


def through_the_budget(count: int, memory: str, kills: int, folder: Path) -> dict[str, Any]:
    """Fills a queue, loses the memory, drains the queue by three consumers; returns what was seen."""
    store, notes = folder / "store", folder / "notes"
    store.mkdir()
    notes.mkdir()
    found: dict[str, Any] = {"messages": count, "memory": memory, "body_bytes": BODY_BYTES}
    broker, name = brokers.start_broker(memory, data_dir=store)
    sampler = Sampler(name)
    try:
        with brokers.connected(name) as connection:
            sampler.queue = connection.queue(QUEUE, durable=True)
            found["fill_seconds"] = fill(sampler.queue, count)
            sampler.queue = None
        broker.stop(purge=True)
        found["store_bytes"] = sum(file.stat().st_size for file in store.iterdir())
        began = time.perf_counter()
        broker = brokers.package().Broker(name, memory=memory, data_dir=store)
        broker.start()
        found["start_seconds"] = time.perf_counter() - began
        with brokers.connected(name) as connection:
            queue = sampler.queue = connection.queue(QUEUE, passive=True)
            queue.get(timeout=WAIT_SECONDS).nack(requeue=True)
            found["first_delivery_seconds"] = time.perf_counter() - began
            began, killed = time.perf_counter(), time.monotonic()
            consumers, chance = Consumers(name, notes), random.Random(1)  # noqa: S311 - which process is killed
            while queue.statistics().message_count:
                time.sleep(SAMPLE_SECONDS)
                if consumers.kills["consumers"] < kills and time.monotonic() - killed > KILL_SECONDS:
                    consumers.kill_one(chance)
                    killed = time.monotonic()
            found["drain_seconds"] = time.perf_counter() - began
            sampler.queue = None
            numbers = consumers.end()
        unmarked = [number for number in numbers if not number & _AGAIN]
        there = {number & ~_AGAIN for number in numbers}
        found |= {
            "lost": count - len(there),
            "again": len(numbers) - len(there),  # the consumer was killed after its note, before it acknowledged
            "twice": len(unmarked) - len(set(unmarked)),
            "kills": consumers.kills,
        }
    finally:
        sampler.end()
        broker.stop(purge=True)
    return found | {"most": sampler.most, "samples": sampler.samples, "rows": sampler.rows}


def ratio(count: int, memory: str, folder: Path) -> dict[str, float]:
    """Drains a queue by one consumer, from a memory that has all of it, and through a small one."""
    seconds = {}
    for label, size in (("budget", memory), ("memory", f"{64 + count * 2 * BODY_BYTES >> 20}M")):
        store = folder / label
        store.mkdir()
        broker, name = brokers.start_broker(size, data_dir=store)
        try:
            with brokers.connected(name) as connection:
                queue = connection.queue(QUEUE, durable=True)
                fill(queue, count)
                seconds[label] = drain(queue, count)
        finally:
            broker.stop(purge=True)
    return {"messages": count, **{f"{label}_seconds": value for label, value in seconds.items()}}


def main(arguments: Sequence[str]) -> int:
    """Runs the measurement; 1 if a message was lost."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.deep", description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--memory", default="84M", help="of the broker, 20 MB of which are for its structures")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--consume", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.consume:
        consume(*given.consume)
        return 0
    BUILD.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="deep-", dir=BUILD))
    try:
        found = through_the_budget(given.messages, given.memory, given.kills, folder)
        found["ratio"] = ratio(min(given.messages, 1_000_000), given.memory, folder)
    finally:
        shutil.rmtree(folder)
    document = {"machine": machine.describe(), "deep": found}
    if given.json:
        given.json.write_text(json.dumps(document, indent=1) + os.linesep, encoding="utf-8")
    if given.plot:
        deep_queue(document, given.plot)
    shown = {name: value for name, value in found.items() if name != "rows"}
    sys.stdout.write(json.dumps(shown, indent=1) + os.linesep)
    return 1 if found["lost"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
