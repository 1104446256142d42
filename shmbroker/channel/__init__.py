# SPDX-License-Identifier: Apache-2.0
"""Channels: the AMQP way to a broker, with pika's names and orders. Source: seed 003.

A channel is built in layers, each of which knows those before it: `state` (open or closed, what is to be done for it),
`declaring`, `sending`, `receiving`.
"""

from __future__ import annotations

from shmbroker.channel.receiving import Receiving


class Channel(Receiving):
    """A channel of a connection. Safe to use from several threads, and inside its callbacks.

    Made by :meth:`Connection.channel`. Methods that AMQP answers are done one at a time; the others (publish,
    acknowledge) at once. An error of a method closes the channel, and what is unacknowledged goes back to its place.
    """

    __slots__ = ()


__all__ = ["Channel"]
