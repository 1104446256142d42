# SPDX-License-Identifier: Apache-2.0
"""The tables that the screen can show, and their columns."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Field:
    """A column of the screen.

    Attributes:
        title: Its heading.
        short: Its heading where there is little room.
        name: The attribute of a row that it shows.
        text: Whether that is text: set to the left, and sorted upwards.
    """

    title: str
    short: str
    name: str
    text: bool = False


QUEUES, EXCHANGES, CHANNELS = "queues", "exchanges", "channels"

TABLES = {
    QUEUES: (
        Field("queue", "queue", "queue", text=True),
        Field("ready", "ready", "ready"),
        Field("delivering", "deliv", "delivering"),
        Field("scheduled", "sched", "scheduled"),
        Field("in/s", "in/s", "rate_in"),
        Field("out/s", "out/s", "rate_out"),
        Field("bytes", "bytes", "bytes"),
        Field("interested", "inter", "interested"),
        Field("notified", "notif", "notified"),
        Field("not interested", "not", "not_interested"),
        Field("browsers", "brow", "browsers"),
    ),
    EXCHANGES: (
        Field("exchange", "exchange", "exchange", text=True),
        Field("type", "type", "type", text=True),
        Field("bindings in", "in", "bindings_in"),
        Field("bindings out", "out", "bindings_out"),
        Field("alternate", "altern", "alternate", text=True),
        Field("flags", "flags", "flags", text=True),
    ),
    CHANNELS: (
        Field("connection", "connection", "connection", text=True),
        Field("id", "id", "id"),
        Field("pid", "pid", "pid"),
        Field("channel", "channel", "channel"),
        Field("consumers", "cons", "consumers"),
        Field("prefetch", "pref", "prefetch"),
        Field("unacked", "unack", "unacked"),
        Field("delivered", "deliv", "delivered"),
        Field("out/s", "out/s", "rate_out"),
    ),
}
"""By name, in the order in which a key goes through them; the first column is what a row is called."""
