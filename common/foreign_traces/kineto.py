"""Reader of PyTorch's profile (Kineto): the operators that a program called, as layers of the model exported from it.

``export_chrome_trace`` writes ``{"schemaVersion", …, "traceEvents": [...]}``. An event of category ``cpu_op`` is an
operator; those it calls run within its time. The outermost ones of the thread that worked most are the layers. With
kernels on an accelerator (``kernel``, ``gpu_memcpy``, ``gpu_memset``), a layer's time is that of the kernels which it
or what it calls has launched: they have the ``External id`` of the operator. Otherwise it is the operator's own.

A run is a ``ProfilerStep#n`` of a schedule; without steps, one repetition of the sequence of operators. Blocks of a
model repeat, too: how many repetitions make a run, only the model says.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path

import numpy as np
import numpy.typing as npt

from common.errors import PipelineError
from common.foreign_traces.layers import exported_items
from common.names import quoted

WHAT = "a profile that PyTorch exported as a Chrome trace"
OPERATOR, STEP = "cpu_op", "ProfilerStep#"
KERNELS = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
LARGEST_US = 1e18
Shapes = tuple[tuple[int, ...], ...]
Times = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class TorchCall:
    """An operator of a run: its name without namespace, and the shapes of its operands where they were recorded."""

    operator: str
    shapes: Shapes


@dataclass(frozen=True, slots=True)
class TorchCalls:
    """The calls of one run, in order, and of all runs the times.

    Attributes:
        times_us: a row per run.
        has_steps: whether the profile says where runs begin; otherwise they are the shortest repetition of calls.
    """

    calls: tuple[TorchCall, ...]
    times_us: tuple[tuple[float, ...], ...]
    start_us: tuple[float, ...]
    run_us: tuple[float, ...]
    has_kernels: bool
    left_out: int
    has_steps: bool = False

    def merged(self, count: int) -> TorchCalls:
        firsts = range(0, len(self.times_us), count)
        last = [first + count - 1 for first in firsts]
        ends = [self.start_us[place] + self.run_us[place] for place in last]
        starts = tuple(self.start_us[first] for first in firsts)
        return replace(
            self,
            calls=self.calls * count,
            times_us=tuple(tuple(chain(*self.times_us[first : first + count])) for first in firsts),
            start_us=starts,
            run_us=tuple(end - start for start, end in zip(starts, ends, strict=True)),
        )


@dataclass(slots=True)
class _Events:
    """Figures of each operator, in arrays: a file may hold millions."""

    call_indices: dict[TorchCall, int] = field(default_factory=dict)
    start_us: array[float] = field(default_factory=lambda: array("d"))
    time_us: array[float] = field(default_factory=lambda: array("d"))
    thread: array[int] = field(default_factory=lambda: array("q"))
    call_index: array[int] = field(default_factory=lambda: array("q"))
    number: array[int] = field(default_factory=lambda: array("q"))  # External id, or -1
    threads: dict[tuple[str, str], int] = field(default_factory=dict)
    kernel_us: defaultdict[int, float] = field(default_factory=lambda: defaultdict(float))
    steps: list[tuple[float, float]] = field(default_factory=list)


def read_calls(path: Path) -> TorchCalls:
    """Read a profile, which is refused where it is cut short or holds no operator."""
    events = _Events()
    for event in exported_items(path, "traceEvents", WHAT):
        _enter(path, events, event)
    if not events.call_indices:
        raise PipelineError(path, "holds no operator", "record it with ProfilerActivity.CPU")
    return _calls(path, events)


def _enter(path: Path, events: _Events, event: object) -> None:
    if not isinstance(event, dict):
        raise PipelineError(path, f"has an event that is no object: {quoted(event)}", f"give {WHAT}")
    category, name, args = event.get("cat"), event.get("name"), event.get("args")
    if event.get("ph") != "X" or not isinstance(name, str):
        return
    args = args if isinstance(args, dict) else {}
    if category == OPERATOR:
        start_us, time_us = _times(path, event)
        call = TorchCall(name.rpartition("::")[2], _shapes(args.get("Input Dims")))
        events.start_us.append(start_us)
        events.time_us.append(time_us)
        events.call_index.append(events.call_indices.setdefault(call, len(events.call_indices)))
        thread = (str(event.get("pid")), str(event.get("tid")))
        events.thread.append(events.threads.setdefault(thread, len(events.threads)))
        events.number.append(_number(args))
    elif category in KERNELS:
        events.kernel_us[_number(args)] += _times(path, event)[1]
    elif category == "user_annotation" and name.startswith(STEP):
        start_us, time_us = _times(path, event)
        events.steps.append((start_us, start_us + time_us))


def _times(path: Path, event: Mapping[str, object]) -> tuple[float, float]:
    start_us, time_us = (_time(path, event, key) for key in ("ts", "dur"))
    if time_us < 0:
        raise PipelineError(path, f"the event {quoted(event.get('name'))} lasts {quoted(time_us)}", "record it again")
    return start_us, time_us


def _time(path: Path, event: Mapping[str, object], key: str) -> float:
    value = event.get(key)
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST_US:
        return float(value)
    raise PipelineError(path, f"the event {quoted(event.get('name'))} has no time: {quoted(value)}", "record it again")


def _number(args: Mapping[str, object]) -> int:
    value = args.get("External id", args.get("external id", -1))
    return value if isinstance(value, int) and 0 <= value < 2**62 else -1


def _shapes(dims: object) -> Shapes:
    """Return the shapes of the operands; a scalar or what is no tensor has none."""
    if not isinstance(dims, list):
        return ()
    return tuple(
        tuple(shape) if isinstance(shape, list) and all(type(extent) is int for extent in shape) else ()
        for shape in dims
    )


def _calls(path: Path, events: _Events) -> TorchCalls:
    start_us, time_us = np.array(events.start_us), np.array(events.time_us)
    thread = np.array(events.thread)
    outer, owner = _outermost(start_us, time_us, thread)
    worked = np.bincount(thread[outer], weights=time_us[outer])
    chosen = [int(index) for index in outer if thread[index] == int(worked.argmax())]
    times = _kernel_times(events, owner) if events.kernel_us else time_us
    runs = _runs(path, chosen, start_us, np.array(events.call_index), sorted(events.steps))
    calls = [*events.call_indices]
    sequences = Counter(tuple(int(events.call_index[index]) for index in run) for run in runs)
    common = sequences.most_common(1)[0][0]
    kept = [run for run in runs if tuple(int(events.call_index[index]) for index in run) == common]
    starts = [float(start_us[run[0]]) for run in kept]
    ends = [float(start_us[run[-1]] + time_us[run[-1]]) for run in kept]
    return TorchCalls(
        tuple(calls[index] for index in common),
        tuple(tuple(float(times[index]) for index in run) for run in kept),
        tuple(starts),
        tuple(end - start for start, end in zip(starts, ends, strict=True)),
        bool(events.kernel_us),
        len(runs) - len(kept),
        bool(events.steps),
    )


def _outermost(start_us: Times, time_us: Times, thread: Indices) -> tuple[list[int], Indices]:
    """Return the operators that run in no other one of their thread, in order, and for each operator its outermost."""
    owner = np.arange(len(start_us))
    outer: list[int] = []
    current, end_us = -1, -math.inf
    for index in np.lexsort((-time_us, start_us, thread)):
        is_new_thread = current >= 0 and thread[index] != thread[current]
        if current < 0 or is_new_thread or start_us[index] >= end_us:
            current, end_us = int(index), start_us[index] + time_us[index]
            outer.append(current)
        owner[index] = current
    return outer, owner


def _kernel_times(events: _Events, owner: Indices) -> Times:
    times = np.zeros(len(owner))
    for index, number in enumerate(events.number):
        if number >= 0 and number in events.kernel_us:
            times[owner[index]] += events.kernel_us[number]
    return times


def _runs(
    path: Path, chosen: Sequence[int], start_us: Times, call_index: Indices, steps: Sequence[tuple[float, float]]
) -> list[list[int]]:
    if steps:
        runs = [[index for index in chosen if begin <= start_us[index] < end] for begin, end in steps]
        if not any(runs):
            raise PipelineError(path, "holds no operator within its steps", "record it again")
        return [run for run in runs if run]
    length = _period([int(call_index[index]) for index in chosen])
    return [[*chosen[begin : begin + length]] for begin in range(0, len(chosen), length)]


def _period(sequence: Sequence[int]) -> int:
    """Return the length of the shortest sequence whose repetition this is (Knuth, Morris, Pratt 1977)."""
    border = [0] * len(sequence)
    for place in range(1, len(sequence)):
        length = border[place - 1]
        while length and sequence[place] != sequence[length]:
            length = border[length - 1]
        border[place] = length + (sequence[place] == sequence[length])
    period = len(sequence) - border[-1]
    return period if len(sequence) % period == 0 else len(sequence)
