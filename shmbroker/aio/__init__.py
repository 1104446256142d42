# SPDX-License-Identifier: Apache-2.0
"""The asyncio counterpart of :mod:`shmbroker`: calls that can wait are awaited, and no call needs its own thread.

>>> import asyncio
>>> import shmbroker
>>> async def tour():
...     async with shmbroker.aio.connect("doctest-aio") as connection:
...         jobs = await connection.queue("jobs")
...         await jobs.put(b"hello")
...         message = await jobs.get()
...         message.ack()
...         return bytes(message)
>>> asyncio.run(tour())
b'hello'
>>> shmbroker.Broker("doctest-aio").stop(purge=True)

Cancelling an await loses no message: a get that is cancelled has taken none.
"""

from shmbroker.aio.address_settings import AddressSettings
from shmbroker.aio.channel import Channel
from shmbroker.aio.connection import Connection, connect
from shmbroker.aio.consumer import Consumer
from shmbroker.aio.queue import Queue

__all__ = ["AddressSettings", "Channel", "Connection", "Consumer", "Queue", "connect"]
