"""The cost of mapped layers on an accelerator.

    python -m common.design_space estimate     cycles, energy and DRAM traffic of every row of a table of mapped layers

For example:

    python -m common.design_space estimate --hardware gemmini --rows rows.csv --output estimates.csv

``08_design_space.py`` searches the mappings of a model.
"""

from __future__ import annotations

if __name__ == "__main__":
    from common.process import startup

    startup.begin()  # first of all: the imports below take most of a second

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from common import cli
from common.design_space.accelerator.hardware_files import load_hardware
from common.design_space.mapping.dosa_rows import estimate as estimated
from common.design_space.mapping.dosa_rows import read_rows
from common.messages.errors import CommandLineError, PipelineError
from common.messages.names import shown

PROGRAM = "python -m common.design_space"
FOLDER = cli.ROOT / "configs" / "hardware"
ESTIMATE_HELP = """What mapped layers cost on an accelerator: cycles, energy and DRAM traffic of every row of a table.

The table has the columns of DOSA's published rows: prob.R … prob.N, prob.Wstride, prob.Hstride, mapping.mapping, and
(where the sizes differ from row to row) arch.pe, arch.meshX, arch.mem1_entries, arch.mem2_entries. It may be compressed
(rows.csv.gz). The output has one row for each, in the same order: cycles, energy_uj, and the words that each operand
reads and writes at DRAM.
"""


def estimate(argv: Sequence[str]) -> int:
    """Write the estimates of a table of mapped layers."""
    parser = cli.Parser(f"{PROGRAM} estimate", ESTIMATE_HELP)
    parser.setting(
        "--hardware", default="gemmini", metavar="NAME", help="a file of configs/hardware, or the path of one"
    )
    parser.setting("--rows", type=cli.path, metavar="FILE", help="table of mapped layers")
    parser.setting("--output", type=cli.path, metavar="FILE", help="table to write")
    if "--describe" in argv:
        raise CommandLineError("--describe", "an estimate is no table of the pipeline", f"see {PROGRAM} --help")
    with cli.parsed(parser, argv) as settings:
        for name in ("rows", "output"):
            if settings.values[name] is None:
                raise CommandLineError(f"--{name}", "is missing", "give a file")
        hardware = load_hardware(settings.hardware, FOLDER)
        table = read_table(settings.rows)
        try:
            estimates = estimated(read_rows(table, hardware), hardware)
        except PipelineError as error:
            raise PipelineError(settings.rows, str(error)) from error
        write_table(estimates, settings.output)
        cli.say(settings, f"wrote {shown(settings.output)}")
    return 0


def read_table(path: Path) -> pd.DataFrame:
    """Read a table of mapped layers; PipelineError if it is not there, or is no table."""
    try:
        table = pd.read_csv(path, dtype={"mapping.mapping": str}, keep_default_na=False, low_memory=False)
    except OSError as error:
        raise PipelineError(path, f"cannot be read ({error.strerror or error})") from error
    except (ValueError, EOFError) as error:  # the parser's, a decoder's or a decompressor's
        raise PipelineError(path, f"is not a table ({str(error).splitlines()[0]})") from error
    if table.empty:
        raise PipelineError(path, "has no rows")
    return table


def write_table(table: pd.DataFrame, path: Path) -> None:
    """Write a table, all of it or nothing; PipelineError if it cannot be written."""
    staged = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        table.to_csv(staged, index=False)
        staged.replace(path)
    except OSError as error:
        staged.unlink(missing_ok=True)
        raise PipelineError(path, f"cannot be written ({error.strerror or error})") from error


COMMANDS = {"estimate": estimate}


def main(argv: Sequence[str] | None = None) -> int:
    return cli.run_command(COMMANDS, __doc__ or "", argv)


if __name__ == "__main__":
    sys.argv[0] = PROGRAM  # so that errors name the program instead of this file
    cli.run(main)
