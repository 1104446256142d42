# SPDX-License-Identifier: Apache-2.0
"""`python -m benchmarks.readme RESULTS.json`: puts the table of a run into the README, between its two markers.

A run of `benchmarks` and one of `benchmarks.spark` have a table each.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.spark.comparison import shown

README = Path(__file__).parents[1] / "README.md"
MARKERS = {kind: (f"<!-- {kind}:begin -->", f"<!-- {kind}:end -->") for kind in ("bench", "spark")}
_LATENCY = "ns"


def _number(value: float, unit: str) -> str:
    if unit == _LATENCY:
        return f"{value / 1000:,.2f} us"
    for factor, letter in ((1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{value / factor:.3g} {letter}"
    return f"{value:.3g}"


def _best_peer(measurement: dict[str, Any], contender: dict[str, Any]) -> tuple[str, float]:
    """The peer that comes closest, or is ahead, and how many times better than it the contender is."""
    ratios = {name: ratio for name, ratio in contender["vs"].items() if ratio is not None}
    name = min(ratios, key=lambda peer: ratios[peer])
    peer = next(one for one in measurement["contenders"] if one["name"] == name)
    return f"{name}, {_number(peer['summary']['median'], measurement['unit'])}", ratios[name]


def _targets(contender: dict[str, Any]) -> str:
    return "<br>".join(map(_target, contender["targets"])) or "-"


def _target(one: dict[str, Any]) -> str:
    """A target, and whether it was met; or a figure that nothing is asked of."""
    if one["met"] is None:
        return "not measured" if one["value"] is None else f"{one['value']:.2f} {one['text']}"
    return f"{one['text']}: {'met' if one['met'] else 'missed'}"


def _row(measurement: dict[str, Any], contender: dict[str, Any]) -> str:
    value = _number(contender["summary"]["median"], measurement["unit"])
    beside = contender["vs"] and measurement["baseline"] == "peers"
    peer, ratio = _best_peer(measurement, contender) if beside else ("-", None)
    cells = [measurement["title"], contender["name"], value, peer, "-" if ratio is None else f"{ratio:.2f}"]
    return "| " + " | ".join([*cells, _targets(contender)]) + " |"


def table(document: dict[str, Any]) -> str:
    """The table of a run, and where it was taken.

    Args:
        document: The JSON that a run wrote.
    """
    lines = [
        "| measurement | way | median | best peer | times better | target |",
        "|---|---|---:|---|---:|---|",
    ]
    lines += [
        _row(measurement, contender)
        for measurement in document["measurements"]
        for contender in measurement["contenders"]
        if contender["kind"] != "peer" and contender["status"] == "ok"
    ]
    facts, versions = document["machine"], document["versions"]
    peers = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    where = (
        f"Taken {document['taken'][:10]}, {document['settings']['runs']} runs of each, interleaved: "
        f"{facts['processor']}, {facts['cores']} cores{', virtual' if facts['virtual'] else ''}, "
        f"Linux {facts['kernel'].partition('-')[0]}, {facts['python']}; {peers}. Rates are messages per second."
    )
    again = document.get("taken_again")
    if again:
        where += f" {', '.join(again['measurements'])} were taken again the same day: {again['why']}."
    lines += ["", where]
    return "\n".join(lines)


def spark_table(document: dict[str, Any]) -> str:
    """The table of a run of `benchmarks.spark`."""
    lines = ["| what | ours | counterpart | figure | goal |", "|---|---:|---:|---:|---|"]
    lines += ["| " + " | ".join(shown(one)) + " |" for one in document["found"]]
    facts = document["machine"]
    where = (
        f"Taken {document['taken'][:10]}, {document['runs']} runs of each, interleaved, in one session with two cores: "
        f"{facts['processor']}, {facts['cores']} cores, {facts['python']}, PySpark {document['pyspark']}."
    )
    return "\n".join([*lines, "", where])


def main(arguments: list[str]) -> int:
    """Rewrites the README."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m benchmarks.readme RESULTS.json\n")
        return 2
    document = json.loads(Path(arguments[0]).read_text("utf-8"))
    kind, made = ("spark", spark_table) if "found" in document else ("bench", table)
    begin, end = MARKERS[kind]
    before, _, rest = README.read_text("utf-8").partition(begin)
    _, _, after = rest.partition(end)
    README.write_text(f"{before}{begin}\n{made(document)}\n{end}{after}", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
