# SPDX-License-Identifier: Apache-2.0
"""What a worker process does with each message."""

from __future__ import annotations

from dataclasses import dataclass

import shmbroker
from shmbroker_cli.demo.analysis import count


@dataclass(frozen=True)
class Analyst:
    """The function of the workers: counts what is in a file, and publishes the counts. Can be pickled.

    Attributes:
        results: The queue for the counts. The message with the counts has the message id of the message with the file.
        log: The queue for a line on each file.
    """

    results: shmbroker.Queue
    log: shmbroker.Queue

    def __call__(self, message: shmbroker.Message) -> None:
        """Analyse one file, and publish its counts. Reject the message if the file cannot be parsed.

        Args:
            message: The body is the content of the file, the message id is its path.
        """
        counts = count(bytes(message))
        path = message.properties.message_id or ""
        self.results.put(counts.to_bytes(), properties=shmbroker.BasicProperties(message_id=path))
        said = "not parsed" if counts.unparsed else f"{counts.functions} functions"
        self.log.put(f"{path}: {counts.lines} lines, {said}".encode())
        if counts.unparsed:
            message.reject()
