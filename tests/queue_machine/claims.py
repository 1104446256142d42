# SPDX-License-Identifier: Apache-2.0
"""Message groups of the reference: which holder has which group.

A *holder* is a consumer, or the gets of one process. Where the rules leave a choice, such as how consumers share the
groups out, the reference follows what the queue did, if no two holders have messages of a group.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.queue_machine.reference import Message


@dataclass(eq=False)
class Holder:
    """A consumer, or the gets of a process."""

    name: str
    worker: int
    is_consumer: bool = False
    left: bool = False


@dataclass
class Claim:
    """A group that a holder has. `leaving`: only until it has settled its messages. `loose`: a consumer came since."""

    holder: Holder
    held: int = 0
    leaving: bool = False
    loose: bool = False


class Claims:
    """The claims of a queue."""

    def __init__(self, kind: str, *, one_bucket: bool) -> None:
        self.kind, self._one_bucket = kind, one_bucket
        self._claims: dict[str, Claim] = {}

    def group_of(self, message: Message) -> str | None:
        """The group of a message, as far as the queue tells groups apart; `None`: it may go to any holder."""
        if self.kind == "none" or (self.kind == "sticky" and message.group is None):
            return None
        return "" if self._one_bucket else message.group or ""

    def choose(self, wanted: list[Message], holder: Holder) -> list[Message]:
        """Of each group the first message, if the holder certainly gets it; and the first one without a group."""
        return [message for message, certain in self._first_of_each(wanted, holder) if certain]

    def allows(self, wanted: list[Message], message: Message, holder: Holder) -> bool:
        """Whether the holder may get the message now."""
        return any(one is message for one, _ in self._first_of_each(wanted, holder))

    def _first_of_each(self, wanted: list[Message], holder: Holder) -> list[tuple[Message, bool]]:
        """The first message of each group that the holder may get, and whether it certainly gets it."""
        found, groups = [], set()
        if self.kind == "none":
            return [(message, True) for message in wanted]
        for message in wanted:
            group = self.group_of(message)
            if group in groups:
                continue
            groups.add(group)
            claim = None if group is None else self._claims.get(group)
            if claim is None:
                found.append((message, True))
            elif claim.holder is holder and not claim.leaving:  # a loose claim without messages ends, and begins again
                found.append((message, not claim.loose or claim.held == 0))
            elif claim.held == 0 and claim.loose:
                found.append((message, False))
        return found

    def take(self, message: Message, holder: Holder) -> None:
        """The holder got the message."""
        group = self.group_of(message)
        if group is not None:
            claim = self._claims.get(group)
            if claim is None or claim.holder is not holder:
                claim = self._claims[group] = Claim(holder)
            claim.held += 1

    def let_go(self, message: Message, holder: Holder, *, ended: bool) -> None:
        """The holder has settled or returned the message."""
        group = self.group_of(message)
        claim = None if group is None else self._claims.get(group)
        if group is not None and claim is not None and claim.holder.worker == holder.worker:
            claim.held -= 1
            claim.leaving = claim.leaving or (ended and message.ends_group)
            if claim.held == 0 and (self.kind == "shared" or not claim.holder.is_consumer or claim.leaving):
                del self._claims[group]

    def not_given(self, wanted: list[Message], holder: Holder) -> None:
        """The holder searched, had credit left, and got no more: a group that it might have had, it gives up."""
        for message, certain in self._first_of_each(wanted, holder):
            claim = self._claims.get(self.group_of(message) or "")
            if not certain and claim is not None and claim.holder is holder:
                claim.leaving = True

    def joined(self) -> None:
        """A consumer came: others may give up groups."""
        for claim in self._claims.values():
            claim.loose = claim.loose or claim.holder.is_consumer

    def leave(self, holder: Holder) -> None:
        """A consumer leaves; it may keep messages for a while."""
        for group, claim in list(self._claims.items()):
            if claim.holder is holder:
                claim.leaving = True
                if claim.held == 0:
                    del self._claims[group]

    def end_all_of(self, worker: int) -> None:
        """The process is gone."""
        self._claims = {group: claim for group, claim in self._claims.items() if claim.holder.worker != worker}
