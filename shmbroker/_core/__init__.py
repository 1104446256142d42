# SPDX-License-Identifier: Apache-2.0
"""The only package that imports the native modules.

It wraps their handles and buffers, turns their statuses into exceptions, and refuses calls in forked children. No cffi
object leaves this package: callers get bytes, memoryviews, and functions that are bound to a handle.
"""
