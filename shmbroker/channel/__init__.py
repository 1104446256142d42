# SPDX-License-Identifier: Apache-2.0
"""Channels: the AMQP interface to a broker, with pika's names and argument order.

The design, one object that several threads use, follows RabbitMQ's Java client.

A channel is built in layers, each of which uses the layers before it: `channel_state` (open or closed, and pending
work), `declaring`, `sending`, `receiving`.
"""

from __future__ import annotations

from shmbroker.channel.receiving import Receiving


class Channel(Receiving):
    """A channel of a connection. Safe to use from several threads, and inside its callbacks.

    Made by :meth:`Connection.channel`. Methods that AMQP answers run one at a time; the others (publish, acknowledge)
    run immediately. An error :exc:`ChannelClosedByBroker` closes the channel, and unacked messages are requeued at
    their positions.
    """

    __slots__ = ()


__all__ = ["Channel"]
