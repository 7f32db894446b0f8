"""Reader of a profile of Qualcomm AI Hub: what ``download_profile`` of its client writes as JSON.

``execution_detail`` has a layer per item: ``name``, ``type``, ``compute_unit`` (NPU, GPU or CPU), ``execution_time`` in
µs, and ``execution_cycles`` of those on the NPU. ``execution_summary`` has the time of each run
(``all_inference_times``) and the one that the service states (``estimated_inference_time``), in µs. The form is that of
the client and of its tests (package qai-hub, client.py). Older profiles have no times of layers, and are refused.

The service compiles the model first. So a layer has the name of a node or of its tensor as QNN's converter or that of
TensorFlow Lite writes it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path

from common.foreign_traces.layers import Layer, LayerProfile, uniquely_named
from common.foreign_traces.readers.qnn import readings
from common.foreign_traces.readers.tflite import tensors_of
from common.messages.errors import PipelineError
from common.messages.names import quoted
from common.npu.source_file import read_json

WHAT = "a profile of Qualcomm AI Hub as JSON"
MOST_BYTES = 100_000_000
LONGEST_US = 1e12  # no layer of a run takes longer
LAYERS, SUMMARY = "execution_detail", "execution_summary"
DIVIDED = "layers have no times: the time of the run is divided by their cycles, so a layer's time is an allocation"


def read_ai_hub_profile(path: Path) -> LayerProfile:
    """Read a profile; refuse a file that cannot be read, is of another kind, or has no time of a layer."""
    content = read_json(path, MOST_BYTES, WHAT)
    items, summary = content.get(LAYERS), content.get(SUMMARY)
    if not isinstance(items, list) or not items or not isinstance(summary, dict):
        raise PipelineError(path, f"has no {LAYERS} and {SUMMARY}", f"give {WHAT}")
    entries = [item for item in items if isinstance(item, dict) and isinstance(item.get("name"), str)]
    if len(entries) < len(items):
        raise PipelineError(path, "has a layer without a name", f"give {WHAT}")
    times_us, notes = _times_us(path, entries, summary)
    layers = uniquely_named(_layer(entry, time_us) for entry, time_us in zip(entries, times_us, strict=True))
    runs = summary.get("all_inference_times")
    run_us = tuple(_time(path, SUMMARY, run) for run in runs) if isinstance(runs, list) else ()
    starts_us = tuple(accumulate(run_us[:-1], initial=0.0)) if run_us else ()
    return LayerProfile(
        *("Qualcomm AI Hub", "qai_hub", layers, len(run_us) or None),
        run_start_us=starts_us,
        run_us=run_us,
        is_of_device=True,
        notes=tuple(notes),
    )


def _times_us(
    path: Path, entries: Sequence[Mapping[str, object]], summary: Mapping[str, object]
) -> tuple[list[float], list[str]]:
    """Return the time of each layer, and what is to be said of them; cycles divide the run where there are no times."""
    times_us = [_time(path, entry["name"], entry.get("execution_time") or 0) for entry in entries]
    if any(times_us):
        untimed = sum(entry.get("execution_time") is None for entry in entries)
        lacking = [f"{untimed} of {len(entries)} layers have no time, and count as 0"] if untimed else []
        return times_us, [*_units(entries, times_us), *lacking]
    cycles = [_time(path, entry["name"], entry.get("execution_cycles") or 0) for entry in entries]
    run_us = _time(path, SUMMARY, summary.get("estimated_inference_time") or 0)
    if not any(cycles) or not run_us:
        raise PipelineError(path, "holds no time of a layer", "profile again with a client of today")
    uncounted = [_unit(entry) for entry, value in zip(entries, cycles, strict=True) if not value]
    if others := sorted({unit for unit in uncounted if unit != "NPU"}):
        problem = f"has layers on {' and '.join(others)} without times or cycles"
        raise PipelineError(path, problem, "profile again with a client of today")
    return [run_us * value / math.fsum(cycles) for value in cycles], [DIVIDED]


def _time(path: Path, of: object, value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= LONGEST_US:
        return float(value)
    raise PipelineError(path, f"{quoted(of)} has {quoted(value)} as a time", "download it again")


def _layer(entry: Mapping[str, object], time_us: float) -> Layer:
    name = str(entry["name"])
    sources = tuple((*readings(tensor), f"{tensor}:0") for tensor in tensors_of(name))
    return Layer(name, str(entry.get("type") or "Layer"), sources, mean_us=time_us)


def _units(entries: Sequence[Mapping[str, object]], times_us: Sequence[float]) -> list[str]:
    """Return where the layers ran."""
    units: dict[str, float] = {}
    for entry, time_us in zip(entries, times_us, strict=True):
        units[_unit(entry)] = units.get(_unit(entry), 0.0) + time_us
    whole_us = math.fsum(units.values())
    shares = sorted(units.items(), key=lambda item: -item[1])
    return [f"time by compute unit: {', '.join(f'{unit} {time_us / whole_us:.0%}' for unit, time_us in shares)}"]


def _unit(entry: Mapping[str, object]) -> str:
    return str(entry.get("compute_unit") or "").upper() or "an unknown unit"
