# SPDX-License-Identifier: Apache-2.0
"""What these tests share: waiting, looking from outside, other processes."""
