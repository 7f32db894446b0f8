"""Search mappings of matrix products with AccelForge, in a process of the environment that has it: JSON in, JSON out.

A product has its rows, its inner extent and its columns. A result has AccelForge's own energy in pJ and cycles, and the
seconds of processor time of the search.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


def searched(rows: int, inner: int, columns: int) -> dict[str, Any]:
    import accelforge
    from accelforge.frontend.mapper.metrics import Metrics

    sizes = {"ROWS": rows, "INNER": inner, "COLUMNS": columns}
    files = [str(HERE / name) for name in ("accelforge_gemmini.yaml", "accelforge_product.yaml")]
    spec = accelforge.Spec.from_yaml(*files, jinja_parse_data=sizes)
    spec.mapper.metrics = Metrics.ENERGY | Metrics.LATENCY
    start = time.process_time()
    found = spec.map_workload_to_arch(print_progress=False)
    seconds = time.process_time() - start
    energies, cycles = found.energy(), found.latency()
    pairs = zip(energies, cycles, strict=True) if isinstance(energies, list) else [(energies, cycles)]
    energy_pj, delay = min(pairs, key=lambda pair: pair[0] * pair[1])
    return {"energy_pj": float(energy_pj), "cycles": float(delay), "seconds": seconds}


def main() -> None:
    products = json.load(sys.stdin)
    with contextlib.redirect_stdout(sys.stderr):
        results = [searched(*product) for product in products]
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
