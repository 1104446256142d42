# SPDX-License-Identifier: Apache-2.0
"""Exchanges and bindings: their rules, how processes share them, and which queues a message goes to.

From the bottom up: `exchange` and `binding` (the objects and their rules), `records` (their form in the journal),
`state` (the table that the records give), `matching` and `routing` (they find the queues for a message in that table),
`changes` (checks a change against the table and makes its record) and `shared` (all this for one broker, backed by the
journal in shared memory). Of these, only `shared` uses shared memory. `ordered` stores very many bindings compactly.
For one connection, `administration` has the operations on queues, exchanges and bindings, and `publisher` publishes.
"""
