"""Runs that another thread can end early; a time limit ends them, too (:mod:`common.runtime.sessions.limits`)."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from common.runtime.inputs.values import Array, Value, operands
from common.runtime.library import ort
from common.runtime.sessions.limits import IDLE, RuntimeCall
from common.runtime.sessions.session import Session, reason_of


def dynamic_axes(session: Session) -> dict[str, tuple[int, ...]]:
    """Return for each input of a session the axes whose size each run may choose."""
    return {
        given.name: tuple(axis for axis, size in enumerate(given.shape) if not isinstance(size, int))
        for given in session.get_inputs()
    }


class StoppableRuns:
    """Runs of one caller on a session, one at a time; the session may run for other callers at the same time.

    ``device`` is the runtime's name of a device with memory of its own: inputs are copied there and outputs back, bound
    to the session, and the copies are timed apart from the run. Without one, the session computes in host memory.
    """

    def __init__(self, session: Session, model: object, device: str = "") -> None:
        self._session, self._device = session, device
        self._call = RuntimeCall(model)
        self._on_device: dict[tuple[str, tuple[int, ...]], Value] = {}
        self.stages = stages_on(device)  # names of the parts of a run

    def run(self, feeds: Mapping[str, Array]) -> tuple[Sequence[Any], tuple[int, ...]]:
        """Run one inference; return its outputs, and what its stages took in ns.

        An output is an array, or a value of the runtime where numpy lacks a type of the model. PipelineError: the
        runtime fails, with its own reason, or the run was stopped or reached a limit.
        """
        self._call.begin_anew()
        try:
            return (self._bound_run if self._device else self._plain_run)(feeds, self._call.options)
        except Exception as error:  # the runtime raises a dozen unrelated types
            raise self._call.failure(reason_of(error)) from error
        finally:
            self._call.begin_s = IDLE

    def _plain_run(self, feeds: Mapping[str, Array], options: ort.RunOptions) -> tuple[Sequence[Any], tuple[int, ...]]:
        begin_ns = time.perf_counter_ns()
        fed = operands(self._session, feeds)
        call = self._session.run if fed is feeds else self._session.run_with_ort_values
        outputs = call(None, fed, options)
        return outputs, (time.perf_counter_ns() - begin_ns,)

    def _bound_run(self, feeds: Mapping[str, Array], options: ort.RunOptions) -> tuple[Sequence[Any], tuple[int, ...]]:
        times_ns = [time.perf_counter_ns()]
        binding = self._session.io_binding()
        for name, array in feeds.items():
            binding.bind_ortvalue_input(name, self._copied(name, array))
        binding.synchronize_inputs()
        times_ns.append(time.perf_counter_ns())
        for output in self._session.get_outputs():
            binding.bind_output(output.name, self._device)
        self._session.run_with_iobinding(binding, options)
        binding.synchronize_outputs()
        times_ns.append(time.perf_counter_ns())
        outputs = [value.numpy() for value in binding.get_outputs()]
        times_ns.append(time.perf_counter_ns())
        return outputs, tuple(end - begin for begin, end in pairwise(times_ns))

    def _copied(self, name: str, array: Array) -> Value:
        """Return an input on the device, in memory that the next run with its shape uses again."""
        key = name, array.shape
        if (value := self._on_device.get(key)) is None:
            value = ort.OrtValue.ortvalue_from_shape_and_type([*array.shape], array.dtype.type, self._device)
            self._on_device[key] = value
        value.update_inplace(np.ascontiguousarray(array))
        return value

    def stop(self) -> None:
        """Let the current run end after the node that it is in, with an error; what it holds on a device stays its."""
        self._call.end()
        self._on_device = {}


def stages_on(device: str) -> tuple[str, ...]:
    """Return the names of the parts of a run on a device; on the host, of the run alone."""
    return ("host_to_device", "session_run", "device_to_host") if device else ("session_run",)
