# SPDX-License-Identifier: Apache-2.0
"""Several hosts: a standalone cluster from the pip package, whose two workers each have a broker of their own."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from spark_support.cluster import Cluster, Host, environment_archive

import shmbroker
from shmbroker.staging import stages

if TYPE_CHECKING:
    from collections.abc import Iterator

DRIVER = str(Path(__file__).with_name("spark_support") / "cluster_driver.py")
pytestmark = pytest.mark.timeout(900)


class Run(NamedTuple):
    """What the driver has seen, and what is there after it; see cluster_driver.py."""

    hosts: tuple[Host, Host]
    seen: dict[str, Any]
    put: list[int]
    staged: int
    published: int


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """One driver's run on a cluster of two hosts; the first one is its own."""
    folder = tmp_path_factory.mktemp("cluster")
    archive = environment_archive(folder)
    here, there = Host(folder, "here", alone=False), Host(folder, "there", alone=True)
    name = f"t-{uuid.uuid4().hex[:16]}"
    with (
        shmbroker.Broker(name, memory="32M") as broker,
        broker.connect() as connection,
        Cluster(folder, (here, there)) as cluster,
        contextlib.ExitStack() as purge,
    ):
        connection.queue("jobs").put_many([b"A", b"B"])
        out = connection.queue("out")
        purge.callback(broker.stop, purge=True)
        environment = cluster.environment | {"SHMBROKER_BROKER": name, "ONLY_DRIVER": "yes"}
        command = [sys.executable, "-P", DRIVER, cluster.url, str(archive), str(folder / "report")]
        done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        seen = json.loads((folder / "report").read_text("utf-8"))
        assert seen["driver"] == name
        yield Run((here, there), seen, [host.count_out() for host in (here, there)], len(stages(connection)), len(out))


def test_tasks_use_the_broker_of_their_host(run: Run) -> None:
    """The one that the worker's environment names; nothing of the driver's environment gets there."""
    assert run.seen["variable"] == "yes"
    found = {(one["broker"], one["host"], one["variable"]) for one in run.seen["seen"]}
    assert found == {(host.broker, host.name, None) for host in run.hosts}
    assert {one["module"] for one in run.seen["seen"]} == {shmbroker.__file__}


def test_batches_are_handed_over_on_their_host(run: Run) -> None:
    """Each task has its rows from the process that serves beside it."""
    assert run.seen["answers"] == sorted(host.broker for host in run.hosts)


def test_a_host_without_the_broker(run: Run) -> None:
    """It is said which one is missing, and where."""
    assert "BrokerNotFound: 404 NOT_FOUND - no broker 'nowhere' on host '" in run.seen["nowhere"]


def test_what_is_put_as_it_comes_stays_on_the_host(run: Run) -> None:
    """A write at-least-once is to the queue of each task's own broker."""
    assert (run.seen["put"], run.put) == ("none", [1, 1])


def test_a_plan_is_of_its_host(run: Run) -> None:
    """A part that is read elsewhere says so; a task that would stage elsewhere, too, and nothing is published."""
    here, there = run.hosts
    if not there.is_alone:
        pytest.skip("not allowed to make namespaces, so both hosts are one")
    for failed in ("read", "published"):
        planned = f"Spark planned the task on host '{here.name}' for the broker '{run.seen['driver']}' of that host"
        words = f"404 NOT_FOUND - {planned}, and runs it on host"
        assert f"{words} '{there.name}'" in run.seen[failed]
    assert (run.published, run.staged) == (0, 0)


def test_an_environment_is_shipped(run: Run) -> None:
    """Executors take shmbroker and pyarrow out of the archive, each its own copy, and hand over with it."""
    modules = {one["module"] for one in run.seen["shipped"]}
    assert len(modules) == 2
    assert all("/environment/lib/python" in module for module in modules)
    assert {one["broker"] for one in run.seen["shipped"]} == {host.broker for host in run.hosts}
    assert run.seen["shipped_answers"] == sorted(host.broker for host in run.hosts)
