"""Search mappings with ZigZag, in a process of the environment that has it: layers as JSON in, mappings as JSON out.

A layer has the extents of ZigZag's loops, and its strides and dilations. A result has ZigZag's own energy in pJ and
cycles, the seconds of processor time of the search, and the loops of each operand by memory, the innermost first.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
EQUATION = "O[b][g][k][oy][ox]+=W[g][k][c][fy][fx]*I[b][g][c][iy][ix]"
OPERANDS = {"W": "weight", "I": "input", "O": "output"}


def workload(layer: dict[str, Any]) -> list[dict[str, Any]]:
    (stride_y, stride_x), (dilation_y, dilation_x) = layer["strides"], layer["dilations"]
    return [{
        "id": 0,
        "name": "layer",
        "operator_type": "Conv",
        "equation": EQUATION,
        "dimension_relations": [f"ix={stride_x}*ox+{dilation_x}*fx", f"iy={stride_y}*oy+{dilation_y}*fy"],
        "loop_dims": [*layer["extents"]],
        "loop_sizes": [*layer["extents"].values()],
        "operand_precision": {"O": 32, "O_final": 8, "W": 8, "I": 8},
        "operand_source": {"I": 0, "W": 0},
    }]  # fmt: skip


def loops(levels: Any) -> dict[str, list[list[tuple[str, float]]]]:
    return {OPERANDS[str(operand)]: [[(str(loop), float(factor)) for loop, factor in level] for level in of_operand]
            for operand, of_operand in levels.items()}  # fmt: skip


def searched(layer: dict[str, Any], folder: Path) -> dict[str, Any]:
    import yaml
    from zigzag.api import get_hardware_performance_zigzag

    (folder / "layer.yaml").write_text(yaml.safe_dump(workload(layer), sort_keys=False), encoding="utf-8")
    start = time.process_time()
    energy_pj, cycles, evaluations = get_hardware_performance_zigzag(
        str(folder / "layer.yaml"),
        str(HERE / "zigzag_gemmini.yaml"),
        str(HERE / "zigzag_mapping.yaml"),
        opt="EDP",
        dump_folder=str(folder / "out"),
        pickle_filename=str(folder / "out" / "layers.pickle"),
        loma_show_progress_bar=False,
    )[:3]
    seconds = time.process_time() - start
    best = evaluations[0][1][0][0]
    return {
        "energy_pj": float(energy_pj),
        "cycles": float(cycles),
        "seconds": seconds,
        "temporal": loops(best.temporal_mapping.mapping_dic_origin),
        "spatial": loops(best.mapping.spatial_mapping.mapping_dict_origin),
    }


def main() -> None:
    logging.disable(logging.CRITICAL)
    layers = json.load(sys.stdin)
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(sys.stderr):
        results = [searched(layer, Path(folder)) for layer in layers]
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
