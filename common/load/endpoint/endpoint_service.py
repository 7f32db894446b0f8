"""The service that is measured at an endpoint: each worker sends its batches by a connection of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from common.load.endpoint.address import Address
from common.load.endpoint.by_grpc import GrpcCaller
from common.load.endpoint.by_http import HttpCaller
from common.load.endpoint.endpoint_model import EndpointModel
from common.load.endpoint.tensors import (
    AnsweredTensor,
    Array,
    ModelMetadata,
    TensorForm,
    WireTensor,
    json_values,
    raw_bytes,
    require_answers,
)
from common.load.requests.load_record import Batch
from common.load.service.sessions import Inputs
from common.messages.errors import PipelineError, UnusableValueError


class Caller(Protocol):
    """One connection to an endpoint; a call raises a PipelineError where no answer comes that the protocol knows."""

    is_binary: bool  # whether values are bytes

    def takes_bytes(self) -> bool: ...

    def metadata(self) -> ModelMetadata:
        """Ask what the model takes and answers."""

    def request(self, tensors: Sequence[WireTensor]) -> Any: ...

    def infer(self, request: Any) -> tuple[str, Sequence[AnsweredTensor]]:
        """Send a request, and return the model's name and its outputs."""

    def close(self) -> None:
        """End the connection; a call that waits in another thread fails at once."""


def connect(address: Address, model: str, version: str, timeout_s: float, *, is_binary: bool) -> Caller:
    """Return a connection to an endpoint, which is opened with its first call."""
    if address.is_grpc:
        return GrpcCaller(address, model, version, timeout_s)
    return HttpCaller(address, model, version, timeout_s, is_binary=is_binary)


def described(address: Address, model: str, caller: Caller) -> tuple[ModelMetadata, bool]:
    """Ask an endpoint for a model: what it takes and answers, and whether it takes values as bytes.

    Raises:
        PipelineError: the endpoint does not answer as the protocol says.
        UnusableValueError: it has no such model.
    """
    try:
        takes_bytes, metadata = caller.takes_bytes(), caller.metadata()
    except PipelineError as error:
        if any(f"answers {status}" in error.problem for status in ("404", "400", "NOT_FOUND")):
            problem = f"{model} is no model of {address}: it {error.problem}"
            raise UnusableValueError("served_model", problem, "give the name that it has there") from error
        remedy = error.remedy or "is a server with KServe's v2 protocol there?"
        raise PipelineError(str(address), error.problem, remedy) from error
    if metadata.name != model:
        raise PipelineError(str(address), f"answers for the model {metadata.name}, not for {model}")
    return metadata, takes_bytes


class EndpointService:
    """Connections that send batches of one model."""

    def __init__(self, model: EndpointModel, connect: Callable[[], Caller], worker_count: int) -> None:
        self.stages: tuple[str, ...] = ("assemble", "round_trip")
        self.worker_count = worker_count
        self.inputs = Inputs(model.samples, model.batched, {})
        self._metadata, self._connect = model.metadata, connect
        self._callers = [connect() for _ in range(worker_count)]
        encode = raw_bytes if self._callers[0].is_binary else json_values
        self._rows = [{name: encode(array) for name, array in sample.items()} for sample in model.samples]
        self._empty = {name: encode(_filler(array)) for name, array in model.samples[0].items()}
        self._shapes = {name: array.shape for name, array in model.samples[0].items()}

    def run(self, worker: int, batch: Batch) -> tuple[int, int]:
        """Put the requests into one message, send it and check the answer; return what both took in ns."""
        caller = self._callers[worker]
        begin_ns = time.perf_counter_ns()
        request = caller.request([self._tensor(form, batch) for form in self._metadata.inputs])
        sent_ns = time.perf_counter_ns()
        name, answers = caller.infer(request)
        ended_ns = time.perf_counter_ns()
        require_answers(self._metadata, name, answers, batch.padded_size)
        return sent_ns - begin_ns, ended_ns - sent_ns

    def give_up(self, worker: int) -> None:
        """End the worker's connection, and with it the call; its next batch opens another one."""
        ended, self._callers[worker] = self._callers[worker], self._connect()
        ended.close()

    def close(self) -> None:
        for caller in self._callers:
            caller.close()

    def _tensor(self, form: TensorForm, batch: Batch) -> WireTensor:
        shape, rows = self._shapes[form.name], self._rows
        if form.name not in self.inputs.batched:
            return WireTensor(replace(form, shape=shape), [rows[batch.requests[0] % len(rows)][form.name]])
        own = [rows[request % len(rows)][form.name] for request in batch.requests]
        own += [self._empty[form.name]] * (batch.padded_size - len(own))
        return WireTensor(replace(form, shape=(batch.padded_size, *shape[1:])), own)


def _filler(array: Array) -> Array:
    """Return a request that only fills a batch up."""
    return np.full(array.shape, "", object) if array.dtype.kind == "O" else np.zeros_like(array)
