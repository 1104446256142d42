# SPDX-License-Identifier: Apache-2.0
"""What several of the tests with Spark stand on."""
