# SPDX-License-Identifier: Apache-2.0
"""Selectors: conditions over the properties and headers of messages, in the subset of SQL-92 that JMS defines.

The package parses and checks the text of a selector, and compiles it to a program. The core runs the program over the
properties of each message, where they are stored.
"""
