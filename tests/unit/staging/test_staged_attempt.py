# SPDX-License-Identifier: Apache-2.0
"""The queue of a winner: it is published only as it was completed, and when nobody holds anything of it any more."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.staging import staged

from shmbroker.exceptions import NotStaged
from shmbroker.staging import Stage
from shmbroker.staging import staged_attempt as module
from shmbroker.staging.staged_attempt import StagedAttempt

if TYPE_CHECKING:
    from collections.abc import Iterator

    import shmbroker
    from shmbroker.staging import Receipt

GRACE, LOOK = 2 * 10**9, 0.001


@pytest.fixture
def receipt(connection: shmbroker.Connection) -> Receipt:
    """An attempt with three messages was completed."""
    return staged(Stage(connection, "query"), 0, 0, b"a", b"b", b"c")


@pytest.fixture
def source(connection: shmbroker.Connection, receipt: Receipt) -> StagedAttempt:
    """It as a source."""
    return StagedAttempt(connection, "query", receipt)


def facts(**counts: int) -> SimpleNamespace:
    """Statistics of a queue to which three messages came."""
    return SimpleNamespace(**({"added": 3, "moved": 0, "acked": 0, "ready": 3, "delivering": 0} | counts))


class Rests:
    """In the place of a source's queue, and of the time: statistics one after the other, the last one again and again.

    Attributes:
        slept: How long, each time.
    """

    def __init__(self, *found: SimpleNamespace) -> None:
        self._found = list(found)
        self.now, self.slept = 10**12, list[float]()

    def statistics(self) -> SimpleNamespace:
        """The next ones."""
        return self._found.pop(0) if len(self._found) > 1 else self._found[0]

    def monotonic_ns(self) -> int:
        """The time."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """A fourth of the grace goes by."""
        self.slept.append(seconds)
        self.now += GRACE // 4


@pytest.fixture
def rests(source: StagedAttempt, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Have the source find these statistics."""

    def begin(*found: SimpleNamespace) -> Rests:
        made = Rests(*found)
        monkeypatch.setattr(source, "queue", made)
        monkeypatch.setattr(module, "time", made)
        return made

    yield begin
    monkeypatch.undo()


def test_what_is_left_of_an_attempt(connection: shmbroker.Connection, source: StagedAttempt) -> None:
    """What was neither acknowledged nor moved. It can be published as long as that is all of it."""
    source.check()
    assert source.left() == 3
    source.queue.get(auto_ack=True)
    assert source.left() == 2
    with pytest.raises(NotStaged, match="3 messages were staged, but 2 exist"):
        source.check()
    source.queue.move(connection.queue("other"), limit=1)
    assert source.left() == 1


def test_an_attempt_that_is_not_there(
    connection: shmbroker.Connection, receipt: Receipt, source: StagedAttempt
) -> None:
    """It says which, and why."""
    source.queue.delete()
    text = "attempt 0 at partition 0 of batch 0 of 'query' cannot be published: "
    with pytest.raises(NotStaged, match=f"{text}it was dropped, or has expired"):
        StagedAttempt(connection, "query", receipt)
    with pytest.raises(NotStaged, match=f"{text}it was dropped meanwhile"):
        source.left()
    with pytest.raises(NotStaged, match=f"{text}it has expired"):
        source.keep()


def test_an_attempt_that_is_kept_does_not_expire(source: StagedAttempt, monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not expire needs no change for that."""
    source.queue.configure(expires=3600)
    source.keep()
    assert source.queue.settings.expires is None
    monkeypatch.setattr(type(source.queue), "configure", None)
    source.keep()


def test_what_somebody_held_comes_back_soon(rests: Any, source: StagedAttempt) -> None:  # noqa: ANN401
    """Until then a source looks again, each millisecond."""
    seen = rests(facts(ready=2), facts(delivering=1), facts(ready=1, acked=1), facts())
    assert source.left() == 3
    assert seen.slept == [LOOK] * 3


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (facts(ready=1, acked=1), "of 2 messages that are left 1 are ready"),
        (facts(delivering=1), "of 3 messages that are left 3 are ready"),
        (facts(ready=1, moved=1), "of 2 messages that are left 1 are ready"),
    ],
)
def test_what_somebody_holds_for_long(rests: Any, source: StagedAttempt, found: SimpleNamespace, said: str) -> None:  # noqa: ANN401
    """After two seconds it is missing."""
    seen = rests(found)
    with pytest.raises(NotStaged, match=said):
        source.left()
    assert len(seen.slept) == 5
