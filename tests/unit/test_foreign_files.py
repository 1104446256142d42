# SPDX-License-Identifier: Apache-2.0
"""Files that have the names of a broker's, and are another user's, or open to others, are refused with a reason."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from scenario_support.processes import run_python

import shmbroker
from shmbroker._core import attachment, native, segments
from shmbroker.exceptions import AccessRefused, OutOfMemory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

STRANGER = 65534
ATTEMPTS = 2000
ROOT = pytest.mark.skipif(os.getuid() != 0, reason="only root can give files to others")
FILES = ("0", "1", "lock", "journal-0", "journal-1")


def file_of(broker: str, suffix: str) -> Path:
    """Where a file of a broker of ours lies."""
    return Path(f"/dev/shm/shmbroker-{os.getuid()}.{broker}.{suffix}")  # noqa: S108


def use(broker: str) -> None:
    """Connects, and declares what needs every file."""
    with shmbroker.connect(broker, create=False) as connection, connection.channel() as channel:
        channel.exchange_declare("e", "fanout")
        channel.exchange_delete("e")
        connection.bindings()


def in_its_place(path: Path, what: Callable[[Path], object]) -> None:
    """Puts something else where a file is, under another name first, as who renames a file does."""
    fresh = path.with_name(path.name + "-fresh")
    fresh.write_bytes(path.read_bytes())
    fresh.chmod(0o600)
    what(fresh)
    fresh.rename(path)


@ROOT
@pytest.mark.damaged
@pytest.mark.parametrize("mode", [0o600, 0o660])
@pytest.mark.parametrize("suffix", FILES)
def test_a_file_of_another_user(broker_name: str, suffix: str, mode: int) -> None:
    """It is named, with its owner, and not used, whether it is shared with a group or not."""
    shmbroker.Broker(broker_name, memory="32M").create()
    if suffix == "journal-0":  # which one is used depends on how often it was written anew
        in_its_place(file_of(broker_name, "journal-1"), lambda path: os.chown(path, STRANGER, STRANGER))
    in_its_place(file_of(broker_name, suffix), lambda path: os.chown(path, STRANGER, STRANGER))
    if suffix == "journal-1":
        os.chown(file_of(broker_name, "journal-0"), STRANGER, STRANGER)
    file_of(broker_name, suffix).chmod(mode)
    with pytest.raises(AccessRefused, match=f"{broker_name}.* belongs to user {STRANGER}, not to user 0"):
        use(broker_name)
    assert broker_name in shmbroker.brokers()  # so that a command that looks reports it
    for each in FILES:
        os.chown(file_of(broker_name, each), 0, 0)


@pytest.mark.damaged
@pytest.mark.parametrize("mode", [0o666, 0o606, 0o640, 0o620])
@pytest.mark.parametrize("suffix", ["0", "1", "lock"])
def test_a_file_that_others_may_open(broker_name: str, suffix: str, mode: int) -> None:
    """Its mode is named; right again, the broker is used."""
    shmbroker.Broker(broker_name, memory="32M").create()
    file_of(broker_name, suffix).chmod(mode)
    with pytest.raises(AccessRefused, match=f"{broker_name}.{suffix} has mode {mode:04o}: 0600, or 0660 for a group"):
        use(broker_name)
    file_of(broker_name, suffix).chmod(0o600)
    use(broker_name)


@pytest.mark.damaged
@pytest.mark.parametrize("suffix", ["0", "lock"])
def test_what_is_no_file(broker_name: str, suffix: str) -> None:
    """A symbolic link is not followed, and a pipe does not stop who opens it."""
    shmbroker.Broker(broker_name, memory="32M").create()
    path = file_of(broker_name, suffix)
    kept = path.with_name(path.name + "-kept")
    path.rename(kept)
    for make in (lambda: path.symlink_to(kept), lambda: os.mkfifo(path, 0o600)):
        make()
        with pytest.raises(AccessRefused, match=f"{broker_name}.{suffix} is no regular file"):
            use(broker_name)
        path.unlink()
    kept.rename(path)
    use(broker_name)


@pytest.mark.parametrize("suffix", ["0", "lock", "journal-0", "journal-1"])
def test_a_link_to_a_file_of_ours(broker_name: str, suffix: str) -> None:
    """It is refused where it is opened, though owner and mode of what it leads to are right."""
    shmbroker.Broker(broker_name, memory="32M").create()
    path = file_of(broker_name, suffix)
    kept = path.with_name(path.name + "-kept")
    path.rename(kept)
    path.symlink_to(kept)
    opening = segments.open_file(segments.path_of(broker_name), suffix, os.O_RDWR)
    with pytest.raises(AccessRefused, match=f"{broker_name}.{suffix} is no regular file"), opening:
        pass
    path.unlink()
    kept.rename(path)
    use(broker_name)


@pytest.mark.parametrize("suffix", ["lock", "journal-0", "journal-1"])
def test_what_was_opened_is_looked_at(broker_name: str, monkeypatch: pytest.MonkeyPatch, suffix: str) -> None:
    """Not what has the name before or afterwards: another user may rename files meanwhile."""
    shmbroker.Broker(broker_name, memory="32M").create()
    path, opened = file_of(broker_name, suffix), os.open
    meanwhile = path.with_name(path.name + "-meanwhile")
    meanwhile.touch()
    meanwhile.chmod(0o666)
    with monkeypatch.context() as renamed:
        renamed.setattr(os, "open", lambda name, *how: opened(meanwhile if name == str(path) else name, *how))
        with pytest.raises(AccessRefused), segments.open_file(segments.path_of(broker_name), suffix, os.O_RDWR):
            pass
    meanwhile.unlink()
    use(broker_name)


@ROOT
@pytest.mark.parametrize("suffix", ["lock", "journal-0", "journal-1"])
def test_a_file_that_was_there_before_the_broker(broker_name: str, suffix: str) -> None:
    """Nothing is made beside another user's file; it is named."""
    path = file_of(broker_name, suffix)
    path.write_bytes(b"garbage")
    os.chown(path, STRANGER, STRANGER)
    with pytest.raises(AccessRefused, match=f"{broker_name}.{suffix} belongs to user {STRANGER}"):
        shmbroker.Broker(broker_name, memory="32M").start()
    assert [file.name for file in path.parent.glob(f"*{broker_name}*")] == [path.name]
    path.unlink()


def fill(queue: shmbroker.Queue, body: bytes) -> None:
    """Puts more than the largest broker of these tests holds."""
    for _ in range(128):
        queue.put_nowait(body)


def strange(path: Path) -> None:
    """Another user's file."""
    path.touch(0o600)
    os.chown(path, STRANGER, STRANGER)


IN_THE_PLACE = {
    "stranger": pytest.param(strange, f"belongs to user {STRANGER}, not to user 0", marks=ROOT),
    "open": (
        lambda path: path.touch(0o666) or path.chmod(0o666),
        "has mode 0666: 0600, or 0660 for a group, is allowed",
    ),
    "link": (lambda path: path.symlink_to("/dev/null"), "is no regular file"),
    "folder": (lambda path: path.mkdir(), "is no regular file"),
}


@pytest.mark.parametrize(("make", "why"), IN_THE_PLACE.values(), ids=IN_THE_PLACE)
def test_a_file_in_the_place_of_the_next_segment(broker_name: str, make: Callable[[Path], object], why: str) -> None:
    """The broker goes on with the memory that it has, says what keeps it from growing, and grows when that is gone."""
    body = bytes(1 << 20)
    shmbroker.Broker(broker_name, memory="64M").create()
    with shmbroker.connect(broker_name, create=False) as connection:
        jobs = connection.queue("jobs")
        jobs.put_nowait(body)
        attached = attachment.acquire(segments.path_of(broker_name))
        count = attached.facts().segments
        path = file_of(broker_name, str(count + 1))
        make(path)
        with pytest.raises(OutOfMemory, match=f"; segment {count + 1} cannot be added: {path} {why}"):
            fill(jobs, body)
        assert attached.facts().segments == count
        done = run_python("import sys, shmbroker; shmbroker.connect(sys.argv[1], create=False).close()", broker_name)
        assert done.returncode == 0, done.stderr
        assert jobs.purge() > 0
        jobs.put_nowait(body)
        with pytest.raises(OutOfMemory):
            fill(jobs, body)
        path.rmdir() if path.is_dir() else path.unlink()
        native.slow.sb_broker_grow_again(attached.handle, 1)  # the pause after an attempt that failed is over
        jobs.put_nowait(body)
        assert attached.facts().segments == count + 1
        attachment.release(attached)


@ROOT
@pytest.mark.damaged
def test_a_broker_of_a_stranger_under_our_name(broker_name: str) -> None:
    """Root does not attach to what `nobody` put there, neither to read nor to stop it."""
    shmbroker.Broker(broker_name, memory="32M").create()
    for suffix in FILES:
        os.chown(file_of(broker_name, suffix), STRANGER, STRANGER)
    for deed in (
        lambda: shmbroker.connect(broker_name),
        lambda: shmbroker.Broker(broker_name).start(),
        lambda: shmbroker.Broker(broker_name).stop(purge=True),
    ):
        with pytest.raises(AccessRefused, match=f"belongs to user {STRANGER}"):
            deed()
    for suffix in FILES:
        os.chown(file_of(broker_name, suffix), 0, 0)


SWAPS = """
    import os, sys

    path, good, bad = sys.argv[1:]
    print("swaps", flush=True)
    while True:
        for one in (bad, good):
            os.link(one, path + "-next")
            os.rename(path + "-next", path)
"""


@pytest.mark.damaged
def test_the_core_looks_at_what_it_opened(broker_name: str) -> None:
    """Another process renames files all the time: the core attaches to none that others may open."""
    shmbroker.Broker(broker_name, memory="32M").create()
    path = file_of(broker_name, "0")
    good, bad = path.with_name(path.name + "-good"), path.with_name(path.name + "-bad")
    attached = attachment.acquire(segments.path_of(broker_name))
    created = int(attached.facts().created_ns)
    attachment.release(attached)
    content = path.read_bytes()
    bad.write_bytes(content.replace(created.to_bytes(8, "little"), (created + 1).to_bytes(8, "little"), 1))
    assert bad.read_bytes() != content
    bad.chmod(0o666)
    good.hardlink_to(path)
    seen = {"attached": 0, "refused": 0}
    command = [sys.executable, "-c", textwrap.dedent(SWAPS), path, good, bad]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as swapper:
        assert swapper.stdout is not None
        assert swapper.stdout.readline() == "swaps\n"
        try:
            while min(seen.values()) < ATTEMPTS:
                try:
                    attached = attachment.acquire(segments.path_of(broker_name))
                except AccessRefused:
                    seen["refused"] += 1
                    continue
                found = int(attached.facts().created_ns)
                attachment.release(attached)
                assert found == created
                seen["attached"] += 1
        finally:
            swapper.kill()
    path.unlink()  # a file is not renamed to another name of itself
    good.rename(path)
    bad.unlink()
    path.with_name(path.name + "-next").unlink(missing_ok=True)
    use(broker_name)


LEASES = """
    import fcntl, os, signal, sys

    signal.signal(signal.SIGIO, signal.SIG_IGN)  # the kernel asks for the lease back
    file = os.open(sys.argv[1], os.O_RDWR)
    fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    print("leased", flush=True)
    sys.stdin.read()
"""


@contextlib.contextmanager
def leased(name: str, suffix: str) -> Iterator[None]:
    """Have another process hold a lease of a broker's file, which keeps an open for 45 seconds."""
    command = [sys.executable, "-c", textwrap.dedent(LEASES), file_of(name, suffix)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "leased\n"
        yield
        holder.communicate()


@pytest.mark.parametrize("suffix", ["0", "lock"])
def test_the_core_does_not_wait_for_a_file(broker_name: str, suffix: str) -> None:
    """The owner of a file can hold a lease of it: the core gives an error."""
    shmbroker.Broker(broker_name, memory="32M").create()
    with leased(broker_name, suffix), pytest.raises(shmbroker.BrokerError):
        attachment.acquire(segments.path_of(broker_name))
    use(broker_name)


@pytest.mark.parametrize("suffix", ["lock", "journal-0"])
def test_nobody_waits_for_a_file(broker_name: str, suffix: str) -> None:
    """Nor does what Python opens."""
    shmbroker.Broker(broker_name, memory="32M").create()
    opening = segments.open_file(segments.path_of(broker_name), suffix, os.O_RDWR)
    with leased(broker_name, suffix), pytest.raises(BlockingIOError), opening:
        pass
    use(broker_name)
