# SPDX-License-Identifier: Apache-2.0
"""Chaos among dead letters: priorities, rings, returned messages that wait, and messages that die and move on.

`plan` has the queues and the processes, `actors` what the processes do, `director` declares and looks, and `oracle`
judges. Killing, stopping, journals and evidence are those of `tests.chaos`.
"""
