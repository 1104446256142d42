# SPDX-License-Identifier: Apache-2.0
"""Chaos: a broker whose processes are killed and stopped at random, and an oracle that looks at what they saw.

`python -m tests.chaos --help`. The `director` kills and stops the processes of the `stage`, which do what `actors` and
`takers` say and write it into a `journal` each. The `oracle` judges the `evidence` of these.
`dead_letters` has other queues, processes and an oracle for messages that die.

A seed repeats what the director and the processes choose, not what the kernel makes of it.
"""
