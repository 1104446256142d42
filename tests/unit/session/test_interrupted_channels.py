# SPDX-License-Identifier: Apache-2.0
"""Numbers of channels whose opening or closing a signal's handler interrupts."""

from __future__ import annotations

import json

import pytest
from scenario_support.interrupting import SIGNALLED_AT
from scenario_support.processes import run_python

import shmbroker.testing

# Interrupts the opening or the closing of channel 2, beside channels 1 and 3, wherever a signal's handler may raise.
# Then the program closes the channel if it has it, and opens two.
CHANGE_WHERE_SIGNALS_COME = f"""{SIGNALLED_AT}
    def begin():
        opened.append(connection.channel(wanted))

    def end():
        opened[0].close()

    def count():
        return sum(one.channels for one in connection.connections())

    name, deed, wanted = sys.argv[1], sys.argv[2], 2 if "wanted" in sys.argv else None
    gc.disable()  # finalizers are not interrupted
    number, more, wrong = 0, True, []
    while more:
        with shmbroker.connect(name, create=False) as connection:
            kept = [connection.channel() for _ in range(3)]
            kept[1].close()
            opened = []
            if deed == "end":
                begin()
            more = signalled_at(number, globals()[deed])
            if deed == "begin" and count() != 2 + len(opened):
                wrong.append([number, len(opened), count()])
            for channel in opened:
                channel.close()
            if count() != 2:
                wrong.append([number, count()])
            opened.clear()
            try:
                begin()
                opened.append(connection.channel())
            except ValueError as error:
                wrong.append([number, str(error)])
            numbers = [channel.number for channel in opened]
            if (numbers, count()) != ([2, 4], 4):
                wrong.append([number, numbers, count()])
        number += 1
    print(json.dumps([number, wrong]))
"""


@pytest.mark.parametrize("options", [["begin"], ["begin", "wanted"], ["end"]])
def test_an_interrupted_channel_keeps_no_number(broker_name: str, options: list[str]) -> None:
    """Wherever a signal's handler raises: a channel that the program does not have, or that it has closed, has none."""
    with shmbroker.testing.broker(broker_name, memory="32M") as broker:
        done = run_python(CHANGE_WHERE_SIGNALS_COME, broker.name, *options)
    assert done.returncode == 0, done.stderr
    number, wrong = json.loads(done.stdout)
    assert number > 5
    assert wrong == []
