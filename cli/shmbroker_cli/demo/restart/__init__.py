# SPDX-License-Identifier: Apache-2.0
"""The last part of `shmbroker demo`: all processes of a broker are killed, and it begins again from the disk alone.

`plan` has the queues, `clients` the producers and consumers, which write into `notes` what they were told. `killing`
ends every process of the broker and removes its memory. `run` does it all, and `report` compares what came back with
the notes.
"""
