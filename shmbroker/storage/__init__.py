# SPDX-License-Identifier: Apache-2.0
"""The store of a broker on disk: what durable queues have survives the loss of all processes and of the machine.

A store is a folder with one LMDB environment. Only the storekeeper of the broker writes it, any process may read it
meanwhile (:mod:`shmbroker._storekeeper`). The modules here know the disk, and nothing of shared memory.
This one imports none of them: a process that uses no store does not import LMDB.
"""
