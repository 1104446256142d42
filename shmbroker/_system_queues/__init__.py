# SPDX-License-Identifier: Apache-2.0
"""The broker's own queues, and their contents."""
