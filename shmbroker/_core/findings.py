# SPDX-License-Identifier: Apache-2.0
"""The findings of a check in words: the fault, its place, the value found and the value expected."""

from __future__ import annotations

from typing import Any, NamedTuple

from shmbroker._core.native import slow

_KINDS: dict[int, str] = {
    slow.SB_KIND_MESSAGE: "a message",
    slow.SB_KIND_LEAF: "a leaf page",
    slow.SB_KIND_INNER: "an inner page",
    slow.SB_KIND_QUEUE: "a queue",
    slow.SB_KIND_NODE: "a consumer node",
    slow.SB_KIND_CONSUMER_LEVEL: "a priority level",
    slow.SB_KIND_LEDGER: "a ledger",
    slow.SB_KIND_CONNECTION: "a connection record",
    slow.SB_KIND_HOLDINGS: "a table of holdings",
    slow.SB_KIND_LONG_LEAF: "a long leaf page",
    slow.SB_KIND_LONG_QUEUE: "a queue with texts",
    slow.SB_KIND_LANE: "a lane of messages",
    slow.SB_KIND_GROUPS: "the claims on message groups",
    slow.SB_KIND_VALUE_NODE: "a node of last values",
    slow.SB_KIND_IDS: "duplicate ids",
    slow.SB_KIND_COUNT: "no slot",
}
_RINGS: dict[int, str] = {
    slow.SB_RING_CELLS: "messages",
    slow.SB_RING_ALL: "list of all consumers",
    slow.SB_RING_NON_ACQUIRING: "list of no_local consumers",
    slow.SB_RING_NOT_INTERESTED: "list of idle consumers",
    slow.SB_RING_ROOM: "list of waiting producers",
    slow.SB_RING_SCHEDULE: "schedule",
    slow.SB_RING_INTERESTED: "list of interested consumers",
    slow.SB_RING_NOTIFIED: "list of notified consumers",
    slow.SB_RING_MEMORY: "list of those who wait for memory",
    slow.SB_RING_LANE: "messages of a lane",
}
_STATES: dict[int, str] = {
    slow.SB_NODE_REMOVED: "removed",
    slow.SB_NODE_NOT_INTERESTED: "not interested",
    slow.SB_NODE_INTERESTED: "interested",
    slow.SB_NODE_NOTIFIED: "notified",
    slow.SB_NODE_NON_ACQUIRING: "non acquiring",
}

# By code, then by `which`.
_SENTENCES: dict[int, tuple[str, ...]] = {
    slow.SB_NOT_CHECKED: ("the memory could not be examined (status {found})",),
    slow.SB_BAD_HEADER: (
        "header: magic is {found:#x}, not {expected:#x}",
        "header: layout is {found:#x}, not {expected:#x}",
        "header: limits say {found}, not {expected}",
        "header: {found} segments, of at most {expected}",
        "segment {where} cannot be mapped: it is missing, cut short, or somebody else's (status {found})",
        "header: counts {found} queues, the directory has {expected}",
        "header: the housekeeper waits at slot {found}, which is no node",
    ),
    slow.SB_BAD_CLASS: (
        "class {slot}: slots of {found} units, not {expected}",
        "class {slot}: holds kind {found}, not {expected}",
        "class {slot}: its hint leads to chunk {found}, of {expected}",
    ),
    slow.SB_BAD_CHUNK: (
        "chunk {slot}: impossible state (word {found:#x})",
        "chunk {slot}: class {expected}, which does not exist (word {found:#x})",
        "chunk {slot}: first of an impossible run of {expected} chunks (word {found:#x})",
        "chunk {slot}: does not fit the run it belongs to (word {found:#x})",
        "chunk {slot}: in use, but there are only {expected} chunks (word {found:#x})",
    ),
    slow.SB_BAD_SLOT: (
        "slot {slot} ({kind}): free, but with references (header {found:#x})",
        "slot {slot} ({kind}): impossible references (header {found:#x})",
        "slot {slot} ({kind}): impossible state (header {found:#x})",
    ),
    slow.SB_BAD_OWNER: (
        "slot {slot} ({kind}): owned by connection {found}, which does not exist",
        "chunk {slot}: being taken or given back by connection {found}, which does not exist",
        "{queue}, position {where}: the message in slot {slot} is held by connection {found}, which does not exist",
    ),
    slow.SB_UNLISTED: ("slot {slot} ({kind}): connection {found} owns it, whose holdings do not name it",),
    slow.SB_LEAKED_SLOT: (
        "slot {slot} ({kind}): in use, but nothing refers to it (references {found:#x}, seen {expected:#x})",
    ),
    slow.SB_BAD_CONNECTION: (
        "connection {slot}: impossible word {found:#x}",
        "connection {slot}: belongs to process slot {found}, which nobody has",
        "connection {slot}: its record should be in slot {where}, which is not its own (header {found:#x})",
        "connection {slot}: its record in slot {where} says connection {found} of process slot {expected}",
        "connection {slot}: its record names slot {found} as the node its thread waits at, which is no node",
    ),
    slow.SB_BAD_HOLDING: (
        "connection {slot}: its holdings go on in slot {where}, which is not a table of its own (header {found:#x})",
        "connection {slot}: its holdings in slot {where} claim {found} entries, of at most {expected}",
        "connection {slot}: impossible entry {found:#x} in its holdings",
        "connection {slot}: its holdings name position {where} of {queue}, which it does not hold",
        "connection {slot}: its holdings name slot {where} ({found_kind}), which it does not own",
        "connection {slot}: its holdings name slot {where} as a page, which it is not ({found_kind})",
        "connection {slot}: its holdings name slot {where} as a ledger, which is not its own",
        "connection {slot}: its holdings name chunk {where}, of {expected}",
        "connection {slot}: its holdings name {found} of the {expected} messages it holds",
        "connection {slot}: its holdings say it reads the body in slot {where} by reference {found}, not its own",
    ),
    slow.SB_BAD_DIRECTORY: (
        "directory entry {where}: leads to slot {slot}, which is no queue ({found_kind})",
        "directory entry {where}: leads to {queue} in slot {slot}, as another entry does",
        "directory entry {where}: leads to {queue} in slot {slot}, which is not open (state {found})",
        "directory entry {where}: leads to slot {slot}, a queue whose name of {found} bytes has {expected}",
        "directory entry {where}: {queue} in slot {slot} is not found by its name (found slot {found})",
    ),
    slow.SB_BAD_QUEUE: (
        "{queue}: ring_size is {found}",
        "{queue}: max_length is {found}",
        "{queue}: max_bytes is {found}",
        "{queue}: overflow is number {found}",
        "{queue}: its texts have {found} bytes, of 1 to {expected}",
        "{queue}: max_priority is {found}, of at most {expected}, or its flag does not agree",
        "{queue}: the word that says whether it is being deleted is {found}",
        "{queue}: message_ttl is {found} ms",
        "{queue}: expires is {found} ms",
        "{queue}: max_delivery_attempts is {found}",
        "{queue}: redelivery_delay is {found} ms",
        "{queue}: redelivery_multiplier is {found} thousandths",
        "{queue}: max_redelivery_delay is {found} ms",
        "{queue}: redelivery_collision_factor is {found} thousandths",
        "{queue}: expiry_delay is {found} ms",
        "{queue}: min_expiry_delay is {found} ms",
        "{queue}: max_expiry_delay is {found} ms",
        "{queue}: resume_at is {found} percent",
    ),
    slow.SB_BAD_CHAIN: (
        "{queue}: the chain of its ledgers leads to slot {slot}, which does not belong there ({found_kind})",
        "{queue}: the chain of its priorities leads to slot {slot}, which does not belong there ({found_kind})",
        "{queue}: the chain of its lanes leads to slot {slot}, which does not belong there ({found_kind})",
    ),
    slow.SB_BAD_LEDGER: (
        "{queue}: the ledger in slot {slot} says it is of the queue in slot {found}, not {expected}",
        "{queue}: the ledger in slot {slot} belongs to connection {found}, which does not exist",
        "{queue}: the ledger in slot {slot} belongs to connection {found}, whose holdings do not name it",
        "{queue}: the ledger in slot {slot} has an unfinished operation (kind {found}) and no owner",
    ),
    slow.SB_BAD_PAGE: (
        "{ring} of {queue}, from position {where}: impossible link to a page (slot {slot}, found {found:#x})",
        (
            "{ring} of {queue}, from position {where}: the page should be in slot {slot}, which is {found_kind}, "
            "not {expected_kind}"
        ),
        "{ring} of {queue}, from position {where}: the page in slot {slot} is free (header {found:#x})",
        "{ring} of {queue}, from position {where}: the page in slot {slot} says it begins at {found}, or is another's",
        (
            "{ring} of {queue}, from position {where}: the page in slot {slot} has another generation "
            "(link {found:#x}, page {expected:#x})"
        ),
        "{ring} of {queue}, from position {where}: the page in slot {slot} is linked twice",
    ),
    slow.SB_BAD_CELL: (
        "{ring} of {queue}, position {where}: impossible cell {found:#x} (generation {expected:#x})",
        "{queue}, position {where}: the message in slot {slot} waits as dead for reason {found}, of at most {expected}",
        "{queue}, position {where}: the message in slot {slot} waits, and nothing says until when",
    ),
    slow.SB_BAD_TAIL: (
        "{ring} of {queue}: position {found} is free, although position {where} is filled",
        "{ring} of {queue}: the hint of the tail is {found}, position {expected} is free",
        "{ring} of {queue}: the hint of the head is {found}, position {expected} is free",
        "{ring} of {queue}: begins at position {found}, which cannot be",
    ),
    slow.SB_LOST_BODY: (
        "{queue}, position {where}: refers to slot {slot}, which lies outside the memory ({expected} slots)",
        "{queue}, position {where}: refers to slot {slot}, where no slot begins",
        "{queue}, position {where}: refers to slot {slot}, which is {found_kind}, not a message",
        "{queue}, position {where}: refers to slot {slot}, which is free (header {found:#x})",
        "{queue}, position {where}: refers to slot {slot}, which is not published (header {found:#x})",
        (
            "{queue}, position {where}: refers to slot {slot} by reference {found}, which it does not have "
            "(it has {expected:#x})"
        ),
        "{queue}, position {where}: held with generation {found} of slot {slot}, which is at {expected}",
    ),
    slow.SB_SHARED_REFERENCE: (
        "{queue}, position {where}: refers to slot {slot} by reference {found}, as another position does",
        "slot {slot}: {found} positions and views use references of its block, which has {expected}",
    ),
    slow.SB_BAD_MESSAGE: (
        "{queue}, position {where}: the message in slot {slot} says {found} bytes, there is room for {expected}",
        (
            "{queue}, position {where}: the message in slot {slot} says its body begins at {found}, "
            "key and properties end at {expected}"
        ),
        "{queue}, position {where}: the message in slot {slot} has priority {found}, but lies with those of {expected}",
    ),
    slow.SB_HIDDEN_CELL: (
        "{queue}, position {where}: ready (slot {slot}), but before the head {found}, and no hint leads to it",
        "{queue}, lane {where} (slot {slot}): has ready messages, but no bit leads to it",
    ),
    slow.SB_BAD_COUNT: (
        "{queue}: its counters say {found} messages are ready, its cells {expected}",
        "{queue}: its counters say {found} messages are being delivered, its cells {expected}",
        "{queue}: its counters say {found} messages are scheduled, its cells {expected}",
        "{queue}: its counters say it holds {found} bytes, its messages {expected}",
    ),
    slow.SB_BAD_HINT: (
        "{queue}: the hint of taken places is {found}, should be {expected}",
        "{queue}: the hint of admitted messages is {found}, should be {expected}",
        "{queue}: the hint of ready bytes is {found}, should be {expected}",
        "{queue}: has limits, but does not keep the hints they need",
        "{queue}: the hint of the number of its places is {found}, should be {expected}",
    ),
    slow.SB_BAD_LIST: (
        "{queue}: counts {found} interested consumers, the lists hold {expected}",
        "{queue}: counts {found} notified consumers, the lists hold {expected}",
        "{queue}: counts {found} idle consumers, the list holds {expected}",
        "{queue}: counts {found} no_local consumers, the list holds {expected}",
        "{queue}: counts {found} consumers, the list holds {expected}",
        "{queue}: counts {found} waiting producers, the list holds {expected}",
        "header: counts {found} who wait for memory, the list holds {expected}",
        "{queue}: the priority in slot {slot} counts {found} interested consumers, its list holds {expected}",
        "{queue}: the priority in slot {slot} counts {found} notified consumers, its list holds {expected}",
    ),
    slow.SB_BAD_ENTRY: (
        "{ring} of {queue}, position {where}: names slot {slot}, which is no consumer node ({found_kind})",
        "{ring} of {queue}, position {where}: names slot {slot} in epoch {found}, which is at {expected}",
        "{ring} of {queue}, position {where}: names slot {slot}, a node of another list (of slot {found})",
    ),
    slow.SB_LOST_NODE: (
        "{queue}, slot {slot}: a node of connection {where} whose word cannot be ({found:#x}, owner {expected})",
        "{queue}, slot {slot}: a node of connection {where} is {state}, but no list has it: nobody would tell it",
        "{queue}, slot {slot}: a node of connection {where} is {state}, but the list of all does not have it",
    ),
    slow.SB_BAD_TIMER: (
        "{queue}: entry {where} of its schedule names position {found}, the queue ends at {expected}",
    ),
    slow.SB_BAD_GROUP: (
        "{queue}: its message groups are in slot {slot}, which is {found_kind}, or another queue's",
        "{queue}: bucket {where} of its message groups belongs to connection {found}, which does not exist",
        "{queue}: message_groups is number {found} with {where} buckets, of at most {expected}, or its flag differs",
        (
            "{queue}: bucket {where} of its message groups has no consumer, and no consumer looks for messages from "
            "position {found} to {expected}"
        ),
    ),
    slow.SB_BAD_VALUE: (
        "{queue}: its index of last values leads to slot {slot}, which does not belong there ({found_kind})",
        "{queue}: a word of its index of last values in slot {slot} is {found:#x}",
        "{queue}: it has an index of last values in slot {slot}, or not, and its flag or last_value_key does not agree",
        "{queue}, position {where}: the index of last values does not name this message, but {found:#x}",
        "{queue}: its flag says that it is sorted, and it has no sort_key",
    ),
    slow.SB_BAD_DISPATCH: (
        "{queue}: a consumer has ticket {found}, the last one drawn is {expected}",
        "{queue}: its gate is open for tickets before {found}, the next one is {expected}",
        "{queue}: has {found} consumers, max_consumers is {expected}",
        "{queue}: max_consumers is {found}, but its consumers do not attach one at a time",
        "{queue}: its flags {found:#x} contradict consumers_before_dispatch and delay_before_dispatch",
    ),
    slow.SB_BAD_ID: (
        "{queue}: its duplicate ids are in slot {slot}, which is {found_kind}, or another queue's",
        "{queue}: the claim of duplicate id {where} belongs to connection {found}, which does not exist",
        "{queue}: duplicate id {where} has number {found}, the latest is {expected}",
        "{queue}: duplicate_ids is {found}, but its flag differs",
        "{queue}: duplicate id {where} with number {found} is there twice",
        "{queue}: duplicate id {where} has hash {found:#x}, which belongs elsewhere",
    ),
    slow.SB_UNREAPED: ("process {found} has died and is not cleared up after yet: what was found may come of that",),
}  # fmt: skip
_SIGNED = {slow.SB_BAD_QUEUE, slow.SB_BAD_COUNT, slow.SB_BAD_HINT, slow.SB_BAD_LIST}
_OTHER = "finding {code}.{which} of {of} at slot {slot}, {where}: {found:#x}, expected {expected:#x}"


class Finding(NamedTuple):
    """A finding of the core, with the fields of ``sb_finding``."""

    code: int
    queue: int
    slot: int
    which: int
    of: int
    where: int
    found: int
    expected: int

    @classmethod
    def copied(cls, item: Any) -> Finding:  # noqa: ANN401
        """Copies a finding out of the array that the core filled, so that the array can be freed."""
        return cls(*(int(getattr(item, field)) for field in cls._fields))

    def message(self, queue_name: str | None) -> str:
        """The finding as a sentence.

        Args:
            queue_name: the name of the queue concerned, ``None`` if no name could be read.
        """
        sentences = _SENTENCES.get(self.code, ())
        sentence = sentences[self.which] if self.which < len(sentences) else _OTHER
        signed = self.code in _SIGNED
        return sentence.format(
            code=self.code,
            which=self.which,
            of=self.of,
            slot=self.slot,
            where=self.where,
            found=_signed(self.found) if signed else self.found,
            expected=_signed(self.expected) if signed else self.expected,
            queue=f"queue {queue_name!r}" if queue_name is not None else f"the queue in slot {self.queue}",
            kind=_name(_KINDS, self.of),
            found_kind=_name(_KINDS, self.found),
            expected_kind=_name(_KINDS, self.expected),
            ring=_name(_RINGS, self.of),
            state=_name(_STATES, self.found),
        )


def _name(names: dict[int, str], number: int) -> str:
    return names.get(number) or f"number {number}"


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value
