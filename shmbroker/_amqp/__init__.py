# SPDX-License-Identifier: Apache-2.0
"""What AMQP says of names, texts and tables of fields."""
