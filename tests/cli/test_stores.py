# SPDX-License-Identifier: Apache-2.0
"""The commands `backup`, `restore`, `compact` and `doctor`, on stores of real brokers."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any, Self

import pytest
from scenario_support.waiting import eventually

import shmbroker
from shmbroker._core import attachment, native, segments
from shmbroker.storage.database import DATA, Database
from shmbroker.storage.log import LOG, Log
from shmbroker.storage.place import Place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


def files_of(folder: Path) -> dict[str, bytes]:
    """Return what a store consists of."""
    return {one.name: one.read_bytes() for one in folder.iterdir() if one.name in {DATA, LOG, f"{LOG}-wal"}}


def names_in(folder: Path) -> set[str]:
    """Return the names in a folder."""
    return {one.name for one in folder.iterdir()}


@contextlib.contextmanager
def serving(name: str, folder: Path, memory: str = "64M") -> Iterator[shmbroker.Broker]:
    """Start a broker with a store, and purge its memory at the end."""
    broker = shmbroker.Broker(name, memory=memory, data_dir=folder)
    try:
        yield broker.start()
    finally:
        broker.stop(purge=True)


def numbers_of(name: str, folder: Path) -> list[int]:
    """Begin a broker from a store; return the bodies in its queue `jobs`, as numbers."""
    with serving(name, folder) as broker, broker.connect() as connection:
        return [int(bytes(message)) for message in connection.queue("jobs", passive=True).browse()]


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
        from shmbroker.storage.batch import Batch  # noqa: PLC0415 - of this test alone

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
        text = f"in use by broker '{broker_name}', process"
        assert cli("compact", str(filled)).is_refused(text)
        assert cli("doctor", "--data-dir", str(filled)).is_refused(text)
        assert cli("backup", str(filled.with_name("b")), "--data-dir", str(filled)).is_refused(text)
        assert cli("restore", str(backup), str(filled)).is_refused(f"is that of broker '{broker_name}', which exists")
    with contextlib.closing(_Closing(Place(filled, "a test"))):
        assert cli("restore", str(backup), str(filled)).is_refused("in use by a test, process")
    assert cli("restore", str(backup), str(filled)).is_refused("has a store already")
    assert numbers_of(broker_name, filled) == [*range(300)]


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
            assert cli("backup", str(data_dir.with_name("b")), "--timeout", "0.1").is_refused("not synced")
            assert "settle" not in names_in(data_dir)
        finally:
            os.kill(keeper, signal.SIGCONT)
        assert cli("backup", str(data_dir.with_name("b"))).code == 0
        assert "settle" not in names_in(data_dir)
    assert names_in(data_dir.parent) == {"store", "b"}


# ---- kills ----

# A program that kills itself in the middle of a command: where a function is called.
KILLED = """
import os, signal, sys
from pathlib import Path
import shmbroker.storage.{module} as module
at = int(sys.argv.pop(1))
calls = 0
def killed(*given, **more):
    global calls
    calls += 1
    if calls > at:
        os.kill(os.getpid(), signal.SIGKILL)
    return original(*given, **more)
original = module.{name}
module.{name} = killed
sys.argv[0] = "shmbroker"
from shmbroker_cli.app import main
main()
"""


def killed_in(module: str, name: str, at: int, *arguments: str) -> int:
    """Run a command that kills itself in the call of a function after `at` ones; return its exit status."""
    program = KILLED.format(module=module, name=name)
    done = subprocess.run(
        [sys.executable, "-c", program, str(at), *arguments], capture_output=True, text=True, check=False
    )
    return done.returncode


@pytest.mark.parametrize("step", ["copying.write_all", "backup.Writer", "backup._checksum", "folders._rename"])
def test_a_killed_backup(cli: Callable[..., Any], broker_name: str, data_dir: Path, step: str) -> None:
    """Its place stays empty, and the next one begins anew; the broker works on, and uses free pages again."""
    backup = data_dir.with_name("backup")
    module, _, name = step.partition(".")
    with serving(broker_name, data_dir) as broker, broker.connect() as connection:
        connection.queue("jobs", durable=True).put_many([b"%d" % number for number in range(300)])
        status = killed_in(module, name, 0, "--broker", broker_name, "backup", str(backup))
        assert status == -signal.SIGKILL
        assert names_in(data_dir.parent) == {"store", "backup.partial"}
        connection.queue("jobs", durable=True).put(b"300")
        assert cli("backup", str(backup)).code == 0
    assert names_in(data_dir.parent) == {"store", "backup"}
    assert numbers_of(f"{broker_name}-2", backup) == [*range(301)]


@pytest.mark.parametrize(
    ("step", "at"),
    [("backup._copy", 0), ("verify.verified", 0), ("folders.sync", 0), ("folders.sync", 1), ("folders.sync", 2)],
)
def test_a_killed_restore(cli: Callable[..., Any], broker_name: str, filled: Path, step: str, at: int) -> None:
    """The next one begins anew, or finds all of the store."""
    backup, target = filled.with_name("backup"), filled.with_name("restored")
    assert cli("backup", str(backup), "--data-dir", str(filled)).code == 0
    module, _, name = step.partition(".")
    assert killed_in(module, name, at, "restore", str(backup), str(target)) == -signal.SIGKILL
    if not (target / DATA).exists():
        assert cli("restore", str(backup), str(target)).code == 0
    assert numbers_of(broker_name, target) == [*range(300)]


@pytest.mark.parametrize(
    ("step", "at"), [("copying.write_all", 0), ("beside.replacing", 0), ("folders.sync", 0), ("shutil.rmtree", 1)]
)
def test_a_killed_compaction(cli: Callable[..., Any], broker_name: str, filled: Path, step: str, at: int) -> None:
    """The store is as it was, or compact; the next one removes what is left."""
    module, _, name = step.partition(".")
    if module == "shutil":
        module, name = "compacting", "shutil.rmtree"
    assert killed_in(module, name, at, "compact", str(filled)) == -signal.SIGKILL
    assert "compact.partial" in names_in(filled)
    assert cli("doctor", "--data-dir", str(filled)).code == 0
    assert numbers_of(broker_name, filled) == [*range(300)]
    assert cli("compact", str(filled)).code == 0
    assert "compact.partial" not in names_in(filled)
    assert numbers_of(broker_name, filled) == [*range(300)]


@pytest.mark.parametrize(("number", "words"), [(signal.SIGKILL, "was ended by signal 9"), (signal.SIGSEGV, "damaged")])
def test_a_reader_that_ends_by_a_signal(
    cli: Callable[..., Any], filled: Path, monkeypatch: pytest.MonkeyPatch, number: int, words: str
) -> None:
    """A damaged page may end the process that copies; a signal of another process does not mean damage."""
    program = filled.parent / "python"
    program.write_text(f"#!/bin/sh\nkill -{int(number)} $$\n", encoding="utf-8")
    program.chmod(0o700)
    with monkeypatch.context() as patched:
        patched.setattr(sys, "executable", str(program))
        given = (str(filled.with_name("backup")), "--data-dir", str(filled))
        assert cli("backup", *given).is_refused(words)
        ran = cli("doctor", "--data-dir", str(filled))
        assert ran.code == 1
        assert words in ran.out
    assert names_in(filled.parent) == {"store", "python"}
    assert cli("backup", *given).code == 0


def test_a_store_that_has_gone(cli: Callable[..., Any], broker_name: str, data_dir: Path) -> None:
    """The doctor says so, and what it found in the memory."""
    with serving(broker_name, data_dir):
        moved = data_dir.rename(data_dir.with_name("moved"))
        try:
            ran = cli("doctor")
        finally:
            moved.rename(data_dir)
        assert ran.code == 1
        assert ran.out.startswith(f"{broker_name}: store: ")
        assert str(data_dir) in ran.out


def test_a_killed_reader_keeps_no_pages(cli: Callable[..., Any], broker_name: str, data_dir: Path) -> None:
    """The storekeeper forgets a copier that was killed while it held the state of the store at one moment."""
    with serving(broker_name, data_dir) as broker, broker.connect() as connection:
        queue = connection.queue("jobs", durable=True)
        queue.put(b"1")
        assert cli("doctor").code == 0
        program = (
            "import sys, shmbroker.storage.database as d\n"
            "found = d.Database(sys.argv[1])\n"
            "with found.read():\n    print('reads', flush=True)\n    sys.stdin.read()\n"
        )
        with subprocess.Popen(
            [sys.executable, "-c", program, str(data_dir)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as reader:
            assert reader.stdout is not None
            assert reader.stdout.readline() == b"reads\n"
            with Database(data_dir) as found:
                assert str(reader.pid) in found.environment.readers()
            reader.kill()
        with Database(data_dir) as found:
            eventually(lambda: str(reader.pid) not in found.environment.readers(), "the end of the reader's place")


# ---- a full disk ----

MOUNT = 'mount -t tmpfs -o size=6m tmpfs "$0" && cd "$0" && cp -r "$1" store && shift &&'


def on_a_small_disk(place: Path, store: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a mount namespace in which a folder is a file system of 6 MiB with a copy of a store, `store`.

    The standard output has what the file system has afterwards. Skips the test if that is not allowed.
    """
    unshare = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"]), "sh", "-c"]
    allowed = subprocess.run(
        [*unshare, f"{MOUNT} true", str(place), str(store)], capture_output=True, text=True, check=False
    )
    if allowed.returncode != 0:
        pytest.skip(f"not allowed to mount a tmpfs: {allowed.stderr.strip()}")
    command = [sys.executable, "-m", "shmbroker_cli", *arguments]
    script = f'{MOUNT} ("$@"; code=$?; find . -type f; cmp {store}/{DATA} store/{DATA}; exit $code)'
    return subprocess.run(
        [*unshare, script, str(place), str(store), *command], capture_output=True, text=True, check=False
    )


@pytest.fixture
def large(broker_name: str, data_dir: Path) -> Path:
    """Return a store of some 4 MiB, which no broker uses."""
    with serving(broker_name, data_dir) as broker, broker.connect() as connection:
        connection.queue("jobs", durable=True).put_many([b"%d" % number + b" " * 2**20 for number in range(4)])
    return data_dir


@pytest.mark.parametrize(
    "arguments",
    [
        ("backup", "backup", "--data-dir", "store"),
        ("restore", "../kept", "restored"),
        ("compact", "store"),
        ("export", "jobs", "messages.jsonl", "--data-dir", "store"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_full_disk(cli: Callable[..., Any], large: Path, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """One line says so, nothing half is left, and the store is as it was; an export brings the log into it."""
    place = tmp_path / "place"
    place.mkdir()
    assert cli("backup", str(tmp_path / "kept"), "--data-dir", str(large)).code == 0
    done = on_a_small_disk(place, large, *arguments)
    assert done.returncode == 1
    assert "No space left on device" in done.stderr
    assert done.stderr.count("\n") == 1
    left = {line.removeprefix("./") for line in done.stdout.splitlines() if arguments[0] != "export" or ":" not in line}
    assert left - {"store/lock.mdb"} == {f"store/{name}" for name in (names_in(large) | {"owner"}) - {"lock.mdb"}}


# ---- bars and interrupts ----


def test_bars_are_for_a_terminal(filled: Path) -> None:
    """They say what is being done, in bytes and entries, on standard error; without a terminal there are none."""
    outer, inner = os.openpty()
    target = filled.with_name("backup")
    command = [sys.executable, "-m", "shmbroker_cli", "backup", str(target), "--data-dir", str(filled), "--json"]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=inner, env=environment, text=True, check=True)
    os.close(inner)
    shown = b""
    with contextlib.suppress(OSError):  # the end of a terminal
        while found := os.read(outer, 65536):
            shown += found
    os.close(outer)
    assert json.loads(done.stdout)["messages"] == 300
    assert b"copied" in shown
    assert b"KiB of" in shown
    assert b"checked" in shown
    target = filled.with_name("again")
    command[4] = str(target)
    quiet = subprocess.run(command, capture_output=True, text=True, check=True)
    assert quiet.stderr == ""


def test_an_interrupted_backup_leaves_nothing(filled: Path) -> None:
    """The exit code is that of an interrupt; the process that copies ends, too."""
    target = filled.with_name("backup")
    program = (
        "import os, signal, sys\n"
        "import shmbroker.storage.copying as copying\n"
        "def interrupted(file, data):\n    os.kill(os.getpid(), signal.SIGINT)\n"
        "copying.write_all = interrupted\n"
        "from shmbroker_cli.app import main\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "backup", str(target), "--data-dir", str(filled)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
    assert names_in(filled.parent) == {"store"}
