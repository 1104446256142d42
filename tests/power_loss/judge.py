# SPDX-License-Identifier: Apache-2.0
"""Compares what came back after a loss with what clients were told before it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.power_loss.content import Identity, identity_of, priority_of
from tests.power_loss.play import LEFT, RANKED, RIGHT, SOURCE, TARGET, TOKEN

if TYPE_CHECKING:
    from tests.power_loss.recovery import Found

_TRANSACTIONS = {TOKEN, LEFT, RIGHT}


class Promises:
    """What holds after a loss, of all marks up to it.

    Attributes:
        due: messages that must be there.
        named: the queues that were declared at any time.
        declared: the queues that must be there, with their `max_priority`.
    """

    def __init__(self) -> None:
        self.due: set[Identity] = set()
        self.named: set[str] = set()
        self.declared: dict[str, int] = {}
        self._put: dict[Identity, str] = {}  # the queue of each message that may be there
        self._of: dict[str, set[Identity]] = {}  # the same, by producer
        self._ended: set[Identity] = set()  # may be gone
        self._gone: set[Identity] = set()  # must be gone
        self._commits = self._committed = -1
        self._drains = self._drained = -1

    def mark(self, words: list[Any]) -> None:
        """Notes a mark."""
        found = getattr(self, f"_on_{words[0]}", None)
        if found is not None:
            found(*words[1:])

    def _on_put(self, queue: str, producer: str, first: int, count: int) -> None:
        messages = [(producer, number) for number in range(first, first + count)]
        self._put.update(dict.fromkeys(messages, queue))
        self._of.setdefault(producer, set()).update(messages)

    def _on_confirmed(self, producer: str, first: int, count: int) -> None:
        self.due |= {(producer, number) for number in range(first, first + count)} - self._ended

    def _on_ack(self, producer: str, number: int) -> None:
        self._ended.add((producer, number))
        self.due.discard((producer, number))

    def _on_gone(self, ended: list[list[Any]]) -> None:
        self._gone |= {(producer, number) for producer, number in ended}

    def _on_commit(self, number: int) -> None:
        self._commits = number

    def _on_committed(self, number: int) -> None:
        self._committed = number

    def _on_drain(self, upto: int) -> None:
        self._drains = max(upto, self._drains)

    def _on_drained(self, upto: int) -> None:
        self._drained = max(upto, self._drained)

    def _on_declared(self, name: str, max_priority: int) -> None:
        self.declared[name] = max_priority
        self.named.add(name)

    def _on_delete(self, name: str, producer: str) -> None:
        self.declared.pop(name, None)
        deleted = self._of[producer]
        self._ended |= deleted
        self.due -= deleted

    def _on_deleted(self, _: str, producer: str) -> None:
        self._gone |= self._of[producer]

    def findings(self, found: dict[str, Found]) -> list[str]:
        """What is not as it was promised."""
        there, findings = {}, []
        for name, queue in found.items():
            try:
                there[name] = [identity_of(body) for body in queue.bodies]
            except ValueError as error:
                return [f"queue {name!r}: {error}"]
        for name, max_priority in self.declared.items():
            if name not in found or found[name].max_priority != max_priority:
                findings.append(f"queue {name!r} is not there as it was declared: {found.get(name)}"[:200])
        findings += self._transactions(there)
        places: dict[Identity, list[str]] = {}
        for name, messages in there.items():
            if name not in _TRANSACTIONS:
                findings += _order(name, messages)
                for one in messages:
                    places.setdefault(one, []).append(name)
        due = {one for one in self.due if one[0] not in _TRANSACTIONS}
        findings += _listed("confirmed, and lost", due - places.keys())
        findings += _listed("acknowledged and synced, and there again", self._gone & places.keys())
        findings += _listed("never put", places.keys() - self._put.keys())
        findings += _listed(
            "in a wrong place", {one for one, names in places.items() if not self._may_be_in(one, names)}
        )
        return findings

    def _may_be_in(self, one: Identity, names: list[str]) -> bool:
        """Whether a message is there once: in its queue, or in one of the two queues of a move."""
        put = self._put.get(one)
        return put is None or (len(names) == 1 and names[0] in ({SOURCE, TARGET} if put == SOURCE else {put}))

    def _transactions(self, there: dict[str, list[Identity]]) -> list[str]:
        """The token is there once, and left and right are the same."""
        token = there.get(TOKEN, [])
        if not token and (TOKEN, 0) not in self.due:
            return []
        left, right = ([number for _, number in there.get(name, [])] for name in (LEFT, RIGHT))
        if len(token) != 1 or left != right:
            return [f"a transaction in part: {token}, left {left}, right {right}"]
        number = token[0][1]
        findings = []
        if not self._committed <= number - 1 <= self._commits:
            findings.append(f"the token is {number}: committed {self._committed}, begun {self._commits}")
        first = left[0] if left else number
        if left != list(range(first, number)) or (self._commits >= 0 and not self._drained < first <= self._drains + 1):
            findings.append(f"left is {left}, the token {number}: drained {self._drained}, begun {self._drains}")
        return findings


def _order(name: str, messages: list[Identity]) -> list[str]:
    """The messages of a producer, and of a priority, come in their order."""
    last: dict[tuple[str, int], int] = {}
    for producer, number in messages:
        lane = producer, priority_of(number) if name == RANKED else 0
        if last.get(lane, -1) >= number:
            return [f"queue {name!r}: {number} of {lane} comes after {last[lane]}"]
        last[lane] = number
    return []


def _listed(what: str, ones: set[Identity]) -> list[str]:
    return [f"{what}: {len(ones)}, as {sorted(ones)[:5]}"] if ones else []
