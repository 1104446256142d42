# SPDX-License-Identifier: Apache-2.0
"""`shmbroker bench`: hands over to the benchmarks of a source checkout."""

import importlib
import importlib.util

import typer

from shmbroker_cli.errors import Refused
from shmbroker_cli.functions import see_working_directory

PACKAGE = "benchmarks"


def bench(context: typer.Context) -> None:
    """Run the benchmarks of a source checkout; all arguments are passed to them."""
    see_working_directory()
    if importlib.util.find_spec(PACKAGE) is None:
        message = "the working directory has no benchmarks: run this in the root of a source checkout"
        raise Refused(message)
    try:
        entry = importlib.import_module(f"{PACKAGE}.__main__").main
    except (ImportError, AttributeError) as error:
        message = f"the benchmarks cannot be run: {error}"
        raise Refused(message) from error
    raise typer.Exit(int(entry(context.args) or 0))
