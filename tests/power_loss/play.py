# SPDX-License-Identifier: Apache-2.0
"""The busy run: threads that put, acknowledge, commit, move and delete, and note what they were told.

    python -m tests.power_loss.play JOURNAL FOLDER BROKER SECONDS SEED

It runs with `write_recorder` loaded, which the storekeepers that it starts inherit. Two brokers, one after the other,
have the folder; each at least for that time.
"""

from __future__ import annotations

import functools
import queue
import random
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import shmbroker
from shmbroker._core import native, syncing
from tests.power_loss.content import PRIORITIES, Identity, body_of, identity_of, priority_of
from tests.power_loss.journal import Marks

if TYPE_CHECKING:
    from collections.abc import Callable

LIVES = 2
PLAIN, RANKED, SOURCE, TARGET, RENEWED = ("plain-0", "plain-1"), "ranked", "source", "target", "renewed"
TOKEN, LEFT, RIGHT = "token", "left", "right"
TRANSIENT = "transient"
_TRANSIENT = shmbroker.BasicProperties(delivery_mode=1)
SECONDS_TO_STORE = 300
LEAST_BYTES = 16 << 20
"""So much gets into the journal in each life, however slow the machine is."""
_MOST_READY = 2_000
MOST_IDS = 100_000


class Player:
    """A thread with a connection.

    Args:
        broker: the broker.
        marks: where it notes what it does.
        chance: chooses.
        goes_on: whether the life goes on.
    """

    def __init__(
        self, broker: shmbroker.Broker, marks: Marks, chance: random.Random, goes_on: Callable[[], bool]
    ) -> None:
        self.connection = broker.connect()
        self.note = marks.note
        self.chance = chance
        self.goes_on = goes_on

    def sync(self) -> None:
        """Waits until all that was done is on the disk."""
        core = self.connection._session.core  # noqa: SLF001 - a wait of the core
        syncing.wait(core, syncing.ask(core), native.deadline(SECONDS_TO_STORE))

    def declare(self, name: str) -> shmbroker.Queue:
        """A durable queue, which is on the disk when the call returns."""
        max_priority = PRIORITIES - 1 if name == RANKED else 0
        ids = MOST_IDS if name == PLAIN[1] else 0
        found = self.connection.queue(name, durable=True, max_priority=max_priority, duplicate_ids=ids)
        self.sync()
        self.note("declared", name, max_priority)
        return found


class Numbers:
    """The next number of each producer; they go on in the next life."""

    def __init__(self) -> None:
        self._next: dict[str, int] = {}

    def take(self, producer: str, count: int) -> int:
        """Takes successive numbers; returns the first."""
        first = self._next.get(producer, 0)
        self._next[producer] = first + count
        return first

    def __getitem__(self, producer: str) -> int:
        return self._next.get(producer, 0)


def send(player: Player, name: str, producer: str, numbers: Numbers) -> None:
    """Puts messages, one at a time, many at a time, and by a channel with confirms.

    Some are transient. Nothing is noted of these: if one came back after a loss, nobody would have put it.
    """
    ranked, target = name == RANKED, player.declare(name)
    channel = player.connection.channel()
    channel.confirm_delivery()
    while player.goes_on():
        if len(target) > _MOST_READY:
            player.sync()
            continue
        ways = ("one", "many", "large", "channel", "transient")
        way = player.chance.choices(ways, (10, 4, 0 if ranked else 0.3, 4, 0 if ranked else 4))[0]
        if way == "transient":
            count = player.chance.choice((1, 70))
            first = numbers.take(TRANSIENT, count)
            bodies = [body_of(TRANSIENT, number) for number in range(first, first + count)]
            assert target.put_many(bodies, properties=_TRANSIENT, timeout=SECONDS_TO_STORE) == count
            continue
        count = {"one": 1, "many": player.chance.randrange(2, 90), "large": 30, "channel": 8}[way]
        count = 1 if ranked else count
        first = numbers.take(producer, count)
        bodies = [body_of(producer, number, large=way == "large") for number in range(first, first + count)]
        player.note("put", name, producer, first, count)
        if ranked:
            target.put(bodies[0], priority=priority_of(first), timeout=SECONDS_TO_STORE)
        elif way == "channel":
            for body in bodies:
                channel.basic_publish("", name, body)
            assert channel.wait_for_confirms(SECONDS_TO_STORE)
        elif way == "one":
            known = f"{producer} {first}" if name == PLAIN[1] else None
            target.put(bodies[0], duplicate_id=known, timeout=SECONDS_TO_STORE)
        else:
            assert target.put_many(bodies, timeout=SECONDS_TO_STORE) == count
        player.note("confirmed", producer, first, count)


def take(player: Player, name: str) -> None:
    """Acknowledges and returns messages, in another order than they came in."""
    source = player.declare(name)
    held: list[shmbroker.Message] = []
    ended: list[Identity] = []
    while player.goes_on():
        if len(source) < player.chance.choice((0, 0, 150, 400)):  # a queue is not to be empty all the time
            player.sync()
            continue
        try:
            held += source.get_many(player.chance.choice((1, 1, 5, 40)), timeout=0.05)
        except queue.Empty:
            continue
        player.chance.shuffle(held)
        while len(held) > player.chance.choice((0, 3, 20)):
            message = held.pop()
            if player.chance.random() < 0.15:
                message.nack()
                continue
            ended.append(identity_of(bytes(message)))
            player.note("ack", *ended[-1])
            message.ack()
        if len(ended) > player.chance.randrange(10, 200):
            player.sync()
            player.note("gone", ended)
            ended.clear()
    for message in held:
        message.nack()


def move(player: Player) -> None:
    """Moves messages from one queue to another one."""
    source = player.declare(SOURCE)
    player.declare(TARGET)
    while player.goes_on():
        if not source.move(TARGET, limit=player.chance.choice((1, 10, 200))):
            player.sync()
        time.sleep(0.002)  # so that the source has messages at times


def hand_on(player: Player, numbers: Numbers) -> None:
    """Hands a token on, in transactions over three queues, and at times ends what these transactions left."""
    for name in (TOKEN, LEFT, RIGHT):
        player.declare(name)
    if numbers[TOKEN] == 0:
        first = numbers.take(TOKEN, 1)
        player.note("put", TOKEN, TOKEN, first, 1)
        player.connection.queue(TOKEN).put(body_of(TOKEN, first), timeout=SECONDS_TO_STORE)
        player.note("confirmed", TOKEN, first, 1)
    channel = player.connection.channel()
    channel.tx_select()
    while player.goes_on():
        if player.chance.random() < 0.1:
            _drain(player, channel)
        token = channel.basic_get(TOKEN)
        assert token is not None
        number = identity_of(bytes(token))[1]
        assert numbers.take(TOKEN, 1) == number + 1
        channel.basic_ack(token.delivery_tag)
        for name, what in ((TOKEN, number + 1), (LEFT, number), (RIGHT, number)):
            channel.basic_publish("", name, body_of(name, what))
        player.note("commit", number)
        channel.tx_commit(timeout=SECONDS_TO_STORE)
        player.note("committed", number)


def _drain(player: Player, channel: shmbroker.channel.Channel) -> None:
    ended = -1
    for _ in range(player.chance.randrange(1, 30)):
        for name in (LEFT, RIGHT):
            message = channel.basic_get(name)
            if message is None:
                continue
            ended = identity_of(bytes(message))[1]
            channel.basic_ack(message.delivery_tag)
    player.note("drain", ended)
    channel.tx_commit(timeout=SECONDS_TO_STORE)
    player.note("drained", ended)


def renew(player: Player, life: int) -> None:
    """Deletes a queue with messages, and declares it again."""
    generation = 0
    while player.goes_on():
        producer = f"renewed-{life}-{generation}"
        found = player.declare(RENEWED)
        count = player.chance.choice((1, 10, 150))
        player.note("put", RENEWED, producer, 0, count)
        found.put_many([body_of(producer, number) for number in range(count)], timeout=SECONDS_TO_STORE)
        player.note("confirmed", producer, 0, count)
        player.note("delete", RENEWED, producer)
        found.delete()
        if player.chance.random() < 0.5:  # otherwise the same turn has the next one
            player.sync()
            player.note("deleted", RENEWED, producer)
        generation += 1
        time.sleep(0.01)  # a deletion and a declaration take a turn each: the others are to have some, too


def live(broker: shmbroker.Broker, marks: Marks, life: int, given: tuple[float, int, Numbers]) -> None:
    """The life of a broker."""
    seconds, seed, numbers = given
    until, least = time.monotonic() + seconds, marks.length() + LEAST_BYTES

    def goes_on() -> bool:
        return time.monotonic() < until or marks.length() < least

    roles: list[Callable[[Player], None]] = [
        *(functools.partial(send, name=name, producer=f"sender-of-{name}", numbers=numbers) for name in PLAIN),
        functools.partial(send, name=PLAIN[0], producer="another", numbers=numbers),
        functools.partial(send, name=RANKED, producer="ranked", numbers=numbers),
        functools.partial(send, name=SOURCE, producer="moved", numbers=numbers),
        *(functools.partial(take, name=name) for name in (*PLAIN, RANKED, TARGET)),
        functools.partial(hand_on, numbers=numbers),
        functools.partial(renew, life=life),
        move,
    ]
    failed: list[BaseException] = []

    def play(role: Callable[[Player], None], player: Player) -> None:
        try:
            with player.connection:
                role(player)
        except BaseException as error:  # noqa: BLE001 - raised below, in the thread that everybody waits for
            failed.append(error)

    threads = []
    for number, role in enumerate(roles):
        player = Player(broker, marks, random.Random(f"{seed} {life} {number}"), goes_on)
        threads.append(threading.Thread(target=play, args=(role, player)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


def main(journal: Path, folder: Path, name: str, seconds: float, seed: int) -> None:
    """Plays all lives."""
    marks, numbers = Marks(journal), Numbers()
    for life in range(LIVES):
        marks.note("life")
        broker = shmbroker.Broker(name, memory="128M", data_dir=folder, sync="always").create()
        try:
            live(broker, marks, life, (seconds, seed, numbers))
        finally:
            broker.stop(purge=True)
    marks.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], float(sys.argv[4]), int(sys.argv[5]))
