"""Calls of an endpoint by HTTP: JSON, and after it the values as bytes where the endpoint takes them so.

Source: KServe's ``docs/predict-api/v2/required_api.md`` and ``binary_protocol.md``. The client is that of Python:
``tritonclient.http`` is built on gevent and takes 0.2 s of a processor to import, and gevent's loop serves no threads.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import select
import socket
import ssl
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from common.load.endpoint.address import Address
from common.load.endpoint.tensors import (
    MALFORMED,
    AnsweredTensor,
    MalformedAnswerError,
    ModelMetadata,
    TensorForm,
    WireTensor,
    brief,
    metadata_of,
)
from common.messages.errors import PipelineError

BINARY_EXTENSION = "binary_tensor_data"
TRUST = "set SSL_CERT_FILE to the certificate of the authority that signed it"
JSON_LENGTH = "Inference-Header-Content-Length"  # of the part before the bytes


class HttpCaller:
    """One connection to an endpoint, which is opened with the first call and stays open."""

    def __init__(self, address: Address, model: str, version: str, timeout_s: float, *, is_binary: bool) -> None:
        self.is_binary = is_binary
        self._address, self._timeout_s = address, timeout_s
        self._path = f"{address.path}/v2/models/{quote(model, safe='')}"
        self._path += f"/versions/{quote(version, safe='')}" if version else ""
        kind = http.client.HTTPSConnection if address.is_encrypted else http.client.HTTPConnection
        secure: dict[str, Any] = {"context": ssl.create_default_context()} if address.is_encrypted else {}
        self._connection = kind(address.host, address.port, timeout=timeout_s, **secure)
        self._headers = {"Authorization": address.authorization} if address.authorization else {}

    def takes_bytes(self) -> bool:
        fields = json_object(self._call("GET", f"{self._address.path}/v2")[1])
        extensions = fields.get("extensions")
        return isinstance(extensions, list) and BINARY_EXTENSION in extensions

    def metadata(self) -> ModelMetadata:
        return metadata_of(json_object(self._call("GET", self._path)[1]))

    def request(self, tensors: Sequence[WireTensor]) -> tuple[bytes, int]:
        """Return the body of a request, and how long its JSON is."""
        return binary_request(tensors) if self.is_binary else json_request(tensors)

    def infer(self, request: tuple[bytes, int]) -> tuple[str, list[AnsweredTensor]]:
        body, json_length = request
        kind = {"Content-Type": "application/octet-stream", JSON_LENGTH: str(json_length)}
        headers = kind if self.is_binary else {"Content-Type": "application/json"}
        length, content = self._call("POST", f"{self._path}/infer", body, headers)
        return answers_of(content, length)

    def close(self) -> None:
        sock = self._connection.sock
        with contextlib.suppress(OSError, AttributeError):
            sock.shutdown(socket.SHUT_RDWR)
        self._connection.close()

    def _call(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> tuple[str | None, bytes]:
        """Return how long the JSON of the answer is, where the endpoint says it, and the answer."""
        if (sock := self._connection.sock) is not None and select.select([sock], [], [], 0)[0]:
            self._connection.close()  # what is readable before a request is that the endpoint ended the connection
        try:
            self._connection.request(method, path, body or None, {**self._headers, **(headers or {})})
            answer = self._connection.getresponse()
            content = answer.read()
        except TimeoutError as error:
            self._connection.close()
            raise PipelineError(str(self._address), f"no answer within {self._timeout_s:g} s") from error
        except ssl.SSLCertVerificationError as error:
            problem = f"its certificate is not trusted ({error.verify_message})"
            raise PipelineError(str(self._address), problem, TRUST) from error
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()  # the next call opens it again
            raise PipelineError(str(self._address), f"no answer ({_reason(error)})") from error
        except (MemoryError, OverflowError) as error:  # Python reserves as many bytes as the endpoint says will come
            self._connection.close()
            raise PipelineError(str(self._address), "no answer (it is larger than memory)") from error
        if answer.status != http.client.OK:
            raise PipelineError(str(self._address), f"answers {answer.status}{_said(content)}")
        return answer.headers.get(JSON_LENGTH), content


def _reason(error: Exception) -> str:
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return text or type(error).__name__


def _said(content: bytes) -> str:
    """Return what the body of an error says."""
    with contextlib.suppress(ValueError, AttributeError):
        if said := json.loads(content).get("error"):
            return f": {brief(said)}"
    return ""


def json_object(content: bytes) -> dict[str, Any]:
    """Return the object that a body holds; one without is malformed."""
    try:
        fields = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise MalformedAnswerError("no JSON") from error
    if not isinstance(fields, dict):
        raise MalformedAnswerError("no JSON object")
    return fields


def _described(tensor: WireTensor) -> dict[str, Any]:
    return {"name": tensor.form.name, "shape": tensor.form.shape, "datatype": tensor.form.datatype}


def json_request(tensors: Sequence[WireTensor]) -> tuple[bytes, int]:
    """Return a request whose values are text, which the rows of its tensors hold."""
    parts = [
        json.dumps(_described(tensor))[:-1].encode() + b', "data": [' + b", ".join(tensor.rows) + b"]}"
        for tensor in tensors
    ]
    body = b'{"inputs": [' + b", ".join(parts) + b"]}"
    return body, len(body)


def binary_request(tensors: Sequence[WireTensor]) -> tuple[bytes, int]:
    """Return a request whose values are bytes after its JSON, and which asks for such an answer."""
    contents = [tensor.content for tensor in tensors]
    inputs = [
        {**_described(tensor), "parameters": {"binary_data_size": len(content)}}
        for tensor, content in zip(tensors, contents, strict=True)
    ]
    head = json.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}}).encode()
    return b"".join([head, *contents]), len(head)


def answers_of(content: bytes, json_length: str | None) -> tuple[str, list[AnsweredTensor]]:
    """Return the name of the model and the outputs of an answer.

    Args:
        json_length: of its JSON, as the endpoint says it; None: it has nothing else.

    Raises:
        MalformedAnswerError: it is none of a model, or its bytes are not as many as its outputs say.
    """
    try:
        end = len(content) if json_length is None else int(json_length)
        fields = json_object(content[:end])
        answers = [_answer(output) for output in fields["outputs"]]
    except MALFORMED as error:
        raise MalformedAnswerError(f"no outputs ({type(error).__name__})") from error
    if sum(answer.size or 0 for answer in answers) != len(content) - end:
        raise MalformedAnswerError(f"{len(content) - end} bytes after the JSON")
    return str(fields.get("model_name") or ""), answers


def _answer(output: Mapping[str, Any]) -> AnsweredTensor:
    form = TensorForm(str(output["name"]), str(output["datatype"]), tuple(map(int, output["shape"])))
    size = (output.get("parameters") or {}).get("binary_data_size")
    return AnsweredTensor(form, int(size)) if size is not None else AnsweredTensor(form, None, _count(output["data"]))


def _count(data: Any) -> int:
    """Return how many values a list has, which may be nested as the shape is."""
    return sum(map(_count, data)) if isinstance(data, list) else 1
