# SPDX-License-Identifier: Apache-2.0
"""Chaos with a store: durable queues, of which one is larger than the memory, and now and then a loss of everything.

In a loss every process of the broker is killed, its memory is removed, and it begins again from its folder. `plan` has
the queues and the processes, and `oracle` says what a loss may take away: acknowledgements and puts that were not on
the disk.
"""
