"""Lineage of artifacts: none is older than what it was made from, and all are of one workload."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from common.artifacts import provenance
from common.artifacts.catalogue import ARTIFACTS
from common.artifacts.journal import settle
from common.artifacts.provenance import Provenance
from common.artifacts.stages import STAGES, UNAFFECTED
from common.messages.errors import UpstreamError
from common.messages.names import quoted

VARIANT = "dimensions"  # the key column of a table of variants
_UNAFFECTED = {
    ARTIFACTS[name].file: frozenset(ARTIFACTS[other].file for other in others) for name, others in UNAFFECTED.items()
}


def indifferent_to(stage: str) -> frozenset[str]:
    """Return the files that affect no figure of a stage, although it reads tables that were made from them."""
    written = [ARTIFACTS[name].file for name in STAGES[stage].writes] if stage in STAGES else []
    return frozenset.intersection(*(_UNAFFECTED.get(file, frozenset()) for file in written)) if written else frozenset()


def require_fresh(
    file: Path,
    record: Provenance,
    remedy: str,
    indifferent: frozenset[str] = frozenset(),
    descendants: frozenset[Path] = frozenset(),
) -> None:
    """Refuse an artifact that was made from an older version of a table, followed through all recorded reads.

    Args:
        remedy: the command to run where its sidecar is corrupt.
        indifferent: names of files from which no figure that matters follows.
        descendants: artifacts that were made from this one.

    Raises:
        UpstreamError: it is stale; the error names the table and the command to rerun.
    """
    indifferent |= _UNAFFECTED.get(file.name, frozenset())
    for name, digest in record.reads.items():
        upstream = file.parent / name
        if upstream.name in indifferent:
            continue
        if upstream.parent != file.parent:
            settle(upstream.parent)
        if not _has_sidecar(file, name, remedy):
            continue  # tables may travel without what they were made from
        current = provenance.load(upstream, remedy)
        if current.sha256 != digest:
            raise UpstreamError(file, f"stale: {name} was written again after it", remedy)
        if Path(os.path.realpath(upstream)) in descendants | {Path(os.path.realpath(file))}:
            problem = f"corrupt: its sidecar says that it was made from itself, by way of {name}"
            raise UpstreamError(file, problem, remedy)
        again = f"run {current.stage}, then {record.stage}"
        require_fresh(upstream, current, again, indifferent, descendants | {Path(os.path.realpath(file))})


def _has_sidecar(file: Path, name: str, remedy: str) -> bool:
    """Return whether the sidecar of a table from which an artifact was made is here.

    Raises:
        UpstreamError: no file can have that name.
    """
    try:
        return provenance.sidecar(file.parent / name).is_file()
    except (OSError, ValueError) as error:
        problem = f"corrupt: its sidecar says that it was made from {quoted(name)}, which no file can be called"
        raise UpstreamError(file, problem, remedy) from error


def require_same_workload(records: Iterable[tuple[Path, Provenance, str]]) -> tuple[str, str, dict[str, int]]:
    """Return the id, the path and the dimensions of the model that all records share; empty where none names a model.

    Dimensions that a table of variants binds row by row are not compared here, but by :func:`require_variants`.

    Raises:
        UpstreamError: two records belong to different models or to different bindings.
    """
    known = [entry for entry in records if entry[1].model_id]
    for index, (path, record, remedy) in enumerate(known):
        for other_path, other, _ in known[:index]:
            if record.model_id != other.model_id:
                problem = f"of model {_short(record)}, but {other_path} is of {_short(other)}"
                raise UpstreamError(path, problem, remedy)
            swept = {*record.swept, *other.swept}
            if _without(record.dimensions, swept) != _without(other.dimensions, swept):
                problem = f"made with dimensions {record.dimensions}, but {other_path} with {other.dimensions}"
                raise UpstreamError(path, problem, remedy)
    dimensions = {name: size for _, record, _ in known for name, size in record.dimensions.items()}
    return (known[0][1].model_id, known[0][1].model_path, dimensions) if known else ("", "", {})


def require_variants(variants: Iterable[Mapping[str, int]], swept: Sequence[str], bound: Mapping[str, int]) -> None:
    """Raise ValueError unless each row binds all that its table sweeps to whole numbers, and nothing that is bound."""
    for number, variant in enumerate(variants, start=1):
        if set(variant) != set(swept):
            bindings = ", ".join(variant) or "nothing"
            raise ValueError(f"row {number} binds {bindings}, the table sweeps {', '.join(swept)}")
        if any(type(size) is not int or size < 0 for size in variant.values()):
            raise ValueError(f"row {number}: {dict(variant)} has a size that is not a whole number")
    if twice := sorted(set(swept) & set(bound)):
        raise ValueError(f"{twice[0]} is bound for the whole table and swept by its rows")


def _without(dimensions: Mapping[str, int], swept: Collection[str]) -> dict[str, int]:
    return {name: size for name, size in dimensions.items() if name not in swept}


def _short(record: Provenance) -> str:
    return f"{record.model_id[:12]} ({record.model_path})"
