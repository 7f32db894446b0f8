"""Calls of an endpoint by gRPC: the messages of ``GRPCInferenceService``, values as bytes.

Source: KServe's ``grpc_predict_v2.proto``. Its messages are those of NVIDIA's ``tritonclient``, which takes 0.2 s of a
processor to import. So only a call by gRPC imports it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from common.load.endpoint.address import Address
from common.load.endpoint.tensors import (
    AnsweredTensor,
    MalformedAnswerError,
    ModelMetadata,
    TensorForm,
    WireTensor,
    brief,
    metadata_of,
)
from common.messages.errors import PipelineError

TRUST = "set GRPC_DEFAULT_SSL_ROOTS_FILE_PATH to the certificate of the authority that signed it"
SERVICE = "/inference.GRPCInferenceService"
OPTIONS = (
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),  # a connection of its own for each caller
)


def require_grpc() -> tuple[Any, Any]:
    """Return grpc and the messages of the protocol, or raise a PipelineError that says how to install them."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # its own lines on stderr
    try:
        import grpc
        from tritonclient.grpc import service_pb2
    except ImportError as error:
        remedy = "run: python -m pip install -r requirements-endpoint.txt; or give the endpoint's http:// address"
        raise PipelineError(error.name or "tritonclient", "is not installed, and gRPC needs it", remedy) from error
    return grpc, service_pb2


class GrpcCaller:
    """One connection to an endpoint; its values are always bytes."""

    is_binary = True

    def __init__(self, address: Address, model: str, version: str, timeout_s: float) -> None:
        self._grpc, self._messages = require_grpc()
        self._address, self._timeout_s = address, timeout_s
        self._model = {"name": model, "version": version}
        if address.is_encrypted:
            credentials = self._grpc.ssl_channel_credentials()
            self._channel = self._grpc.secure_channel(address.authority, credentials, OPTIONS)
        else:
            self._channel = self._grpc.insecure_channel(address.authority, OPTIONS)
        self._metadata = [("authorization", address.authorization)] if address.authorization else []
        read = self._messages.ModelInferResponse.FromString
        self._infer = self._channel.unary_unary(f"{SERVICE}/ModelInfer", response_deserializer=read)

    def takes_bytes(self) -> bool:
        return True

    def metadata(self) -> ModelMetadata:
        messages = self._messages
        ask = self._channel.unary_unary(
            f"{SERVICE}/ModelMetadata",
            request_serializer=messages.ModelMetadataRequest.SerializeToString,
            response_deserializer=messages.ModelMetadataResponse.FromString,
        )
        answer = self._called(ask, messages.ModelMetadataRequest(**self._model))
        tensors = {name: [_fields(tensor) for tensor in getattr(answer, name)] for name in ("inputs", "outputs")}
        return metadata_of({"name": answer.name, "platform": answer.platform, **tensors})

    def request(self, tensors: Sequence[WireTensor]) -> bytes:
        kind = self._messages.ModelInferRequest
        return bytes(
            kind(
                model_name=self._model["name"],
                model_version=self._model["version"],
                inputs=[kind.InferInputTensor(**_fields(tensor.form)) for tensor in tensors],
                raw_input_contents=[tensor.content for tensor in tensors],
            ).SerializeToString()
        )

    def infer(self, request: bytes) -> tuple[str, list[AnsweredTensor]]:
        return answers_of(self._called(self._infer, request))

    def close(self) -> None:
        self._channel.close()

    def _called(self, call: Any, request: Any) -> Any:
        try:
            return call(request, timeout=self._timeout_s, metadata=self._metadata)
        except self._grpc.RpcError as error:
            if "CERTIFICATE_VERIFY_FAILED" in (error.details() or ""):
                raise PipelineError(str(self._address), "its certificate is not trusted", TRUST) from error
            raise PipelineError(str(self._address), self._problem(error)) from error
        except ValueError as error:  # a closed channel
            raise PipelineError(str(self._address), f"no answer ({error})") from error

    def _problem(self, error: Any) -> str:
        codes, code = self._grpc.StatusCode, error.code()
        said = brief(error.details() or "")
        if code == codes.DEADLINE_EXCEEDED:
            return f"no answer within {self._timeout_s:g} s"
        if code in (codes.UNAVAILABLE, codes.CANCELLED):
            return f"no answer ({'it cannot be reached' if code == codes.UNAVAILABLE else 'the call was given up'})"
        if "deserializing" in said:
            raise MalformedAnswerError("no message of the protocol") from error
        return f"answers {code.name}: {said}"


def _fields(tensor: Any) -> dict[str, Any]:
    """Return name, type and shape of a tensor, in a message or as its form."""
    return {"name": tensor.name, "datatype": tensor.datatype, "shape": [*tensor.shape]}


def answers_of(message: Any) -> tuple[str, list[AnsweredTensor]]:
    """Return the name of the model and the outputs of an answer; values are raw, or typed as the outputs are."""
    forms = [TensorForm(output.name, output.datatype, tuple(output.shape)) for output in message.outputs]
    raw = message.raw_output_contents
    if raw and len(raw) != len(forms):
        raise MalformedAnswerError(f"{len(raw)} raw contents for {len(forms)} outputs")
    if raw:
        answers = [AnsweredTensor(form, len(content)) for form, content in zip(forms, raw, strict=True)]
    else:
        counts = [sum(len(values) for _, values in output.contents.ListFields()) for output in message.outputs]
        answers = [AnsweredTensor(form, None, count) for form, count in zip(forms, counts, strict=True)]
    return message.model_name, answers
