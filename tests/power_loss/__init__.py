# SPDX-License-Identifier: Apache-2.0
"""Loss of power: what a store has, of files as they could be after a power loss at any moment of a busy run.

`tests/c/write_recorder.c` notes each write and each sync of the store's files, beside what the clients were told
(`journal`). `disk` makes the files as they could be after a loss at any place of that journal. `recovery` reads them as
a broker does that begins, and `judge` compares that with the promises.
"""
