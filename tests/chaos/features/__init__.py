# SPDX-License-Identifier: Apache-2.0
"""The chaos among all features: message groups, priorities, selectors, limits, rings and dead letters together.

The class of a message - its group, its priority and its colour - follows from its number. So the oracle knows in which
order messages have to come.
"""
