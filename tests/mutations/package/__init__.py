# SPDX-License-Identifier: Apache-2.0
"""Systematic mutation of the Python package: every small fault there can be, and the tests that find each."""
