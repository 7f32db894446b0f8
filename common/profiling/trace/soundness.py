"""What the runtime writes into the event of a node; a damaged trace may hold anything in its place."""

from __future__ import annotations

import re
from collections.abc import Mapping

from common.profiling.trace.usage import LOOP_PHASES

LARGEST = 1e18  # no time in µs and no count is larger
_WHOLE = re.compile(r"-?\d{1,18}")


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and abs(value) <= LARGEST


def damaged_part(event: Mapping[str, object]) -> str:
    """Return which part of a node's event the runtime did not write so; an empty text for a sound event."""
    args = event["args"]
    if not isinstance(args, dict):
        return "arguments"
    sound = {
        "thread": isinstance(event.get("tid"), int | str),
        "figures of its thread pool": _is_pool(args.get("thread_scheduling_stats")),
        "figures of its memory": all(_is_whole(value) for key, value in args.items() if key.startswith("mem_")),
        "shapes": all(_are_shapes(args.get(key)) for key in ("input_type_shape", "output_type_shape")),
    }
    return next((part for part, is_sound in sound.items() if not is_sound), "")


def _is_whole(value: object) -> bool:
    return isinstance(value, int | str) and _WHOLE.fullmatch(str(value)[:20]) is not None


def _is_pool(pool: object) -> bool:
    if not isinstance(pool, dict):
        return True
    main, others = pool.get("main_thread") or {}, pool.get("sub_threads") or {}
    if not isinstance(main, dict) or not isinstance(others, dict):
        return False
    are_counted = all(isinstance(tasks, dict) and _is_whole(tasks.get("num_run", 0)) for tasks in others.values())
    return are_counted and all(is_number(main.get(phase, 0)) for phase in LOOP_PHASES)


def _are_shapes(described: object) -> bool:
    """Whether shapes are written as ``[{"float": [1, 3]}]``."""
    if described is None:
        return True
    return isinstance(described, list) and all(
        isinstance(entry, dict) and all(map(_is_shape, entry.values())) for entry in described
    )


def _is_shape(shape: object) -> bool:
    return isinstance(shape, list) and all(isinstance(extent, int) and abs(extent) < LARGEST for extent in shape)
