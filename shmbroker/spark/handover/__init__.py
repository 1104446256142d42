# SPDX-License-Identifier: Apache-2.0
"""Executor-side hand-over: passes batches to a process on the executor's host, and its answers back.

The driver tells the tasks what to do (``plan``), a task is a client (``client``), the long-lived process a server
(``server``), and ``protocol`` is their common protocol. A client limits itself to a share of the broker's memory
(``memory_share``), so that hand-overs that wait for each other never deadlock.
"""
