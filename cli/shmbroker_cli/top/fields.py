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
        text: Whether that attribute is text, which is aligned to the left, and sorted in ascending order.
    """

    title: str
    short: str
    name: str
    text: bool


def _field(title: str, *, name: str = "", short: str = "", text: bool = False) -> Field:
    """Return a column. By default, `short` is the title, and `name` is the title with "_" for each blank."""
    return Field(title, short or title, name or title.replace(" ", "_"), text=text)


QUEUES, EXCHANGES, CHANNELS, CLIENTS = "queues", "exchanges", "channels", "clients"
CONSUMERS, MEMORY = "consumers", "memory"

TABLES = {
    QUEUES: (
        _field("queue", text=True),
        _field("ready"),
        _field("delivering", short="deliv"),
        _field("scheduled", short="sched"),
        _field("in/s", name="rate_in"),
        _field("out/s", name="rate_out"),
        _field("bytes"),
        _field("interested", short="inter"),
        _field("notified", short="notif"),
        _field("not interested", short="not"),
        _field("no local", name="non_acquiring", short="nloc"),
    ),
    EXCHANGES: (
        _field("exchange", text=True),
        _field("type", text=True),
        _field("bindings in", short="in"),
        _field("bindings out", short="out"),
        _field("alternate", short="altern", text=True),
        _field("flags", text=True),
    ),
    CHANNELS: (
        _field("connection", text=True),
        _field("id"),
        _field("pid"),
        _field("channel"),
        _field("consumers", short="cons"),
        _field("prefetch", short="pref"),
        _field("unacked", short="unack"),
        _field("delivered", short="deliv"),
        _field("out/s", name="rate_out"),
    ),
    CLIENTS: (
        _field("client", text=True),
        _field("pid"),
        _field("connections", short="conn"),
        _field("consumers", short="cons"),
        _field("holding", short="hold"),
        _field("cpu %", name="cpu_percent"),
        _field("memory"),
        _field("shared", name="memory_shared"),
        _field("age"),
    ),
    CONSUMERS: (
        _field("queue", text=True),
        _field("connection", short="conn"),
        _field("pid"),
        _field("waits for", text=True),
        _field("stalled"),
        _field("unacked", short="unack"),
        _field("prefetch", short="pref"),
        _field("delivered", short="deliv"),
        _field("scan lag", short="lag"),
        _field("watermark", short="wmark"),
    ),
    MEMORY: (
        _field("queue", text=True),
        _field("direct"),
        _field("head"),
        _field("pending", short="pend"),
        _field("acquired", short="acq"),
        _field("scheduled", name="scheduled_bytes", short="sched"),
        _field("away"),
        _field("hits"),
        _field("misses", short="miss"),
        _field("watermark", short="wmark"),
    ),
}
"""The tables by name, in the order in which the key `e` shows them. The first column has the names of the rows."""
