"""The events of PyTorch's profile: operators, steps, kernels and the calls that launched them.

``export_chrome_trace`` writes ``{"schemaVersion", …, "traceEvents": [...]}``; the profiler without Kineto, up to
PyTorch 1.9, writes the list alone. An event of category ``cpu_op`` is an operator (``Operator`` up to 1.9). A step of a
schedule has a category of its own since 1.12.

A program that trains has more than the forward pass. Its gradients are computed within events whose names begin
with ``autograd::`` or end with ``Backward``. The calls of an optimizer are within an event ``Optimizer.step#…``.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from common.foreign_traces.layers import exported_items
from common.messages.errors import PipelineError
from common.messages.names import quoted

WHAT = "a profile that PyTorch exported as a Chrome trace"
STEP, OPTIMIZER, NAMESPACE = "ProfilerStep#", "Optimizer.", "::"
_BACKWARD = re.compile(r"(?:torch::)?autograd::|.*Backward\d*$", re.DOTALL)
LEGACY_PROCESS = "CPU functions"  # of the profiler without Kineto, whose events have no category
OPERATORS = frozenset({"cpu_op", "Operator"})
ANNOTATIONS = frozenset({*OPERATORS, "user_annotation"})  # categories of steps
KERNELS = frozenset({"kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset"})
LAUNCHES = ("_runtime", "_driver", "Runtime")  # how the category of a call that launches kernels ends
LARGEST_US = 1e18
Shapes = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class TorchCall:
    """An operator of a run: its name without namespace, and the shapes of its operands where they were recorded."""

    operator: str
    shapes: Shapes


@dataclass(slots=True)
class TorchOperators:
    """Figures of each operator, in arrays: a file may hold millions."""

    call_indices: dict[TorchCall, int] = field(default_factory=dict)
    start_us: array[float] = field(default_factory=lambda: array("d"))
    time_us: array[float] = field(default_factory=lambda: array("d"))
    thread: array[int] = field(default_factory=lambda: array("q"))
    call_index: array[int] = field(default_factory=lambda: array("q"))
    number: array[int] = field(default_factory=lambda: array("q"))  # its External id, or -1
    is_named: array[int] = field(default_factory=lambda: array("b"))  # whether its name has a namespace
    is_backward: array[int] = field(default_factory=lambda: array("b"))


@dataclass(slots=True)
class TorchEvents:
    """The events of a file, by what they are."""

    operators: TorchOperators = field(default_factory=TorchOperators)
    steps: list[tuple[float, float, int]] = field(default_factory=list)  # start, end, thread
    optimizers: list[tuple[float, float, int]] = field(default_factory=list)  # likewise, of calls of optimizers
    kernels: list[tuple[int, int, float]] = field(default_factory=list)  # External id, correlation, µs
    # External id, start and thread of the call that launched a kernel, by correlation
    launches: dict[int, tuple[int, float, int]] = field(default_factory=dict)
    threads: dict[tuple[str, str], int] = field(default_factory=dict)

    def thread(self, event: Mapping[str, object]) -> int:
        return self.threads.setdefault((str(event.get("pid")), str(event.get("tid"))), len(self.threads))


def read_events(path: Path) -> TorchEvents:
    events = TorchEvents()
    for event in exported_items(path, "traceEvents", WHAT):
        if not isinstance(event, dict):
            raise PipelineError(path, f"has an event that is no object: {quoted(event)}", f"give {WHAT}")
        if event.get("ph") == "X" and isinstance(name := event.get("name"), str):
            _enter(path, events, event, name)
    return events


def _enter(path: Path, events: TorchEvents, event: Mapping[str, object], name: str) -> None:
    given, category = event.get("args"), _category(event)
    args = given if isinstance(given, dict) else {}
    if name.startswith(STEP):
        if category in ANNOTATIONS:
            start_us, time_us = _times(path, event)
            events.steps.append((start_us, start_us + time_us, events.thread(event)))
    elif name.startswith(OPTIMIZER) and category in ANNOTATIONS:
        start_us, time_us = _times(path, event)
        events.optimizers.append((start_us, start_us + time_us, events.thread(event)))
    elif category in OPERATORS:
        _enter_operator(events.operators, name, args, _times(path, event), events.thread(event))
    elif category in KERNELS:
        events.kernels.append((_external_id(args), _whole(args.get("correlation")), _times(path, event)[1]))
    elif category.endswith(LAUNCHES) and (correlation := _whole(args.get("correlation"))) >= 0:
        events.launches[correlation] = (_external_id(args), _times(path, event)[0], events.thread(event))


def _category(event: Mapping[str, object]) -> str:
    if event.get("pid") == LEGACY_PROCESS:
        return "Operator"
    category = event.get("cat")
    return category if isinstance(category, str) else ""


def _enter_operator(
    operators: TorchOperators, name: str, args: Mapping[str, object], times: tuple[float, float], thread: int
) -> None:
    call = TorchCall(name.rpartition(NAMESPACE)[2], _shapes(args.get("Input Dims", args.get("Input dims"))))
    operators.call_index.append(operators.call_indices.setdefault(call, len(operators.call_indices)))
    operators.start_us.append(times[0])
    operators.time_us.append(times[1])
    operators.thread.append(thread)
    operators.number.append(_external_id(args))
    operators.is_named.append(NAMESPACE in name)
    operators.is_backward.append(_BACKWARD.match(name) is not None)


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


def _external_id(args: Mapping[str, object]) -> int:
    return _whole(args.get("External id", args.get("external id")))


def _whole(value: object) -> int:
    """Return a number that identifies something; -1 for anything else."""
    return value if isinstance(value, int) and 0 <= value < 2**62 else -1


def _shapes(dims: object) -> Shapes:
    """Return the shapes of the operands, those of a list of tensors one by one; what is no tensor has none."""
    if not isinstance(dims, list):
        return ()
    shapes = chain.from_iterable(shape if _is_list_of_tensors(shape) else [shape] for shape in dims)
    return tuple(
        tuple(shape) if isinstance(shape, list) and all(type(extent) is int for extent in shape) else ()
        for shape in shapes
    )


def _is_list_of_tensors(shape: object) -> bool:
    return isinstance(shape, list) and bool(shape) and all(isinstance(part, list) for part in shape)
