# SPDX-License-Identifier: Apache-2.0
"""A state machine that drives queues with all of their settings through several real processes, beside a plain model.

`reference` is the model: what a queue should be, in lists and dicts. `machine` chooses the operations (Hypothesis).
`worker` is the program of the processes that carry them out, `workers` starts them and talks with them. `housekeeping`
keeps house in the machine's process, step by step, so that nothing happens between two steps.

`python -m tests.queue_machine --help` runs it for as many steps as one has time for.
"""
