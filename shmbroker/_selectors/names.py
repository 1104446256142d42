# SPDX-License-Identifier: Apache-2.0
"""Names in selectors: fields of JMS, properties of AMQP, and headers."""

from __future__ import annotations

from shmbroker._amqp.field_tables import MAX_NAME
from shmbroker._core.opcodes import OPCODES, PROPERTIES
from shmbroker._selectors.program import Kind, Operand, Place, Problem, text8

# The fields of a message that JMS allows in selectors, and the property that each one reads.
_JMS = {
    "JMSDeliveryMode": "jms_delivery_mode",
    "JMSPriority": "priority",
    "JMSMessageID": "message_id",
    "JMSTimestamp": "jms_timestamp",
    "JMSCorrelationID": "correlation_id",
    "JMSType": "type",
}
_HEADERS_OF_JMS = ("JMSX", "JMS_")  # a name with such a beginning is one of the application, or of the provider
_NUMBERS = frozenset({"delivery_mode", "priority", "timestamp", "jms_timestamp"})


def plain(place: Place, name: str) -> Operand:
    """Returns the operand of a name without quotes: a field of JMS, a property of AMQP, or else a header.

    Raises:
        Problem: the name is that of the header table itself, or begins with ``JMS`` and is none that JMS allows.
    """
    if name == "headers":
        raise Problem(place, "headers is the table of all headers: the name of one header is allowed")
    found = _JMS.get(name, name)
    if found in PROPERTIES and (name in _JMS or not name.startswith("jms_")):
        kind = Kind.NUMBER if found in _NUMBERS else Kind.STRING
        return Operand(place, kind, OPCODES["PROPERTY_U8"] + PROPERTIES[found])
    if name.startswith("JMS") and not name.startswith(_HEADERS_OF_JMS):
        allowed = ", ".join(_JMS)
        raise Problem(place, f"{name} is no field that a selector may use: {allowed} are allowed")
    return header(place, name)


def header(place: Place, name: str) -> Operand:
    """Returns the operand of a header.

    Raises:
        Problem: the name is empty, or longer than that of any header.
    """
    encoded = name.encode()
    if not 0 < len(encoded) <= MAX_NAME:
        raise Problem(place, f"a name of {len(encoded)} bytes: 1 to {MAX_NAME} bytes of UTF-8 are allowed")
    return Operand(place, Kind.ANY, OPCODES["HEADER_TEXT8"] + text8(encoded))
