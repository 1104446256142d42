# SPDX-License-Identifier: Apache-2.0
"""Brokers that are given a folder: created from it, stopped, refused."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import threading
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from scenario_support.waiting import eventually

import shmbroker
from shmbroker import exceptions
from shmbroker._core import attachment, native, segments
from shmbroker._storekeeper.process import opened
from shmbroker.settings import parse_size
from shmbroker.storage.database import DATA

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def name() -> Iterator[str]:
    """The name of a broker, whose memory is removed afterwards."""
    made = f"t-{secrets.token_hex(8)}"
    yield made
    with contextlib.suppress(exceptions.BrokerError):
        shmbroker.Broker(made).stop(purge=True)


def numbers_of(connection: shmbroker.Connection) -> list[int]:
    """The bodies in the queue q, as numbers."""
    with connection:
        return [int(bytes(message)) for message in connection.queue("q", passive=True).browse()]


def put_and_lose(name: str, folder: Path, count: int) -> None:
    """A broker gets messages, and its memory is removed."""
    broker = shmbroker.Broker(name, memory="64M", data_dir=folder).create()
    with broker.connect() as connection:
        connection.queue("q", durable=True).put_many([b"%d" % number for number in range(count)])
    broker.stop(purge=True)
    assert not segments.exists(segments.path_of(name))


def test_messages_survive_a_purge_of_the_memory(name: str, tmp_path: Path) -> None:
    """A stop writes what is not written yet; the next broker of that folder has it, whatever its name."""
    put_and_lose(name, tmp_path, 300)
    with shmbroker.Broker(name, memory="64M", data_dir=tmp_path) as broker:
        assert numbers_of(broker.connect()) == [*range(300)]
        assert numbers_of(shmbroker.connect(name)) == [*range(300)]
        broker.stop(purge=True)
    with shmbroker.Broker(f"{name}-2", memory="64M", data_dir=tmp_path) as broker:
        assert numbers_of(broker.connect()) == [*range(300)]
        broker.stop(purge=True)


def storekeeper_of(name: str) -> int:
    """The process of the storekeeper, as soon as there is one."""
    with attachment.attached_to(segments.path_of(name)) as found:
        eventually(lambda: native.slow.sb_store_keeper(found.handle) > 0)
        return int(native.slow.sb_store_keeper(found.handle))


def test_a_broker_has_one_folder(name: str, tmp_path: Path) -> None:
    """A broker that exists with another one, or without, is refused; one that names none gets the broker as it is."""
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    shmbroker.Broker(name, memory="64M", data_dir=tmp_path / "one").create()
    with pytest.raises(exceptions.PreconditionFailed, match=r"exists with data_dir='.*/one', not '.*/two'"):
        shmbroker.Broker(name, data_dir=tmp_path / "two").create()
    shmbroker.Broker(name, data_dir=tmp_path / "one").create()
    shmbroker.Broker(name).create()
    other = f"{name}-2"
    with contextlib.closing(shmbroker.Broker(other, memory="64M").create().connect()):
        with pytest.raises(exceptions.PreconditionFailed, match="exists with data_dir=None, not"):
            shmbroker.Broker(other, data_dir=tmp_path / "two").create()
        shmbroker.Broker(other).stop(purge=True)


@pytest.mark.parametrize("sync", ["interval", "none"])
def test_a_publisher_need_not_wait(name: str, tmp_path: Path, sync: str) -> None:
    """A put, a confirm and a commit return beside a stopped storekeeper; a restart has what they brought."""
    broker = shmbroker.Broker(name, memory="64M", data_dir=tmp_path, sync=sync).create()
    found = storekeeper_of(name)
    os.kill(found, signal.SIGSTOP)
    try:
        with broker.connect() as connection:
            connection.queue("q", durable=True).put(b"1", timeout=None)
            channel = connection.channel()
            channel.confirm_delivery()
            channel.basic_publish("", "q", b"2")
            assert channel.wait_for_confirms(60)
            transaction = connection.channel()
            transaction.tx_select()
            transaction.basic_publish("", "q", b"3")
            transaction.tx_commit()
    finally:
        os.kill(found, signal.SIGCONT)
    broker.stop(purge=True)
    with shmbroker.Broker(name, memory="64M", data_dir=tmp_path, sync="always") as again, again.connect() as connection:
        assert [bytes(message) for message in connection.queue("q", passive=True).browse()] == [b"1", b"2", b"3"]
        with pytest.raises(exceptions.PreconditionFailed, match="exists with sync='always', not 'none'"):
            shmbroker.Broker(name, data_dir=tmp_path, sync="none").create()
        again.stop(purge=True)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"sync": "always"}, "sync='always': only with data_dir it is allowed"),
        ({"sync": "never", "data_dir": "."}, "sync='never': one of 'always', 'interval', 'none' is allowed"),
        ({"sync": 1, "data_dir": "."}, "sync=1: one of"),
    ],
)
def test_a_sync_that_is_refused(name: str, options: dict[str, Any], text: str) -> None:
    """The error names the value, and what is allowed."""
    with pytest.raises(ValueError, match=text):
        shmbroker.Broker(name, **options)


def test_a_folder_has_one_broker(name: str, tmp_path: Path) -> None:
    """The error names the one that has it; nothing of the refused one is left."""
    shmbroker.Broker(name, memory="64M", data_dir=tmp_path).create()
    with contextlib.closing(shmbroker.connect(name)) as connection:
        connection.queue("q", durable=True).put(b"1")
        other = f"{name}-2"
        with pytest.raises(exceptions.StoreError, match=f"in use by broker '{name}', process"):
            shmbroker.Broker(other, memory="64M", data_dir=tmp_path).create()
    assert not segments.exists(segments.path_of(other))


@pytest.mark.parametrize("damage", ["missing", "foreign", "damaged"])
def test_a_store_that_cannot_be_read_is_refused(name: str, tmp_path: Path, damage: str) -> None:
    """No memory is left that would look like an empty broker."""
    folder = tmp_path / "store"
    if damage != "missing":
        folder.mkdir()
        put_and_lose(name, folder, 500)
        file = folder / DATA
        whole = bytearray(file.read_bytes())
        whole[:] = b"x" * len(whole) if damage == "foreign" else whole
        for at in range(8192, len(whole), 4096 if damage == "damaged" else len(whole)):
            whole[at + 40 : at + 60] = b"\xff" * 20
        file.write_bytes(whole)
    with pytest.raises(exceptions.StoreError, match=str(folder)):
        shmbroker.Broker(name, memory="64M", data_dir=folder).create()
    assert not segments.exists(segments.path_of(name))


def test_a_memory_that_is_too_small_is_refused(name: str, tmp_path: Path) -> None:
    """The messages stay in the store."""
    broker = shmbroker.Broker(name, memory="128M", data_dir=tmp_path).create()
    with broker.connect() as connection:
        queue = connection.queue("q", durable=True, max_length=1000)  # its messages stay in the memory
        queue.put_many([b"%d" % number + b" " * 500_000 for number in range(120)])
    broker.stop(purge=True)
    with pytest.raises(exceptions.OutOfMemory):
        shmbroker.Broker(name, memory="32M", data_dir=tmp_path).create()
    assert not segments.exists(segments.path_of(name))
    with shmbroker.Broker(name, memory="128M", data_dir=tmp_path) as again:
        assert numbers_of(again.connect()) == [*range(120)]
        again.stop(purge=True)


def test_a_broker_that_was_half_restored_is_made_again(name: str, tmp_path: Path) -> None:
    """The process that restored it was killed: the next one begins anew."""
    put_and_lose(name, tmp_path, 50)
    assert segments.create(segments.path_of(name), name, parse_size("64M"), 0o600, segments.Store(str(tmp_path)))
    shmbroker.Broker(name, memory="64M", data_dir=tmp_path).create()
    assert numbers_of(shmbroker.connect(name)) == [*range(50)]


def test_clients_wait_until_a_broker_is_restored(name: str, tmp_path: Path) -> None:
    """Nobody finds a queue missing that is about to come back."""
    put_and_lose(name, tmp_path, 50)
    database = opened("another", str(tmp_path))  # so that the broker does not count as abandoned
    path = segments.path_of(name)
    assert segments.create(path, name, parse_size("64M"), 0o600, segments.Store(str(tmp_path)))
    connected = threading.Event()

    def connect() -> None:
        shmbroker.connect(name).close()
        connected.set()

    thread = threading.Thread(target=connect)
    thread.start()
    assert not connected.wait(0.2)
    found = attachment.acquire(path)
    found.set_restored(verified=True)
    attachment.release(found)
    thread.join()
    database.close()


def keepers_of(name: str) -> list[psutil.Process]:
    """The processes of a broker: housekeepers and storekeepers."""
    found = []
    for one in psutil.process_iter(["cmdline"]):
        line = one.info["cmdline"] or []
        if name in line and any("shmbroker._storekeeper" in word or "shmbroker._housekeeper" in word for word in line):
            found.append(one)
    return found


def test_a_waiting_put_starts_a_storekeeper(name: str, tmp_path: Path) -> None:
    """Housekeeper and storekeeper are dead: nobody else would."""
    with shmbroker.Broker(name, memory="64M", data_dir=tmp_path) as broker, broker.connect() as connection:
        queue = connection.queue("q", durable=True)
        queue.put(b"0")
        for one in keepers_of(name):
            one.kill()
        queue.put(b"1", timeout=60)
        assert numbers_of(broker.connect()) == [0, 1]


def test_a_stopped_broker_says_that_it_stores_nothing(name: str, tmp_path: Path) -> None:
    """A put does not wait for ever; a purge writes what is not written."""
    broker = shmbroker.Broker(name, memory="64M", data_dir=tmp_path).create()
    with broker.connect() as connection:
        queue = connection.queue("q", durable=True)
        queue.put(b"0")
        broker.stop()
        with pytest.raises(exceptions.Timeout, match=f"Broker '{name}' is stopped: run `shmbroker serve {name}`"):
            queue.put(b"1")
    broker.stop(purge=True)
    with shmbroker.Broker(name, memory="64M", data_dir=tmp_path) as again:
        assert numbers_of(again.connect()) == [0, 1]


def test_nobody_uses_the_folder_after_a_stop(name: str, tmp_path: Path) -> None:
    """Not even a storekeeper that was only starting: the folder can be removed."""
    for number in range(5):
        folder = tmp_path / str(number)
        folder.mkdir()
        broker = shmbroker.Broker(name, memory="64M", data_dir=folder).start()
        broker.stop(purge=True)
        assert keepers_of(name) == []
        shutil.rmtree(folder)


@pytest.mark.parametrize("given", ["", b"", 5, "a\0b"], ids=repr)
def test_a_folder_is_a_path(given: object) -> None:
    """An empty one would be the current directory: it may be a variable that is not set."""
    with pytest.raises(ValueError, match=r"data_dir=.*: the path of a folder is allowed, or None"):
        shmbroker.Broker("t-no", data_dir=given)  # type: ignore[arg-type]


@pytest.mark.parametrize("way", ["get", "browse"])
def test_a_process_that_read_from_the_store_can_make_the_broker_again(name: str, tmp_path: Path, way: str) -> None:
    """It has the database open for the messages that were not in the memory; that ends with the broker."""
    put_and_lose(name, tmp_path, 300)
    for first in range(3):
        with shmbroker.Broker(name, memory="64M", data_dir=tmp_path) as broker, broker.connect() as connection:
            queue = connection.queue("q", passive=True)
            found = queue.get_nowait(auto_ack=True) if way == "get" else next(iter(queue.browse(limit=1)))
            assert bytes(found) == (b"%d" % first if way == "get" else b"0")
            broker.stop(purge=True)


@pytest.mark.parametrize("headers", [None, {"n": 1}])
def test_a_put_beside_the_close_of_its_connection_is_refused(
    name: str, tmp_path: Path, headers: dict[str, Any] | None
) -> None:
    """A thread puts into a durable queue while another closes the last connection of the process: ConnectionClosed."""
    broker = shmbroker.Broker(name, memory="64M", data_dir=tmp_path).create()
    options = {} if headers is None else {"headers": headers}
    refused: list[BaseException] = []
    for _ in range(20):
        connection = broker.connect()
        queue = connection.queue("q", durable=True)
        begun = threading.Event()

        def put(queue: shmbroker.Queue = queue, begun: threading.Event = begun) -> None:
            try:
                while True:
                    queue.put(b"x", **options)
                    begun.set()
            except exceptions.ConnectionClosed as error:
                refused.append(error)

        thread = threading.Thread(target=put)
        thread.start()
        begun.wait()
        connection.close()
        thread.join()
    assert len(refused) == 20
