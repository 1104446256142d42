# SPDX-License-Identifier: Apache-2.0
"""Systematic mutation of the C core: every small fault there can be, and the evidence that finds each."""
