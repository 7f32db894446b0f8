"""The lineage that artifacts must keep: nothing older than what it was made from, and all of one workload."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from common.artifacts import provenance
from common.artifacts.provenance import Provenance
from common.errors import UpstreamError


def require_fresh(file: Path, record: Provenance, remedy: str, descendants: frozenset[Path] = frozenset()) -> None:
    """Follow the recorded reads through the folder: what was made from an older table is stale.

    Raises:
        UpstreamError: naming the table and the command to rerun.
    """
    for name, digest in record.reads.items():
        upstream = file.parent / name
        if not provenance.sidecar(upstream).is_file():
            continue  # tables may travel without what they were made from
        current = provenance.load(upstream, remedy)
        if current.sha256 != digest:
            raise UpstreamError(file, f"stale: {name} was written again after it", remedy)
        if upstream.resolve() in descendants | {file.resolve()}:
            raise UpstreamError(
                file, f"corrupt: its sidecar says that it was made from itself, by way of {name}", remedy
            )
        again = f"run {current.stage}, then {record.stage}"
        require_fresh(upstream, current, again, descendants | {file.resolve()})


def require_same_workload(records: Iterable[tuple[Path, Provenance, str]]) -> tuple[str, str, dict[str, int]]:
    """The one model and the one binding of dimensions that all records with a model agree on.

    Args:
        records: (path, provenance, remedy) of every artifact that a stage read.

    Returns:
        Model id, model path and dimensions; empty where no record names a model.

    Raises:
        UpstreamError: two records belong to different models or to different bindings.
    """
    known: tuple[Path, Provenance] | None = None
    for path, record, remedy in records:
        if not record.model_id:
            continue
        if known is None:
            known = (path, record)
            continue
        other_path, other = known
        if record.model_id != other.model_id:
            problem = f"of model {_short(record)}, but {other_path} is of {_short(other)}"
            raise UpstreamError(path, problem, remedy)
        if record.dimensions != other.dimensions:
            problem = f"made with dimensions {record.dimensions}, but {other_path} with {other.dimensions}"
            raise UpstreamError(path, problem, remedy)
    return (known[1].model_id, known[1].model_path, known[1].dimensions) if known else ("", "", {})


def _short(record: Provenance) -> str:
    return f"{record.model_id[:12]} ({record.model_path})"
