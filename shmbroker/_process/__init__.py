# SPDX-License-Identifier: Apache-2.0
"""Process-wide handling of forks, of the program's end, of locks, and of weakly held objects."""
