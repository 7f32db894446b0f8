"""Reader of PyTorch's profile (Kineto): the operators that a program called, as layers of the model exported from it.

An operator runs what it calls within its own time. An event whose name has no namespace and that holds others is an
annotation of the program. The outermost operators of one thread are the layers: of the thread of the steps, else of the
one that worked most.

With kernels on an accelerator, a layer's time is that of the kernels that it launched, itself or by its calls. A kernel
has the ``External id`` of its operator, or the ``correlation`` of the call that launched it. Otherwise, a layer has the
time of the operator.

Of a program that trains, only the forward pass has layers: no model that is exported computes gradients.

A run is a ``ProfilerStep#n`` of a schedule; without steps, one repetition of the sequence of operators. Blocks of a
model repeat, too: how many repetitions make a run, only the model says.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

import numpy as np
import numpy.typing as npt

from common.foreign_traces.readers.kineto_events import TorchCall, TorchEvents, TorchOperators, read_events
from common.messages.errors import PipelineError

Times = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class TorchCalls:
    """The calls of one run, in order, and of all runs the times."""

    calls: tuple[TorchCall, ...]
    times_us: tuple[tuple[float, ...], ...]  # a row per run
    start_us: tuple[float, ...]
    run_us: tuple[float, ...]
    has_kernels: bool
    left_out: int
    # Whether the profile says where runs begin; otherwise they are the shortest repetition of calls
    has_steps: bool = False
    # Share of the time of all operators that is in gradients and optimizers, which are left out
    training_share: float = 0.0

    def merged(self, count: int) -> TorchCalls:
        """Return the calls in runs of so many of these, one after the other."""
        firsts, starts = range(0, len(self.times_us), count), self.start_us[::count]
        ends = [start + time for start, time in zip(self.start_us, self.run_us, strict=True)][count - 1 :: count]
        return replace(
            self,
            calls=self.calls * count,
            times_us=tuple(tuple(chain(*self.times_us[first : first + count])) for first in firsts),
            start_us=starts,
            run_us=tuple(end - start for start, end in zip(starts, ends, strict=True)),
        )


def read_calls(path: Path) -> TorchCalls:
    """Read a profile; refuse one that is cut short, holds no operator, or has only kernels of no operator."""
    events = read_events(path)
    operators = events.operators
    if not operators.call_indices:
        raise PipelineError(path, "holds no operator", "record it with ProfilerActivity.CPU")
    start_us, time_us, thread = map(np.array, (operators.start_us, operators.time_us, operators.thread))
    outer, owner = _outermost(operators)
    times = _kernel_times(events, outer, owner) if events.kernels else time_us
    forward = _forward(events, outer)
    if not forward:
        raise PipelineError(path, "holds no operator of a forward pass", "record what calls the model")
    worked_us = np.bincount(thread[forward], weights=time_us[forward])  # by each thread
    chosen_thread = events.steps[0][2] if events.steps else int(worked_us.argmax())
    chosen = [index for index in forward if thread[index] == chosen_thread]
    if not any(times[chosen] > 0):
        problem = "holds no operator whose kernels have a time" if events.kernels else "holds no operator with a time"
        raise PipelineError(path, problem, "record it again, with ProfilerActivity.CPU and that of the accelerator")
    runs = _runs(path, chosen, start_us, np.array(operators.call_index), sorted(events.steps))
    calls = [*operators.call_indices]
    sequences = [tuple(int(operators.call_index[index]) for index in run) for run in runs]
    common = Counter(sequences).most_common(1)[0][0]
    kept = [run for run, sequence in zip(runs, sequences, strict=True) if sequence == common]
    starts = [float(start_us[run[0]]) for run in kept]
    ends = [float(start_us[run[-1]] + time_us[run[-1]]) for run in kept]
    return TorchCalls(
        tuple(calls[index] for index in common),
        tuple(tuple(float(times[index]) for index in run) for run in kept),
        tuple(starts),
        tuple(end - start for start, end in zip(starts, ends, strict=True)),
        bool(events.kernels),
        len(runs) - len(kept),
        bool(events.steps),
        1 - float(times[forward].sum()) / (float(times[outer].sum()) or 1.0),
    )


def _forward(events: TorchEvents, outer: Sequence[int]) -> list[int]:
    """Return the outermost operators that neither compute gradients nor run within a call of an optimizer."""
    operators, spans = events.operators, sorted(events.optimizers)
    begins = [begin_us for begin_us, _, _ in spans]

    def is_optimizing(index: int) -> bool:
        place = bisect_right(begins, operators.start_us[index]) - 1
        return place >= 0 and operators.start_us[index] < spans[place][1] and operators.thread[index] == spans[place][2]

    forward = [int(index) for index in outer if not operators.is_backward[index] and not is_optimizing(index)]
    return forward if len(forward) == len(outer) else _without_counters(operators, forward)


def _without_counters(operators: TorchOperators, forward: Sequence[int]) -> list[int]:
    """Leave out the additions by which normalizations count their batches in training, if one is before each."""
    names = [call.operator for call in operators.call_indices]
    name_of = [names[operators.call_index[index]] for index in forward]
    counters = {place - 1 for place, name in enumerate(name_of) if name == "batch_norm"}
    if any(place < 0 or name_of[place] != "add_" for place in counters):
        return [*forward]
    return [index for place, index in enumerate(forward) if place not in counters]


def _outermost(operators: TorchOperators) -> tuple[list[int], Indices]:
    """Return the operators that run in no other one of their thread, in order, and for each operator its outermost.

    An annotation encloses operators, and is none itself. Of two that begin and end together, the outer one has the
    lower id.
    """
    start_us, thread = np.array(operators.start_us), np.array(operators.thread)
    end_us = start_us + np.array(operators.time_us)
    order = np.lexsort((np.array(operators.number), start_us - end_us, start_us, thread))
    following = np.append(order[1:], order[-1:])
    holds_next = (thread[order] == thread[following]) & (start_us[following] < end_us[order]) & (order != following)
    owner = np.arange(len(start_us))
    outer: list[int] = []
    last: dict[int, int] = {}
    for index, holds in zip(map(int, order), holds_next, strict=True):
        if holds and not operators.is_named[index] and not operators.is_backward[index]:
            continue
        if not outer or thread[index] != thread[outer[-1]] or start_us[index] >= end_us[outer[-1]]:
            outer.append(index)
        owner[index] = outer[-1]
        last[outer[-1]] = index
    if np.array_equal(start_us, start_us.round()) and np.array_equal(end_us, end_us.round()):
        return _rejoined(operators, outer, owner, last)
    return outer, owner


def _rejoined(
    operators: TorchOperators, outer: Sequence[int], owner: Indices, last: Mapping[int, int]
) -> tuple[list[int], Indices]:
    """Return outermost operators and owners without those that only seem to be outermost.

    Some versions cut start and duration to whole µs. Then the last operator that another one calls may seem to begin
    up to 1 µs after that one's end, and to end up to 2 µs after it. It is taken for a part of that one if other calls
    of the same operator end with it.
    """
    names = [call.operator for call in operators.call_indices]
    name_of = [names[call] for call in operators.call_index]
    endings = {(name_of[index], name_of[last[index]]) for index in outer if last[index] != index}
    whole: list[int] = []
    joined: dict[int, int] = {}
    for index in outer:
        before = whole[-1] if whole else index
        late_us = operators.start_us[index] - operators.start_us[before] - operators.time_us[before]
        is_next = before != index and operators.thread[before] == operators.thread[index]
        if (
            is_next
            and late_us <= 1
            and late_us + operators.time_us[index] <= 2
            and (name_of[before], name_of[index]) in endings
        ):
            joined[index] = before
        else:
            whole.append(index)
    return whole, np.array([joined.get(int(index), int(index)) for index in owner])


def _kernel_times(events: TorchEvents, outer: Sequence[int], owner: Indices) -> Times:
    """Return the time of the kernels of each outermost operator; kernels that no operator launched count for none."""
    by_number = {number: index for index, number in enumerate(events.operators.number) if number >= 0}
    start_us, time_us = np.array(events.operators.start_us), np.array(events.operators.time_us)
    by_thread = {
        thread: [index for index in outer if events.operators.thread[index] == thread]
        for thread in {*events.operators.thread}
    }
    starts = {thread: start_us[indices] for thread, indices in by_thread.items()}
    times = np.zeros(len(owner))
    for number, correlation, kernel_us in events.kernels:
        launched, at_us, thread = events.launches.get(correlation, (-1, 0.0, -1))
        index = by_number.get(number, by_number.get(launched, -1))
        if index < 0 and thread in starts:
            place = int(np.searchsorted(starts[thread], at_us, "right")) - 1
            index = by_thread[thread][place] if place >= 0 else -1
            index = index if at_us <= start_us[index] + time_us[index] else -1
        if index >= 0:
            times[owner[index]] += kernel_us
    return times


def _runs(
    path: Path, chosen: Sequence[int], start_us: Times, call_index: Indices, steps: Sequence[tuple[float, float, int]]
) -> list[list[int]]:
    if steps:
        runs = [[index for index in chosen if begin <= start_us[index] < end] for begin, end, _ in steps]
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
