"""The model that the command line names, what it gives for it, and the phase of a generative model."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from common.artifacts.folder import Folder
from common.cli.flags.settings import ROOT, Settings
from common.cli.flags.settings_file import configured_bindings
from common.cli.flags.shared_flags import KINDS_OF_MODEL
from common.files.model_folder import decoder_file
from common.messages.errors import CommandLineError, PipelineError
from common.messages.names import shown
from common.table_rows import PhaseWorkRow


@dataclass(frozen=True, slots=True)
class GivenModel:
    """A model and what is given for it."""

    path: Path
    sizes: Mapping[str, int]  # of dynamic dimensions, as the flags give them
    configured: Mapping[str, int]  # sizes of lower precedence, from the configuration
    files: Mapping[str, Path]  # of its inputs, by name


def given_model(settings: Settings, text: str | None = None, flag_name: str = "--model") -> GivenModel:
    """Return the model of ``--model``, or the one that another flag names; it takes the same sizes and inputs.

    Raises:
        PipelineError: there is no such file.
    """
    path = model_path(settings.model if text is None else text, flag_name)
    files = {name: Path(file) for name, file in settings.input}
    return GivenModel(path, dict(settings.dim), configured_bindings(settings.config, path), files)


def model_path(text: str | None, flag_name: str = "--model") -> Path:
    """Path of a model file: the text itself, the decoder in that folder, else that name in ``models/``.

    Raises:
        CommandLineError: there is no text.
        PipelineError: there is no such file.
    """
    if text is None:
        raise CommandLineError(flag_name, "names no model", f"give {KINDS_OF_MODEL}")
    with contextlib.suppress(OSError):  # a name too long for the file system
        for path in (Path(text), ROOT / "models" / text):
            if path.is_file():
                return path
        if Path(text).is_dir():
            if (decoder := decoder_file(Path(text))) is not None:
                return decoder
            problem = "a folder without a decoder of GenAI or optimum"
            raise PipelineError(shown(text), problem, f"{flag_name} takes {KINDS_OF_MODEL}")
    remedy = f"`make models/resnet50-fp32.onnx` builds the example; {flag_name} takes {KINDS_OF_MODEL}"
    raise PipelineError(shown(text), "no such model file, here or in models/", remedy)


def phase_of(tables: Folder) -> list[PhaseWorkRow]:
    """Return the work of the phase that the tables read so far are of, part by part; nothing for other models.

    Raises:
        UpstreamError: the phases cannot be read, or none is of these tables.
    """
    if not tables.has("phase_work"):
        return []
    from common.artifacts.frames import records

    return cast("list[PhaseWorkRow]", records(tables.variant("phase_work")))
