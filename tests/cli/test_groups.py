# SPDX-License-Identifier: Apache-2.0
"""`shmbroker groups ...`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.inside import connection_of

import shmbroker

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def group(jobs: shmbroker.Queue) -> shmbroker.Group:
    """Lease two of three messages."""
    jobs.put_many([b"AA", b"BB", b"CC"])
    group = shmbroker.Group(connection_of(jobs), jobs, "g")
    group.attach()
    group.lease(0, max_messages=2)
    return group


@pytest.fixture
def orphan(broker: shmbroker.Broker, jobs: shmbroker.Queue) -> str:
    """Lease over a connection that is closed."""
    jobs.put_many([b"AA", b"BB", b"CC"])
    with broker.connect() as connection:
        group = shmbroker.Group(connection, "jobs", "lost")
        group.attach()
        group.lease(0, max_messages=1)
    return "lost"


@pytest.mark.usefixtures("broker")
def test_without_groups(cli: Callable[..., Any]) -> None:
    """There is a line for people, and an empty list for programs."""
    assert cli("groups").lines == ["no groups"]
    assert cli("groups", "--json").facts == []


@pytest.mark.usefixtures("group")
def test_groups_are_listed(cli: Callable[..., Any]) -> None:
    """With what they keep and who has them."""
    [facts] = cli("groups", "--json").facts
    assert facts.pop("used_at") > 0
    expected = {"name": "g", "queue": "jobs", "acked": 0, "leases": 1, "messages": 2, "bytes": 4, "pid": os.getpid()}
    assert facts == expected
    table = cli("groups").out
    assert all(word in table for word in ("g", "jobs", str(os.getpid()), "4 B"))


def test_an_orphan_is_shown_as_such(cli: Callable[..., Any], orphan: str) -> None:
    """Its process is gone."""
    [facts] = cli("--json", "groups").facts
    assert (facts["name"], facts["pid"], facts["messages"]) == (orphan, 0, 1)
    assert "gone" in cli("groups").out


def test_release_gives_back(cli: Callable[..., Any], orphan: str, jobs: shmbroker.Queue) -> None:
    """At the end of the queue; nothing is left of the group."""
    ran = cli("groups", "release", orphan, "--yes", "--json")
    assert (ran.code, ran.facts) == (0, {"group": "lost", "queue": "jobs", "released": 1})
    assert [bytes(message) for message in jobs.browse()] == [b"BB", b"CC", b"AA"]
    assert connection_of(jobs).queue_names(all=True) == ["jobs"]
    assert cli("groups", "release", orphan, "--yes").is_refused("no group", "lost")


@pytest.mark.parametrize(("answer", "code", "left"), [("y\n", 0, 3), ("n\n", 1, 1), ("", 130, 1)])
def test_release_asks(
    cli: Callable[..., Any], group: shmbroker.Group, jobs: shmbroker.Queue, *, answer: str, code: int, left: int
) -> None:
    """It says what will happen to whom; without consent nothing does."""
    ran = cli("groups", "release", "g", given=answer)
    assert ran.code == code
    assert "2 messages" in ran.err
    assert str(os.getpid()) in ran.err
    assert len(jobs) == left
    if code == 0:
        with pytest.raises(shmbroker.GroupInUse, match="released"):
            group.ack(1)
    else:
        assert group.ack(1) == 2
