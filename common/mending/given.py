"""The model that is mended, with its weights and with the names of nodes that all tables have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx

from common.messages.errors import PipelineError
from common.onnx_graph.load import LoadedModel
from common.onnx_graph.reading.naming import expand
from common.runtime.inputs.values import Feeds
from common.runtime.sessions.session import SessionSettings

MOST_BYTES = 2**31 - 2**20  # of one protobuf message, less the graph


@dataclass(frozen=True)
class MendSubject:
    """The measured model: as it was loaded, as it is mended, and how it runs.

    Attributes:
        feeds: inputs of several runs; the first ones are those of the measured runs.
    """

    path: Path
    loaded: LoadedModel
    proto: onnx.ModelProto
    feeds: Sequence[Feeds]
    options: SessionSettings


def mendable_model(path: Path) -> onnx.ModelProto:
    """Read a model that was loaded before, so that its file is known to be valid.

    Raises:
        PipelineError: it is too large to be written as one file.
    """
    model, _ = expand(onnx.load(path))
    if model.ByteSize() > MOST_BYTES:
        raise PipelineError(path, "its weights take more than 2 GB, so no mended model can be written")
    return model
