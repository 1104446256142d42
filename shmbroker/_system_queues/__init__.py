# SPDX-License-Identifier: Apache-2.0
"""Queues that the broker keeps for itself, and what is written in them."""
