# SPDX-License-Identifier: Apache-2.0
"""A task's link to the broker for one partition: the queue of requests, its own queue of answers, and a consumer."""

from __future__ import annotations

import contextlib
import os
import queue as standard_queue
import secrets
from typing import TYPE_CHECKING

import shmbroker
from shmbroker.spark.attachment import broker_name, connection_to
from shmbroker.spark.handover import protocol
from shmbroker.spark.handover.memory_share import MemoryShare
from shmbroker.spark.handover.server_watch import ServerWatch

if TYPE_CHECKING:
    from shmbroker.spark.handover.protocol import Handover

_ERRORS = (shmbroker.BrokerError, shmbroker.Timeout, standard_queue.Empty, standard_queue.Full)
_AT_ONCE = 1 << 16  # messages: the most that one call takes
_UNUSED_SECONDS = 60.0  # a queue of answers ends after this time if its task died before it made the consumer


class ClientSession:
    """The link of a task to the broker, for one partition.

    The task opens it with the first batch, so that an empty partition needs neither broker nor server. The queue
    of answers ends with its consumer, and so with this process.

    Raises:
        BrokerNotFound: there is no such broker on this host.
        NoServer: no process serves the queue of requests.
    """

    def __init__(self, handover: Handover) -> None:
        broker = broker_name(handover.broker)
        self.connection = connection_to(broker)
        self.share = MemoryShare(broker)
        self.watch = ServerWatch(self.connection, handover.request_queue)
        self.requests = self.watch.open()
        name = f"{handover.reply_queue}.{os.getpid()}.{secrets.token_hex(6)}"
        self.answers = self.connection.queue(name, auto_delete=True, expires=_UNUSED_SECONDS)
        self.consumer = self.answers.consume(prefetch=handover.inflight + 1)

    def close(self, unanswered: int) -> None:
        """Ends the queue of answers. Raises no error of the broker, which would hide an error of the task.

        Args:
            unanswered: the number of this task's requests that may still be in the queue of requests. A server drops
                them when it takes them; if there is no server, this call removes them.
        """
        with contextlib.suppress(*_ERRORS):
            self.consumer.close()
        with contextlib.suppress(*_ERRORS):
            if unanswered and not self.watch.is_served():
                self._take_back(unanswered)
        with contextlib.suppress(*_ERRORS):
            self.answers.close()

    def _take_back(self, unanswered: int) -> None:
        """Removes this task's requests from the queue of requests; other messages keep their place.

        ``get_many`` may return only a part of the messages. A part that is given back would be taken again, so this
        method holds all parts until it has found the requests.
        """
        ready, held = max(1, len(self.requests)), list[shmbroker.MessageBatch]()
        try:
            while ready > 0 and unanswered > 0:
                held.append(self.requests.get_many(min(ready, _AT_ONCE), timeout=0))
                ready -= len(held[-1])
                for message in held[-1]:
                    asked = protocol.read_request(message.key)
                    if asked is not None and asked[1] == self.answers.name:
                        message.ack()
                        unanswered -= 1
        finally:
            for batch in held:
                batch.give_back()
