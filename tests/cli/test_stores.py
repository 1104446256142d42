# SPDX-License-Identifier: Apache-2.0
"""The commands `backup`, `restore`, `compact` and `doctor`, on stores of real brokers."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
from typing import TYPE_CHECKING, Any, Self

import pytest
from scenario_support.stores import names_in, numbers_of, serving
from scenario_support.waiting import eventually

import shmbroker
from shmbroker._core import attachment, native, segments, storing
from shmbroker._session.session import session_of
from shmbroker.storage import folders
from shmbroker.storage.batch import Batch
from shmbroker.storage.database import DATA, Database
from shmbroker.storage.log import LOG, Log
from shmbroker.storage.place import Place

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def files_of(folder: Path) -> dict[str, bytes]:
    """Return what a store consists of."""
    return {one.name: one.read_bytes() for one in folder.iterdir() if one.name in {DATA, LOG, f"{LOG}-wal"}}


class Traffic:
    """A thread that puts messages, one after the other, each as soon as the one before is on the disk.

    Attributes:
        confirmed: how many puts have returned.
    """

    def __init__(self, broker: shmbroker.Broker) -> None:
        self._broker = broker
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.confirmed = 0

    def _run(self) -> None:
        with self._broker.connect() as connection:
            queue = connection.queue("jobs", durable=True)
            while not self._ended.is_set():
                queue.put(b"%d" % self.confirmed)
                self.confirmed += 1

    def __enter__(self) -> Self:
        self._thread.start()
        eventually(lambda: self.confirmed > 100, "some messages")
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()


def test_a_backup_has_all_that_was_confirmed(cli: Callable[..., Any], broker_name: str, tmp_path: Path) -> None:
    """Beside traffic that never rests; restored, another broker has it. The original goes on."""
    (tmp_path / "store").mkdir()
    with serving(broker_name, tmp_path / "store") as broker, Traffic(broker) as traffic:
        for number in range(3):
            before = traffic.confirmed
            ran = cli("backup", str(tmp_path / f"backup-{number}"), "--json")
            assert ran.code == 0, ran.err
            after = traffic.confirmed
            facts = ran.facts
            assert (facts["broker"], facts["queues"]) == (broker_name, 1)
            assert before <= facts["messages"] <= after + 1
            restored = tmp_path / f"restored-{number}"
            assert cli("restore", str(tmp_path / f"backup-{number}"), str(restored)).code == 0
            found = numbers_of(f"{broker_name}-{number}", restored)
            assert found == [*range(facts["messages"])]
        assert cli("doctor").lines == [f"{broker_name}: healthy"]
    assert sorted(names_in(tmp_path / "backup-0")) == ["backup.json", DATA, LOG]
    assert len(numbers_of(broker_name, tmp_path / "store")) == traffic.confirmed


def test_a_backup_has_acknowledgements(cli: Callable[..., Any], broker_name: str, data_dir: Path) -> None:
    """An acknowledgement waits for nothing; the backup waits for it."""
    backup = data_dir.with_name("backup")
    with serving(broker_name, data_dir) as broker, broker.connect() as connection:
        queue = connection.queue("jobs", durable=True)
        queue.put_many([b"0", b"1", b"2"])
        queue.get().ack()
        ran = cli("backup", str(backup))
    assert ran.lines == [f"{backup}: 1 queue, 2 messages, {ran.out.split(', ')[2].strip()}"]
    assert numbers_of(f"{broker_name}-2", backup) == [1, 2]  # a broker can begin from the backup itself


def test_a_backup_of_a_store_that_no_broker_uses(cli: Callable[..., Any], broker_name: str, filled: Path) -> None:
    """What only the log has is in the backup, too. The store stays as it is."""
    with Database(filled, owner="a test") as database:  # the database loses a turn that the log has
        log = Log(filled)
        with database.environment.begin(write=True) as transaction:
            applied = int.from_bytes(transaction.get(b"applied", db=database.names[b"info"]), "little")
        with database.environment.begin(write=True, buffers=True) as transaction:
            batch = Batch(database, transaction)
            batch.set_tail(1, 1000)
            log.append(applied + 1, batch.changes or b"")
            transaction.abort()
        log.close()
    before = files_of(filled)
    backup = filled.with_name("backup")
    ran = cli("backup", str(backup), "--data-dir", str(filled), "--json")
    assert (ran.code, ran.facts["broker"], ran.facts["messages"]) == (0, None, 300)
    assert files_of(filled) == before
    with serving(broker_name, backup) as broker, broker.connect() as connection:
        queue = connection.queue("jobs", passive=True)
        queue.put(b"300")
        assert [message.sequence for message in queue.browse()][-1] == 1000


@pytest.mark.parametrize("there", ["file", "full", "nowhere"])
def test_where_no_backup_can_be_made(cli: Callable[..., Any], filled: Path, there: str) -> None:
    """Nothing is overwritten."""
    target = filled.parent / "there"
    words = {"file": "is no folder", "full": "is not empty", "nowhere": "cannot be made there"}[there]
    if there == "file":
        target.write_bytes(b"precious")
    elif there == "full":
        target.mkdir()
        (target / "precious").write_bytes(b"precious")
    else:
        target = target / "backup"
    before = names_in(filled.parent)
    assert cli("backup", str(target), "--data-dir", str(filled)).is_refused(words)
    assert names_in(filled.parent) == before


def test_a_place_has_one_backup_at_a_time(cli: Callable[..., Any], filled: Path) -> None:
    """The second one is refused, and the first one comes to its end."""
    target = filled.with_name("backup")
    with folders.appearing(target) as partial:
        (partial / "begun").write_bytes(b"")
        assert cli("backup", str(target), "--data-dir", str(filled)).is_refused("another process is writing")
    assert names_in(target) == {"begun"}


def test_brokers_without_a_store(cli: Callable[..., Any], broker: shmbroker.Broker, tmp_path: Path) -> None:
    """They have nothing to back up; the doctor looks at their memory alone."""
    assert cli("backup", str(tmp_path / "b")).is_refused(f"broker '{broker.name}' has no store")
    assert cli("backup", str(tmp_path / "b"), "--broker", "t-nowhere").is_refused("t-nowhere")
    assert cli("doctor").lines == [f"{broker.name}: healthy"]


def test_a_store_in_use_is_left_alone(cli: Callable[..., Any], broker_name: str, filled: Path) -> None:
    """The error says who uses it."""
    backup = filled.with_name("backup")
    assert cli("backup", str(backup), "--data-dir", str(filled)).code == 0
    with serving(broker_name, filled):
        text = f"in use by broker '{broker_name}'"
        assert cli("compact", str(filled)).is_refused(text)
        assert cli("doctor", "--data-dir", str(filled)).is_refused(text)
        assert cli("backup", str(filled.with_name("b")), "--data-dir", str(filled)).is_refused(text)
        assert cli("restore", str(backup), str(filled)).is_refused(f"is that of broker '{broker_name}', which exists")
    with contextlib.closing(_Closing(Place(filled, "a test"))):
        assert cli("restore", str(backup), str(filled)).is_refused("in use by a test, process")
    assert cli("restore", str(backup), str(filled)).is_refused("has a store already")
    assert numbers_of(broker_name, filled) == [*range(300)]


def test_a_store_between_two_storekeepers_is_left_alone(
    cli: Callable[..., Any], broker_name: str, filled: Path
) -> None:
    """The broker runs, and nobody holds the writer's place: whoever came in would delay the next storekeeper."""
    backup = filled.with_name("backup")
    with serving(broker_name, filled):
        (filled / "owner").unlink()  # the lock is on what was there
        for given in (
            ("compact", str(filled)),
            ("doctor", "--data-dir", str(filled)),
            ("backup", str(backup), "--data-dir", str(filled)),
            ("export", "jobs", str(filled.with_name("jobs.jsonl")), "--data-dir", str(filled)),
        ):
            assert cli(*given).is_refused(f"in use by broker '{broker_name}'")
    assert not backup.exists()


class _Closing:
    def __init__(self, place: Place) -> None:
        self.close = place.leave


@pytest.mark.parametrize("damage", ["flipped", "short", "missing", "note", "format", "foreign", "folder"])
def test_a_damaged_backup_is_refused(cli: Callable[..., Any], filled: Path, damage: str) -> None:
    """The folder has no store then."""
    backup, target = filled.with_name("backup"), filled.with_name("restored")
    assert cli("backup", str(backup), "--data-dir", str(filled)).code == 0
    data, note = backup / DATA, backup / "backup.json"
    whole = data.read_bytes()
    words = {
        "flipped": "has the checksum", "short": f"has {len(whole) - 4096} bytes, not {len(whole)}",
        "missing": "is missing", "note": "cannot be read", "format": "has format 9", "foreign": "has no file",
        "folder": "it is no folder",
    }[damage]  # fmt: skip
    if damage == "flipped":
        data.write_bytes(whole[:-100] + bytes([whole[-100] ^ 1]) + whole[-99:])
    elif damage == "short":
        data.write_bytes(whole[:-4096])
    elif damage == "missing":
        data.unlink()
    elif damage == "note":
        note.write_text("{", encoding="utf-8")
    elif damage == "format":
        note.write_text(json.dumps(json.loads(note.read_text(encoding="utf-8")) | {"backup": 9}), encoding="utf-8")
    elif damage == "foreign":
        backup = filled
    else:
        backup = data
    assert cli("restore", str(backup), str(target)).is_refused(words)
    assert not target.exists()
    target.mkdir()
    assert cli("restore", str(backup), str(target)).is_refused(words)
    assert names_in(target) <= {"owner"}


def test_a_store_is_compacted(cli: Callable[..., Any], broker_name: str, data_dir: Path) -> None:
    """The file is smaller, and has the same messages; the log goes with it."""
    with serving(broker_name, data_dir) as broker, broker.connect() as connection:
        queue = connection.queue("jobs", durable=True)
        queue.put_many([b"%d" % number + b" " * 20_000 for number in range(1000)])
        for message in queue.get_many(900):
            message.ack()
    before = (data_dir / DATA).stat().st_size
    ran = cli("compact", str(data_dir), "--json")
    after = (data_dir / DATA).stat().st_size
    assert ran.facts == {"data_dir": str(data_dir), "before": before, "after": after}
    assert after < before / 4
    assert cli("compact", str(data_dir)).lines[0].startswith(f"{data_dir}: ")
    assert cli("doctor", "--data-dir", str(data_dir)).lines == [f"{data_dir}: healthy"]
    found = numbers_of(broker_name, data_dir)
    assert (len(found), found[-1]) == (len(set(found)), 999)
    assert 100 <= len(found) < 1000  # a batch takes as many messages as its memory has room for


def test_a_store_that_is_being_read_is_not_compacted(cli: Callable[..., Any], filled: Path) -> None:
    """A backup of a broker that has stopped meanwhile, for example."""
    before = files_of(filled)
    with Database(filled):
        assert cli("compact", str(filled)).is_refused("is being read by another process")
    assert files_of(filled) == before
    assert cli("compact", str(filled)).code == 0


@pytest.mark.parametrize("command", ["compact", "doctor", "backup"])
def test_folders_without_a_store(cli: Callable[..., Any], tmp_path: Path, command: str) -> None:
    """No store is made there."""
    for folder, words in ((tmp_path / "no", "is no folder"), (tmp_path, "has no store")):
        given = {
            "compact": (str(folder),), "doctor": ("--data-dir", str(folder)),
            "backup": (str(tmp_path / "b"), "--data-dir", str(folder)),
        }[command]  # fmt: skip
        assert cli(command, *given).is_refused(words)
    assert names_in(tmp_path) == set()


def flip(path: Path, places: list[int]) -> None:
    """Change a bit of a file in each of some places."""
    whole = bytearray(path.read_bytes())
    for at in places:
        whole[at] ^= 1
    path.write_bytes(whole)


def places_of(path: Path, body: bytes) -> list[int]:
    """Find a body in each of the pages of a store that have it: some may be old."""
    whole, found, at = path.read_bytes(), [], -1
    while (at := whole.find(body, at + 1)) >= 0:
        found.append(at)
    return found


def test_the_doctor_reads_the_store(cli: Callable[..., Any], broker_name: str, data_dir: Path) -> None:
    """A damaged body of a message, and a log that is missing; with the broker, and without."""
    body = b"a body that is found in the file"
    with serving(broker_name, data_dir) as broker, broker.connect() as connection:
        connection.queue("jobs", durable=True).put(body)
        assert cli("backup", str(data_dir.with_name("b"))).code == 0  # the database has it now
        assert cli("doctor").lines == [f"{broker_name}: healthy"]
        flip(data_dir / DATA, places_of(data_dir / DATA, body))
        ran = cli("doctor")
        assert (ran.code, ran.out) == (1, f"{broker_name}: store: the bodies of queue 1 at 0\n")
        text = "the bodies of queue 1 at 0"
        assert cli("backup", str(data_dir.with_name("c"))).is_refused("is damaged", text)
    assert cli("compact", str(data_dir)).is_refused("is damaged", text)
    ran = cli("doctor", "--data-dir", str(data_dir), "--json")
    assert (ran.code, ran.facts) == (1, {"data_dir": str(data_dir), "healthy": False, "problems": [text]})
    flip(data_dir / DATA, places_of(data_dir / DATA, bytes([body[0] ^ 1]) + body[1:]))
    assert cli("doctor", "--data-dir", str(data_dir)).code == 0
    (data_dir / LOG).unlink()
    assert cli("doctor", "--data-dir", str(data_dir)).lines == [f"{data_dir}: the log 'log.sqlite' is missing"]
    assert cli("doctor", "jobs", "--data-dir", str(data_dir)).is_refused("NAME or --data-dir", code=2)


def test_the_doctor_notices_a_storekeeper_that_is_stopped(
    cli: Callable[..., Any], broker_name: str, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing reaches the disk then. A backup gives up after a while, and asks for nothing any more."""
    monkeypatch.setattr("shmbroker.stores._LOOK_SECONDS", 0.1)
    with serving(broker_name, data_dir) as broker, broker.connect() as connection:
        connection.queue("jobs", durable=True).put(b"1")
        with attachment.attached_to(segments.path_of(broker_name)) as found:
            keeper = int(native.slow.sb_store_keeper(found.handle))
        os.kill(keeper, signal.SIGSTOP)
        try:
            ran = cli("doctor")
            assert ran.code == 1
            assert f"Process {keeper} is the storekeeper" in ran.out
            assert cli("backup", str(data_dir.with_name("b")), "--timeout", "0.1").is_refused(
                f"broker {broker_name!r}: process {keeper} is its storekeeper, and has not brought everything into the "
                f"database {str(data_dir / DATA)!r} in 0.1 seconds"
            )
            assert "settle" not in names_in(data_dir)
        finally:
            os.kill(keeper, signal.SIGCONT)
        assert cli("backup", str(data_dir.with_name("b"))).code == 0
        assert "settle" not in names_in(data_dir)
    assert names_in(data_dir.parent) == {"store", "b"}


def test_a_pause_that_persists_is_told(cli: Callable[..., Any], broker_name: str, data_dir: Path) -> None:
    """By the pause, and whenever the queue is shown; only a queue on disk has such a pause."""
    with serving(broker_name, data_dir) as broker, broker.connect() as connection:
        jobs, quick = connection.queue("jobs", durable=True), connection.queue("quick")
        assert cli("queue", "pause", "jobs").lines == ["jobs: paused"]
        assert ("paused", "yes") in facts_in(cli("queue", "show", "jobs").lines)
        assert cli("queue", "pause", "jobs", "--persist").lines == ["jobs: paused, also after a restart"]
        assert cli("queue", "pause", "quick", "--persist", "--json").facts["pause_persists"] is False
        assert (jobs.pause_persists, quick.pause_persists) == (True, False)
        assert ("paused", "yes, also after a restart") in facts_in(cli("queue", "show", "jobs").lines)
        assert cli("queue", "show", "jobs", "--json").facts["pause_persists"] is True
        jobs.resume()
        assert not jobs.pause_persists
        assert ("paused", "no") in facts_in(cli("queue", "show", "jobs").lines)


# ---- a full disk ----


def test_the_status_tells_of_a_full_disk(cli: Callable[..., Any], broker_name: str, data_dir: Path) -> None:
    """And of what publishers do meanwhile; a broker keeps its policy."""
    broker = shmbroker.Broker(broker_name, memory="64M", data_dir=data_dir, store_full="refuse").start()
    try:
        assert {("disk", "has room"), ("while it is full", "refuse")} <= facts_in(cli("status").lines)
        assert cli("status", "--json").facts["store"]["store_full"] == "refuse"
        with broker.connect() as connection:
            storing.CoreStorekeeper(session_of(connection).core, 0).set_full(full=True)
            assert ("disk", "full") in facts_in(cli("status").lines)
        with pytest.raises(shmbroker.PreconditionFailed, match="exists with store_full='refuse', not 'block'"):
            shmbroker.Broker(broker_name, data_dir=data_dir, store_full="block").create()
    finally:
        broker.stop(purge=True)


def facts_in(lines: list[str]) -> set[tuple[str, ...]]:
    """Return the names and values of the lines of a status."""
    return {tuple(part.strip() for part in line.split("  ", 1)) for line in lines}
