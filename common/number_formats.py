"""Number formats: their names and their bits."""

from __future__ import annotations

PRECISION_BITS = {"fp64": 64, "fp32": 32, "bf16": 16, "int16": 16, "int8": 8, "int4": 4}
