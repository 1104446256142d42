# SPDX-License-Identifier: Apache-2.0
"""The only importer of the native modules: handles, status to exception, buffers, fork guard.

No cffi object leaves this package: callers get functions bound to their handle, bytes and memoryviews.
"""
