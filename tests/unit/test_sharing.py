# SPDX-License-Identifier: Apache-2.0
"""Brokers of mode 0660: members of the group name them with the number of their maker before the name."""

from __future__ import annotations

import errno
import json
import os
import pickle
import stat

import pytest
from scenario_support.brokers import files, running, segment
from scenario_support.processes import run_python

import shmbroker
from shmbroker.exceptions import BrokerNotFound

OURS = os.getuid()
THEIRS = OURS + 1
GROUP = 54321


def test_our_own_number_may_be_given(broker_name: str) -> None:
    """It is the same broker, and the short name is its name."""
    with running(broker_name, "32M"), shmbroker.connect(f"{OURS}/{broker_name}", create=False) as connection:
        assert connection.broker_name == broker_name
        assert shmbroker.Broker(f"{OURS}/{broker_name}").name == broker_name
        assert broker_name in shmbroker.brokers()


def test_nobody_makes_a_broker_of_somebody_else(broker_name: str) -> None:
    """It is not found, and nothing is left of the attempt."""
    name = f"{THEIRS}/{broker_name}"
    for use in (
        lambda: shmbroker.connect(name),
        lambda: shmbroker.connect(name, create=False),
        lambda: shmbroker.Broker(name).start(),
    ):
        with pytest.raises(BrokerNotFound, match=name):
            use()
    shmbroker.Broker(name).stop(purge=True)
    assert files(broker_name) == []


def test_a_pickled_queue_names_its_user(broker_name: str) -> None:
    """So that it is the same broker for whoever loads it."""
    with running(broker_name, "32M") as broker, broker.connect() as connection:
        assert f"{OURS}/{broker_name}".encode() in pickle.dumps(connection.queue("q"))


def test_a_shared_broker_has_all_its_files_at_once(broker_name: str) -> None:
    """Whoever makes a file in /dev/shm is the only one who may remove it: no client makes one."""
    broker = shmbroker.Broker(broker_name, memory="32M", mode=0o660).start()
    before = files(broker_name)
    assert {stat.S_IMODE(segment(broker_name, number).stat().st_mode) for number in (0, 1, 4)} == {0o660}
    with broker.connect() as connection:
        connection.queue("q").put(bytes(8 << 20), timeout=0)
        assert files(broker_name) == before
        assert connection.doctor() == []
    broker.stop(purge=True)
    assert files(broker_name) == []


@pytest.mark.parametrize("segments", [0, 2])
def test_a_shared_broker_for_which_there_is_no_room(
    broker_name: str, monkeypatch: pytest.MonkeyPatch, segments: int
) -> None:
    """It is an error before any memory is taken; if others take it meanwhile, nothing is left of the attempt."""
    sizes = []

    def allocate(_descriptor: int, _offset: int, size: int) -> None:
        sizes.append(size)
        if len(sizes) > segments:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", allocate)
    if segments == 0:
        free = os.statvfs_result((4096, 4096, 8192, 8191, 8191, 0, 0, 0, 0, 255))
        monkeypatch.setattr(os, "statvfs", lambda _: free)
    with pytest.raises(shmbroker.OutOfMemory, match="no room"):
        shmbroker.Broker(broker_name, memory="32M", mode=0o660).create()
    assert len(sizes) == (segments + 1 if segments else 0)
    assert files(broker_name) == []


MEMBER = """
    import json, os, sys
    import shmbroker

    def outcome(use):
        try:
            return use()
        except shmbroker.BrokerError as error:
            return type(error).__name__

    name, groups, user = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3])
    os.setgroups(groups)
    os.setgid(user)
    os.setuid(user)
    broker = shmbroker.Broker(f"0/{name}")

    def exchange():
        with broker.connect() as connection:
            queue = connection.queue("q")
            with queue.get(timeout=0) as message:
                queue.put(bytes(message) * 2_000_000)
            connection.queue("made by a member").put(b"A")
            return connection.broker_name

    seen = {
        "brokers": [one for one in shmbroker.brokers() if name in one],
        "own": outcome(lambda: shmbroker.connect(name, create=False)),
        "exchange": outcome(exchange),
        "purge": outcome(lambda: broker.stop(purge=True)),
        "stop": outcome(broker.stop),
    }
    print(json.dumps(seen))
"""


@pytest.mark.skipif(OURS != 0, reason="only root can become others")
@pytest.mark.parametrize("member", [True, False])
def test_a_member_of_the_group_uses_the_broker(broker_name: str, *, member: bool) -> None:
    """As any client, and may stop its housekeeper; only its maker may purge it. Nobody else may use it."""
    egid = os.getegid()
    os.setegid(GROUP)
    try:
        broker = shmbroker.Broker(broker_name, memory="32M", mode=0o660).start()
    finally:
        os.setegid(egid)
    with broker.connect() as connection:
        queue = connection.queue("q")
        queue.put(b"B")
        before = files(broker_name)
        done = run_python(MEMBER, broker_name, json.dumps([GROUP] if member else []), "65534")
        assert done.returncode == 0, done.stderr
        seen = json.loads(done.stdout)
        assert files(broker_name) == before
        assert seen["own"] == "BrokerNotFound"
        if member:
            assert seen == {
                "brokers": [f"0/{broker_name}"],
                "own": "BrokerNotFound",
                "exchange": f"0/{broker_name}",
                "purge": "AccessRefused",
                "stop": None,
            }
            assert broker.statistics().housekeeper_pid == 0
            assert len(queue.get(timeout=0).body) == 2_000_000
            assert connection.queue_names() == ["made by a member", "q"]
        else:
            assert seen["brokers"] == []
            assert seen["exchange"] == seen["purge"] == seen["stop"] == "AccessRefused"
            assert broker.statistics().housekeeper_pid != 0
    broker.stop(purge=True)
    assert files(broker_name) == []
