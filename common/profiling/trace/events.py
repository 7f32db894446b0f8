"""Reader of a trace file, event by event: ONNX Runtime writes a JSON list with one event per line.

The file is written when the session ends. If the disk gets full or the process is killed meanwhile, the list has no
end, but the events before that are whole.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from common.files.json_stream import MOST_VALUE, CutShortError, is_text, list_items
from common.messages.errors import PipelineError
from common.messages.names import quoted
from common.profiling.trace.nesting import Event, is_node_event
from common.profiling.trace.usage import LOOP_PHASES

TAIL_BYTES = 4096  # at the end of a trace the runtime says whether it cut the trace
TRUNCATED = "profile_truncated"
RUN = "model_run"
TRACE = "a trace of ONNX Runtime (a list of events)"
RUNTIME_CUT = "the runtime cut the trace at 1,000,000 events"
Item = TypeVar("Item")


class TraceCutError(Exception):
    """The trace ends early; the message says how."""


def read_events(path: Path) -> Iterator[Event]:
    """Yield the events of a trace, in the order in which they ended.

    Raises:
        TraceCutError: after the last whole event, where the file ends early or the runtime dropped events.
        PipelineError: the file holds JSON, but no list of events.
        OSError: the file cannot be read.
    """
    if not _has_lines(path):
        yield from _whole(path)
        return
    with path.open("rb") as file:
        file.readline()
        for number, line in enumerate(iter(partial(file.readline, MOST_VALUE), b""), start=2):
            if line.strip() == b"]":
                return
            try:
                event = _parsed(line)
            except ValueError as error:
                raise TraceCutError(f"line {number} is no whole event") from error
            yield _sound(path, event)
    raise TraceCutError("it has no end")


def _has_lines(path: Path) -> bool:
    """Whether the file has one event per line, as the runtime writes it; other programs may reformat it."""
    with path.open("rb") as file:
        if file.readline(MOST_VALUE).strip() != b"[":
            return False
        try:
            return isinstance(_parsed(file.readline(MOST_VALUE)), dict)
        except ValueError:
            return False


def _parsed(line: bytes) -> Any:
    text = line.strip().removesuffix(b",").decode()
    event = json.loads(text)
    if not is_text(text, event):
        raise ValueError("half of a surrogate pair")
    return event


def _whole(path: Path) -> Iterator[Event]:
    try:
        for event in list_items(path, "traceEvents", TRACE):
            yield _sound(path, event)
    except CutShortError as error:
        raise TraceCutError(str(error)) from error


def _sound(path: Path, event: Any) -> Event:
    """Check that the event of a node or a run has its times, and that of a node is as the runtime writes it."""
    if not isinstance(event, dict):
        raise PipelineError(path, "is no trace of ONNX Runtime (a list of events)")
    if event.get("name") == TRUNCATED:
        raise TraceCutError(RUNTIME_CUT)
    is_node = is_node_event(event)
    if is_node or event.get("name") == RUN:
        has_times = all(map(is_number, (event.get("ts"), event.get("dur"))))
        if not has_times or (is_node and not ("tid" in event and isinstance(event.get("args"), dict))):
            lacking = f"the event {quoted(event.get('name'))} lacks its time, thread or arguments"
            raise PipelineError(path, f"is no trace of ONNX Runtime ({lacking})")
        if is_node and (part := damaged_part(event)):
            problem = f"is damaged: the event {quoted(event['name'])} has odd {part}"
            raise PipelineError(path, problem, "record it again")
    return event


def was_cut_by_runtime(path: Path) -> bool:
    """Whether the runtime cut the trace because it had too many events; only the end of the file is read."""
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
        return f'"{TRUNCATED}"'.encode() in file.read()


def count_runs(path: Path) -> int:
    """Count the complete runs of a trace without parsing its events."""
    with path.open("rb") as file:
        return sum(f'"{RUN}"'.encode() in line for line in file)


def events_by_run(path: Path, runs: Collection[int]) -> Iterator[tuple[int, list[Event]]]:
    """Yield the position of some complete runs, and the events before the ``model_run`` that closes each.

    With one event per line, other runs are not parsed.
    """
    if _has_lines(path):
        with path.open("rb") as file:
            next(file)
            yield from _by_run(file, runs, lambda line: f'"{RUN}"'.encode() in line, _parsed)
    else:
        yield from _by_run(_whole(path), runs, lambda event: event.get("name") == RUN, lambda event: event)


def _by_run(
    items: Iterable[Item], runs: Collection[int], closes: Callable[[Item], bool], event_of: Callable[[Item], Event]
) -> Iterator[tuple[int, list[Event]]]:
    held: list[Item] = []
    index = 0
    for item in items:
        if not closes(item):
            if index in runs:
                held.append(item)
            continue
        if index in runs:
            yield index, [event_of(one) for one in held]
        held, index = [], index + 1


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
