"""Provenance of an artifact: the sidecar ``X.meta.json`` beside it."""

from __future__ import annotations

import contextlib
import hashlib
import json
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from common.artifacts.checks import json_text
from common.messages.errors import UpstreamError
from common.messages.names import quoted

# Format history:
# 1 - first format.
# 2 - ceilings of several roofs, the steady part of the runs, power before the runs; what a table lacks.
# 3 - attributes of the source nodes; pessimistic, likely and optimistic cases; patterns as counts.
# 4 - shapes of nodes that ran with several; how the work of an executed node is known.
# 5 - why a share of the roof is above 1 or empty.
# 6 - sessions of a measurement; what a series lacks for its limits; weights that are dequantized.
# 7 - parts and phases of generative models.
# 8 - whether profiled and unprofiled runs alternated.
FORMAT_VERSION = 8
TOOLS = ("onnx", "onnxruntime", "numpy", "pandas", "networkx", "matplotlib")


@dataclass(slots=True)
class Provenance:
    """Content of a sidecar."""

    stage: str
    command: str
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)
    model_id: str = ""
    model_path: str = ""
    dimensions: dict[str, int] = field(default_factory=dict)  # sizes that hold for the whole artifact
    swept: list[str] = field(default_factory=list)  # dimensions that its rows bind in their key column ``dimensions``
    host: dict[str, Any] = field(default_factory=dict)  # empty where it is unknown: of an imported measurement
    tools: dict[str, str] = field(default_factory=dict)
    reads: dict[str, str] = field(default_factory=dict)  # SHA-256 of every file of the folder that was read
    notes: list[str] = field(default_factory=list)
    incomplete: list[str] = field(
        default_factory=list
    )  # what the artifact lacks, one reason each; empty for a complete one
    imported: dict[str, Any] = field(default_factory=dict)  # files recorded elsewhere, and the facts in them
    sha256: str = ""
    format_version: int = FORMAT_VERSION

    def given(self, setting: str) -> Any:
        """Return the value that a setting had; None where the sidecar does not know it."""
        return self.settings.get(setting, {}).get("value")

    def to_json(self) -> str:
        """Return the sidecar's text, with keys in a fixed order; bytes of a path that are no text are escaped."""
        text = json.dumps(asdict(self), indent=2, ensure_ascii=False) + "\n"
        return text.encode("utf-8", "backslashreplace").decode("utf-8")  # \udcff is how JSON writes it too


def sidecar(path: Path) -> Path:
    """Return the path of an artifact's sidecar: ``out/op_metrics.meta.json`` for ``out/op_metrics.csv``."""
    return path.parent / f"{path.stem}.meta.json"


def load(path: Path, remedy: str) -> Provenance:
    """Read the sidecar of ``path``; UpstreamError where it is missing, unreadable or of another format version."""
    file = sidecar(path)
    try:
        content = json_text.parse(file.read_text(encoding="utf-8"), holds_paths=True)
        version = content.get("format_version")
        if version == FORMAT_VERSION:
            return _typed(Provenance(**content))
    except FileNotFoundError:
        raise UpstreamError(file, "not found", remedy) from None
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise UpstreamError(file, f"corrupt ({error})", remedy) from error
    raise UpstreamError(file, f"format version {version}, this program reads {FORMAT_VERSION}", remedy)


def _typed(record: Provenance) -> Provenance:
    """Check that every field has the type that it has in an empty record."""
    empty = Provenance(stage="", command="")
    for field_name, value in asdict(record).items():
        if type(value) is not type(getattr(empty, field_name)):
            raise TypeError(f"{field_name} is {quoted(value)}")
    return record


def sha256_of(path: Path) -> str:
    """SHA-256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def tool_versions() -> dict[str, str]:
    """Installed versions of the packages that a figure can depend on; none of them is imported."""
    versions = {}
    for name in TOOLS:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions
