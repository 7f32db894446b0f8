"""Write configs/processors.csv, the thermal design power of processors, from CodeCarbon's table.

    python -m pip download --no-deps codecarbon==3.3.2 && unzip codecarbon-3.3.2-*.whl
    python -m benchmarks.measuring.processor_table codecarbon/data/hardware/cpu_power.csv "codecarbon 3.3.2" 2026-10

CodeCarbon (MIT licence; Mila, BCG Gamma, CometML, Haverford College 2019; Code Carbon NGO 2023) collects the figures of
vendors. The package itself would bring fifteen others and a client for telemetry, for one table.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from common.power.processors import COLUMNS, PROCESSORS, plain_name

KINDS = ("intel xeon", "intel core", "amd epyc", "amd ryzen")  # what runs ONNX Runtime today
# Hardware threads of a package, which its name does not say: Boavizta/Energizta, data/cpu.csv.
THREADS = {
    "intel xeon platinum 8124m": 36,
    "intel xeon platinum 8151": 24,
    "intel xeon platinum 8175m": 48,
    "intel xeon platinum 8259cl": 48,
    "intel xeon platinum 8275cl": 48,
    "intel xeon e5-2686 v4": 36,
}


def table_rows(lines: Sequence[dict[str, str]], source: str, date: str) -> Iterator[tuple[object, ...]]:
    """Yield the rows of the table, one for each name that is still distinct without marks and clocks."""
    watts: dict[str, float] = {}
    for line in lines:
        if (name := plain_name(line["Name"])).startswith(KINDS):
            watts.setdefault(name, float(line["TDP"]))
    for name, tdp_w in sorted(watts.items()):
        yield name, f"{tdp_w:g}", THREADS.get(name, ""), source, date


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="processor_table", description=__doc__)
    parser.add_argument("table", type=Path, help="CodeCarbon's cpu_power.csv")
    parser.add_argument("source", help="name and version of the package")
    parser.add_argument("date", help="when that version was published")
    options = parser.parse_args(argv)
    with options.table.open(encoding="utf-8", newline="") as file:
        rows = [*table_rows([*csv.DictReader(file)], options.source, options.date)]
    with PROCESSORS.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(rows)
    print(f"wrote {PROCESSORS} ({len(rows)} rows)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
