# SPDX-License-Identifier: Apache-2.0
"""The commands of stores when something is lost: a kill, a full disk, an interrupt, a store that has gone."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.stores import names_in, numbers_of, serving
from scenario_support.waiting import eventually

from shmbroker.storage import reserve
from shmbroker.storage.database import DATA, Database

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

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
    [("backup._copy", 0), ("verifying.verified", 0), ("folders.sync", 0), ("folders.sync", 1), ("folders.sync", 2)],
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
    (data_dir / reserve.FILE).unlink()  # the small disk has no room for it
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
