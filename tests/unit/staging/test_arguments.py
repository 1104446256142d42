# SPDX-License-Identifier: Apache-2.0
"""Names and arguments that stages refuse."""

from __future__ import annotations

import uuid

import pytest
from scenario_support.staging import staged

import shmbroker
import shmbroker.testing
from shmbroker.staging import Stage, StageInfo, stages


@pytest.mark.parametrize("name", ["", "x" * 101, "\0", "\ud800", "\u20ac" * 60])
def test_names_that_are_refused(connection: shmbroker.Connection, name: str) -> None:
    """A publication has 1 to 100 characters."""
    with pytest.raises(ValueError, match="1 to 100 characters"):
        Stage(connection, name)


@pytest.mark.parametrize("name", ["x" * 100, "a.b/c", "é" * 75, "7.0.0.x.query"])
def test_names_that_are_taken(connection: shmbroker.Connection, name: str, out: shmbroker.Queue) -> None:
    """Whatever they look like, with the longest numbers."""
    stage = Stage(connection, name)
    jobs = [(2**63 - 1, 2**31 - 1, 2**63 - 1), (uuid.UUID(int=2**128 - 1), 2**31 - 1, 2**63 - 1)]
    for batch, partition, attempt in jobs:
        with stage.attempt(batch, partition, attempt) as writer:
            writer.put(b"x")
        assert stages(connection) == [StageInfo(name, batch, partition, attempt, 1, 1)]
        assert stage.publish(batch, [writer.receipt], "out") == 1
    assert len(out) == 2
    assert repr(name) in repr(stage)
    assert "complete, 1 messages" in repr(writer)


def test_bad_arguments(stage: Stage, out: shmbroker.Queue) -> None:
    """Are refused before anything happens, with their names."""
    receipt, same = staged(stage, 0, 0, b"x"), staged(stage, 0, 0, b"x")
    for batch, error in ((-1, ValueError), (2**63, ValueError), (True, TypeError), ("7", TypeError)):
        with pytest.raises(error, match="batch="):
            stage.attempt(batch, 0, 0)
    with pytest.raises(ValueError, match="partition=-1"):
        stage.attempt(0, -1, 0)
    with pytest.raises(TypeError, match=r"attempt=1\.0"):
        stage.attempt(0, 0, 1.0)
    with pytest.raises(ValueError, match=r"two receipts are of the same partition, among \[0, 0\]: one for each"):
        stage.publish(0, [receipt, same], "out")
    with pytest.raises(ValueError, match="not of batch 1"):
        stage.publish(1, [receipt], "out")
    with pytest.raises(TypeError, match="not a receipt"):
        stage.publish(0, [(0, 0)], "out")
    with pytest.raises(TypeError, match="name of a queue"):
        stage.publish(0, [receipt], out)
    with pytest.raises(ValueError, match="broker's own"):
        stage.publish(0, [receipt], "amq.stage.marker.query")
    with pytest.raises(shmbroker.NotFound):
        stage.publish(0, [receipt], "nowhere")
    with pytest.raises(TypeError):
        Stage(stage, 7)  # type: ignore[arg-type]
    assert stage.publish(0, [receipt], "out") == 1
