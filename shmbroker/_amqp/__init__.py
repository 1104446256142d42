# SPDX-License-Identifier: Apache-2.0
"""AMQP's rules for names, texts and field tables."""
