# SPDX-License-Identifier: Apache-2.0
"""`python -m benchmarks.pages RESULTS.json`: writes the figures of a run into the pages that show them.

The page of figures has every row. The README has a few rows and a plot. Each table stands between two markers; a run of
`benchmarks`, one of its measurements of features alone, and one of `benchmarks.spark` have a table each.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.spark.comparison import shown

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
FIGURES = ROOT / "docs" / "explanation" / "figures.md"
PLOT = ROOT / "docs" / "images" / "beside-peers.svg"
# The rows of the README: the measurement, the way, and what a reader who knows neither is told.
IN_SHORT = (
    ("one-to-one-64B", "put-get-ack", "64 B from one process to another, each message acknowledged"),
    ("one-to-one-64B", "consume", "the same, by a consumer with prefetch"),
    ("one-to-one-64B", "batch", "the same, in batches"),
    ("one-to-one-1KiB", "put-get-ack", "1 KiB, each message acknowledged"),
    ("in-place-64KiB", "zero-copy", "64 KiB, put, and read in place"),
    ("in-place-1MiB", "zero-copy", "1 MiB, put, and read in place"),
    ("ping-pong", "waiting", "a round trip of 64 B"),
    ("publish", "basic_publish, default exchange", "`basic_publish`, as pika spells it"),
    ("depth", "10,000,000 ready", "put, get and ack in a queue with 10,000,000 messages"),
    ("idle", "100 consumers, 10 processes", "100 idle consumers, % of a core"),
)
UNITS = "Rates are messages per second."
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


def _cells(measurement: dict[str, Any], contender: dict[str, Any]) -> list[str]:
    value = _number(contender["summary"]["median"], measurement["unit"])
    beside = contender["vs"] and measurement["baseline"] == "peers"
    peer, ratio = _best_peer(measurement, contender) if beside else ("-", None)
    factor = "-" if ratio is None else f"{ratio:.2f}"
    return [measurement["title"], contender["name"], value, peer, factor, _targets(contender)]


def _where(document: dict[str, Any]) -> str:
    """When a run was taken, how often, and on which machine."""
    facts = document["machine"]
    return (
        f"Taken {document['taken'][:10]}, {document['settings']['runs']} runs of each, interleaved: "
        f"{facts['processor']}, {facts['cores']} cores{', virtual' if facts['virtual'] else ''}, {facts['python']}"
    )


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
        f"| {' | '.join(_cells(measurement, contender))} |"
        for measurement in document["measurements"]
        for contender in measurement["contenders"]
        if contender["kind"] != "peer" and contender["status"] == "ok"
    ]
    versions = ", ".join(f"{name} {version}" for name, version in document["versions"].items() if version)
    where = f"{_where(document)}, Linux {document['machine']['kernel'].partition('-')[0]}; {versions}. {UNITS}"
    again = document.get("taken_again")
    if again:
        where += f" {', '.join(again['measurements'])} were taken again the same day: {again['why']}."
    lines += ["", where]
    return "\n".join(lines)


def short_table(document: dict[str, Any]) -> str:
    """The rows of `IN_SHORT`.

    Args:
        document: The JSON that a run of `benchmarks` wrote.
    """
    measurements = {one["name"]: one for one in document["measurements"]}
    lines = ["| | shmbroker | best peer | times better |", "|---|---:|---|---:|"]
    for name, way, words in IN_SHORT:
        measurement = measurements[name]
        contender = next(one for one in measurement["contenders"] if one["name"] == way)
        _, _, value, peer, ratio, _ = _cells(measurement, contender)
        lines.append(f"| {words} | {value} | {peer} | {ratio} |")
    return "\n".join([*lines, "", f"{_where(document)}. {UNITS}"])


def kind_of(document: dict[str, Any]) -> str:
    """The table that a document is for: `bench`, `features` or `spark`."""
    if "found" in document:
        return "spark"
    names = [one["name"] for one in document["measurements"]]
    return "features" if all(name.startswith("feature-") or name == "selectors" for name in names) else "bench"


def feature_table(document: dict[str, Any]) -> str:
    """The table of a run that measured the features of queues: ours and the peers', and what was asked for.

    Args:
        document: The JSON that a run of `benchmarks --peers --only "feature-*" --only selectors` wrote.
    """
    lines = ["| measurement | way | median | target |", "|---|---|---:|---|"]
    for measurement in document["measurements"]:
        for one in measurement["contenders"]:
            if one["status"] == "ok":
                value = _number(one["summary"]["median"], measurement["unit"])
                targets = "<br>".join(_measured(target) for target in one["targets"]) or "-"
                lines.append(f"| {measurement['title']} | {one['name']} | {value} | {targets} |")
    return "\n".join([*lines, "", f"{_where(document)}. Times are those of a message."])


def _measured(target: dict[str, Any]) -> str:
    value = "" if target["value"] is None else f" ({target['value']:.3g})"
    return f"{_target(target)}{value}"


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


def _replace(page: Path, kind: str, table_text: str) -> None:
    """Puts a table between its two markers."""
    begin, end = f"<!-- {kind}:begin -->", f"<!-- {kind}:end -->"
    before, _, rest = page.read_text("utf-8").partition(begin)
    _, _, after = rest.partition(end)
    page.write_text(f"{before}{begin}\n{table_text}\n{end}{after}", "utf-8")


def main(arguments: list[str]) -> int:
    """Rewrites the tables of the pages, and the plot."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m benchmarks.pages RESULTS.json\n")
        return 2
    document = json.loads(Path(arguments[0]).read_text("utf-8"))
    kind = kind_of(document)
    if kind == "spark":
        _replace(FIGURES, "spark", spark_table(document))
    elif kind == "features":
        _replace(FIGURES, "features", feature_table(document))
    else:
        _replace(FIGURES, "bench", table(document))
        _replace(README, "bench", short_table(document))
        from benchmarks import plot  # noqa: PLC0415 (the tables do without matplotlib)

        plot.beside_peers(document, PLOT)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
