# SPDX-License-Identifier: Apache-2.0
"""Records a busy run, makes the files of losses at many places of it, and judges what comes back of each."""

from __future__ import annotations

import faulthandler
import json
import os
import random
import shutil
import subprocess
import sys
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from shmbroker.exceptions import BrokerError
from tests.building import built
from tests.power_loss import journal, recovery
from tests.power_loss.disk import DROPPED, KEPT, LOCKS, Disk
from tests.power_loss.journal import Kind
from tests.power_loss.judge import Promises

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
JOURNAL, STORE = "journal", "store"
_FIRST = 120  # changes of a life, within which
_SHARE_OF_FIRST = 0.15  # of the places lie
_BUILD = ["-DCMAKE_BUILD_TYPE=Release", "-DSB_BUILD_PYTHON=OFF", "-DSB_BUILD_TESTS=ON", "-DSB_TEST_HOOKS=OFF"]


@dataclass
class Report:
    """What a run has shown.

    Attributes:
        changes: how many changes and syncs of files there were.
        kills: how many storekeepers were killed meanwhile.
        places: at how many places power was lost.
        losses: how many folders were made and read.
        brokers: how many of them by a real broker.
        second: how many losses fell into the recovery from another one.
        due: how many messages had to be there, in all losses.
        findings: what was wrong.
    """

    changes: int = 0
    kills: int = 0
    places: int = 0
    losses: int = 0
    brokers: int = 0
    second: int = 0
    due: int = 0
    findings: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        facts = {
            "changes and syncs of files": self.changes,
            "storekeepers killed meanwhile": self.kills,
            "places of a loss": self.places,
            "losses": self.losses,
            "of these read by a broker": self.brokers,
            "losses in the recovery from a loss": self.second,
            "messages that had to be there": self.due,
            "findings": len(self.findings),
        }
        return "\n".join(f"{what:<36} {count:>10,}" for what, count in facts.items())


def _recorded(folder: Path, store: Path, *command: str, kill_after: int | None = None) -> Path:
    """Runs a module, with its changes of a store recorded; returns the journal."""
    to = folder / JOURNAL
    to.touch()
    recorder = built("write_recorder", _BUILD, "write_recorder") / "write_recorder.so"
    given = {"LD_PRELOAD": str(recorder), "WRITE_RECORDER_FOLDER": str(store), "WRITE_RECORDER_JOURNAL": str(to)}
    if kill_after is not None:
        given["WRITE_RECORDER_KILL_AFTER"] = str(kill_after)
    run = [sys.executable, "-m", *command]
    done = subprocess.run(run, cwd=ROOT, env={**os.environ, **given}, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return to


def record(folder: Path, broker: str, seconds: float, seed: int, kill_after: int) -> None:
    """Records a busy run.

    Args:
        folder: gets the journal and the store; it is empty.
        broker: the name of the broker.
        seconds: how long each life takes.
        seed: of what the clients do; when is left to chance.
        kill_after: how many changes a storekeeper makes before it is killed; at most twice as many.
    """
    store = folder / STORE
    store.mkdir()
    words = ("tests.power_loss.play", str(folder / JOURNAL), str(store), broker, str(seconds), str(seed))
    _recorded(folder, store, *words, kill_after=kill_after)


def _places(path: Path, count: int, chance: random.Random) -> set[int]:
    """Chooses places: numbers of records, after which power is lost; more of them where a life begins."""
    changes, first, left = [], [], 0
    for number, one in enumerate(journal.read(path)):
        if one.begins_life():
            left = _FIRST
        if one.kind in journal.CHANGES:
            changes.append(number)
            if left > 0:
                first.append(number)
                left -= 1
    early = min(len(first), int(count * _SHARE_OF_FIRST))
    chosen = set(chance.sample(first, early))
    rest = [number for number in changes if number not in chosen]
    return chosen | set(chance.sample(rest, min(len(rest), count - early)))


class Trial:
    """Losses at places of a recorded run.

    Args:
        folder: what :func:`record` filled.
        broker: the name of brokers that read stores.
        seed: of what is chosen.
        unsynced: files whose syncs count as not made: a fault that must be found.
    """

    def __init__(self, folder: Path, broker: str, seed: int, unsynced: frozenset[str] = frozenset()) -> None:
        self.report = Report()
        self._folder = folder
        self._broker = broker
        self._seed = seed
        self._unsynced = unsynced
        self._promises = Promises()
        self._disk = Disk(unsynced=unsynced)

    def run(self, places: int, losses: int, *, every_broker: int, every_second: int) -> Report:
        """Tries places.

        Args:
            places: how many.
            losses: at each place. The first one drops all that was not synced, the second one keeps all.
            every_broker: of so many losses one is read by a broker.
            every_second: of so many losses one is followed by another one, in the recovery.
        """
        path = self._folder / JOURNAL
        chosen = _places(path, places, random.Random(self._seed))
        for number, one in enumerate(journal.read(path)):
            if one.kind is Kind.MARK:
                self._promises.mark(one.mark())
            elif one.kind is Kind.KILLED:
                self.report.kills += 1
            else:
                self._disk.apply(one)
                self.report.changes += 1
            if number in chosen:
                self.report.places += 1
                for loss in range(losses):
                    self._lose(number, loss, every_broker, every_second)
        self._compare()
        return self.report

    def _compare(self) -> None:
        """The recorder has seen all: the files are as the model of the disk has them."""
        files = {path.name: path.read_bytes() for path in (self._folder / STORE).iterdir() if path.name not in LOCKS}
        model = {name: bytes(one.cached) for name, one in self._disk.names.items() if name not in LOCKS}
        if files != model:
            self.report.findings.append(f"the journal is not complete: {sorted(files)}, {sorted(model)}")

    def _lose(self, number: int, loss: int, every_broker: int, every_second: int) -> None:
        what = f"{self._seed} {number} {loss}"
        chance = random.Random(what)
        style = {0: DROPPED, 1: KEPT}.get(loss)
        store = self._folder / "lost"
        _fill(store, self._disk.after_loss(chance, style))
        self.report.losses += 1
        self.report.due += len(self._promises.due)
        findings: list[str] = []
        if self.report.losses % every_second == 0:
            findings += self._lose_again(store, chance)
        if not findings:
            by_broker = self.report.losses % every_broker == 0
            self.report.brokers += by_broker
            findings += self._judged(store, by_broker=True) if by_broker else self._judged_by_child(store)
        for finding in findings:
            self._say(f"record {number}, loss {loss}: {finding}", self._disk.after_loss(random.Random(what), style))

    def _judged(self, store: Path, *, by_broker: bool = False) -> list[str]:
        try:
            if by_broker:
                found = recovery.read_by_broker(self._broker, store, self._promises.named)
            else:
                found = recovery.read(store)
        except (BrokerError, AssertionError) as error:
            return [f"{type(error).__name__}: {error}"]
        return self._promises.findings(found)

    def _judged_by_child(self, store: Path) -> list[str]:
        """Reads the store in another process: LMDB may end it, if a page is damaged."""
        readable, writable = os.pipe()
        child = os.fork()
        if child == 0:
            status = 1
            try:
                faulthandler.disable()  # what ends the process is a finding, and is said once
                os.close(readable)
                findings = self._judged(store)
                with os.fdopen(writable, "w") as pipe:
                    json.dump(findings, pipe)
                status = 0
            except Exception:  # noqa: BLE001 - it must not go on in two processes
                traceback.print_exc()
            finally:
                os._exit(status)
        os.close(writable)
        with os.fdopen(readable) as pipe:
            said = pipe.read()
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status != 0:
            return [f"the process that read the store ended with status {status}"]
        return list(json.loads(said))

    def _lose_again(self, store: Path, chance: random.Random) -> list[str]:
        """Power is lost once more, while the store is opened."""
        scratch = self._folder / "again"
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        shutil.copytree(store, scratch / STORE)
        try:
            path = _recorded(scratch, scratch / STORE, "tests.power_loss.recovery", str(scratch / STORE))
        except AssertionError as error:
            return [f"in the recovery: {str(error).strip().splitlines()[-1]}"]
        records = list(journal.read(path))
        for at in sorted(chance.sample(range(len(records)), min(5, len(records)))):
            again = Disk(store, self._unsynced)
            for one in records[: at + 1]:
                again.apply(one)
            _fill(scratch / "lost", again.after_loss(chance))
            self.report.second += 1
            findings = self._judged_by_child(scratch / "lost")
            if findings:
                return [f"in the recovery, record {at}: {finding}" for finding in findings]
        return []

    def _say(self, finding: str, files: dict[str, bytes]) -> None:
        self.report.findings.append(finding)
        sys.stdout.write(f"{finding}\n")
        sys.stdout.flush()
        kept = self._folder / f"finding-{len(self.report.findings)}"
        if len(self.report.findings) <= 10:
            _fill(kept, files)


def _fill(folder: Path, files: dict[str, bytes]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)


def records_of(path: Path) -> Iterator[str]:
    """The records of a journal in words, for who follows a finding."""
    names: dict[int, str] = {}
    for number, one in enumerate(journal.read(path)):
        if one.kind is Kind.OPEN:
            names[one.file] = one.content.decode()
        text = (
            one.content.decode() if one.kind in {Kind.MARK, Kind.UNLINK, Kind.RENAME} else f"{len(one.content)} bytes"
        )
        yield f"{number} {one.kind.name} {names.get(one.file, '')} at {one.offset} {one.value:x} {text}"
