"""All files of a hand-off, by their path in its folder."""

from __future__ import annotations

import json
from typing import Any

from common.fpga.hand_off.calls import calls_in_order
from common.fpga.hand_off.connectivity import connectivity
from common.fpga.hand_off.hls import hls_files
from common.fpga.hand_off.readme import readme
from common.fpga.hand_off.schedule import schedule
from common.fpga.hand_off.specification import specification
from common.fpga.hand_off.units import by_kernel, compute_units
from common.fpga.hand_off.verilog import verilog_files
from common.fpga.planning.plan import Plan


def hand_off_files(plan: Plan, model: str) -> dict[str, str]:
    """Return the text of every file.

    Args:
        plan: the plan.
        model: name of the model.
    """
    board, precision, calls = plan.request.board, plan.request.precision, calls_in_order(plan)
    units = compute_units(plan.kernels, board)
    of_kernel = by_kernel(units)
    files = {
        f"{kernel.name}.json": _json(
            specification(
                kernel,
                board.name,
                precision,
                of_kernel[kernel.name],
                [call for call in calls if call.kernel == kernel.name],
            )
        )
        for kernel in plan.kernels
    }
    files["connectivity.cfg"] = connectivity(units)
    files["schedule.json"] = _json(schedule(plan, calls))
    files |= verilog_files(units) | hls_files(units)
    files["README.md"] = readme(plan, model, units, calls, sorted(files))
    return files


def _json(content: dict[str, Any]) -> str:
    return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
