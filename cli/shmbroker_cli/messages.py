# SPDX-License-Identifier: Apache-2.0
"""Messages as the command line shows them."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import shmbroker

PREVIEW = 60


def facts(message: shmbroker.Message) -> dict[str, object]:
    """Return a message as a dictionary, for JSON.

    Args:
        message: A message whose body can still be read.

    Returns:
        Its queue, sequence, length, priority and earlier deliveries; four of its other properties, if they are set;
        and its body: as `body` if it is UTF-8, else as `body_base64`.
    """
    found: dict[str, object] = {
        "queue": message.queue,
        "sequence": message.sequence,
        "bytes": len(message),
        "priority": message.priority,
        "redelivered": message.redelivered,
        "delivery_count": message.delivery_count,
    }
    properties = message.properties
    for name in ("message_id", "content_type", "correlation_id", "reply_to"):
        value = getattr(properties, name)
        if value is not None:
            found[name] = value
    for name in ("state", "due_at", "held_by"):
        value = getattr(message, name, None)  # of a message that is not ready
        if value is not None:
            found[name] = value
    body = bytes(message)
    try:
        found["body"] = body.decode()
    except UnicodeDecodeError:
        found["body_base64"] = base64.b64encode(body).decode("ascii")
    return found


def preview(body: bytes) -> str:
    """Return the beginning of a body as text for a table.

    Args:
        body: Any bytes; what is not UTF-8 is shown as escapes.

    >>> preview(b"x" * 100)
    'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…'
    """
    text = body[: 4 * PREVIEW + 4].decode(errors="backslashreplace")
    return text if len(text) <= PREVIEW else text[: PREVIEW - 1] + "…"
