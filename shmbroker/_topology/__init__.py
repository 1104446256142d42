# SPDX-License-Identifier: Apache-2.0
"""Exchanges and bindings: what they are, how they are shared, and which queues a message goes to.

From the bottom up: `exchange` and `binding` (what there is, and the rules for it), `records` (their form in the
journal), `state` (what the records so far give), `matching` and `routing` (which queues a message finds there),
`changes` (checks a change against the state and makes its record) and `shared` (all this for one broker: the journal in
shared memory behind it). Only `shared` knows of shared memory. `ordered` keeps very many bindings in little room.
"""
