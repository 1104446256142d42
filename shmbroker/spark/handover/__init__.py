# SPDX-License-Identifier: Apache-2.0
"""Executor-side hand-over: batches go to a process on the executor's host, and what that answers comes back.

The driver says what the tasks are to do (``plan``), a task is a client (``client``), the process that stays a server
(``server``), and ``protocol`` is what these say to each other. Of the broker's memory a client keeps to a share
(``memory``), so that hand-overs which wait for each other never wait for ever.
"""
