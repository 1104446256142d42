# SPDX-License-Identifier: Apache-2.0
"""What a worker process does with each message."""

from __future__ import annotations

from dataclasses import dataclass

import shmbroker
from shmbroker_cli.demo.analysis import count


@dataclass(frozen=True)
class Analyst:
    """Counts what is in a message's file, and publishes that. Can be pickled.

    Attributes:
        results: Where to publish, under the id of the message.
    """

    results: shmbroker.Queue

    def __call__(self, message: shmbroker.Message) -> None:
        """Deal with one file.

        Args:
            message: The body is the content of the file, the message id is its path.
        """
        counts = count(bytes(message))
        properties = shmbroker.BasicProperties(message_id=message.properties.message_id)
        self.results.put(counts.to_bytes(), properties=properties)
