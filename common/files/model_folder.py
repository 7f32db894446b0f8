"""The decoder in a folder of a generative model, as ONNX Runtime GenAI and optimum write one.

GenAI's ``genai_config.json`` names the decoder's file (onnxruntime.ai/docs/genai/reference/config). Optimum names its
files ``model.onnx`` or ``decoder_….onnx`` (optimum/onnxruntime/utils.py). Of these, one with caches comes first; the
merged one takes a prompt, too, and optimum itself prefers it.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

from common.files.small_file import small_text
from common.messages.errors import ConfigurationError

CONFIGURATION = "genai_config.json"
OF_OPTIMUM = ("decoder_model_merged.onnx", "decoder_with_past_model.onnx", "model.onnx", "decoder_model.onnx")


def decoder_file(folder: Path) -> Path | None:
    """Return the decoder in a folder: the one that GenAI names, by optimum's names, or the only model; None if none is.

    Raises:
        ConfigurationError: GenAI's configuration cannot be read, or names no file of the folder.
    """
    if (folder / CONFIGURATION).is_file():
        return _named(folder / CONFIGURATION)
    models = sorted(folder.glob("*.onnx"))
    named = [folder / name for name in OF_OPTIMUM if folder / name in models]
    return named[0] if named else models[0] if len(models) == 1 else None


def _named(path: Path) -> Path:
    try:
        name = json.loads(small_text(path))["model"]["decoder"]["filename"]
    except (ValueError, RecursionError, LookupError, TypeError):
        name = None
    if isinstance(name, str) and not (Path(name).is_absolute() or ".." in Path(name).parts):
        with contextlib.suppress(OSError):  # a name too long for the file system
            if (path.parent / name).is_file():
                return path.parent / name
    problem = "model.decoder.filename is not the name of a file beside it"
    raise ConfigurationError(path, problem, "give the path of the ONNX file itself")
