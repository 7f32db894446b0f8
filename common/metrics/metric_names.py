"""The one dictionary from names of columns and figures to names of metrics, in base units.

A column's name ends in its unit. Prometheus and OpenMetrics ask for base units, spelled out at the end of a metric's
name. So the name of a metric follows from the name of the column. docs/METRICS.md has the result.
"""

from __future__ import annotations

PREFIX = "onnx_"
# Unit at the end of a name, what it is called at the end of a metric's name, and how many of its units that is.
BASE_UNITS = {
    "_runs_per_s": ("_runs_per_second", 1.0),
    "_bytes_per_s": ("_bytes_per_second", 1.0),
    "flop_per_s_per_w": ("flop_per_joule", 1.0),
    "_flop_per_byte": ("_flop_per_byte", 1.0),
    "flop_per_s": ("flop_per_second", 1.0),
    "_per_s": ("_per_second", 1.0),
    "_us": ("_seconds", 1e-6),
    "_s": ("_seconds", 1.0),
    "_w": ("_watts", 1.0),
    "_uj": ("_joules", 1e-6),
    "_j": ("_joules", 1.0),
    "_c": ("_celsius", 1.0),
    "_mhz": ("_hertz", 1e6),
    "_share": ("_ratio", 1.0),
    "_fraction": ("_ratio", 1.0),
    "run_count": ("runs", 1.0),
    "client_count": ("clients", 1.0),
    "_count": ("", 1.0),
}


def metric_name(name: str) -> tuple[str, float]:
    """Return what a column or a figure is called as a metric, and the factor to the unit of that."""
    for unit, (called, factor) in BASE_UNITS.items():
        if name.endswith(unit):
            return f"{PREFIX}{name.removesuffix(unit)}{called}", factor
    return f"{PREFIX}{name}", 1.0
