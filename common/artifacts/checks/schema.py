"""Checks of tables by pandera schemas, made from the declarations; reader and writer check alike."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable
from functools import cache
from typing import IO, Any, Literal

import numpy as np
import pandas as pd
import pandera.pandas as pa

from common.artifacts.catalogue import ARTIFACTS, Artifact
from common.artifacts.checks import json_text
from common.artifacts.checks.cells import CELLS
from common.artifacts.checks.documents import require_names
from common.artifacts.columns import JSON_KINDS, Column
from common.messages.errors import PipelineError
from common.messages.names import quoted

DTYPES = {
    "string": "str",
    "integer": "Int64",
    "number": "float64",
    "boolean": "bool",
    **dict.fromkeys(JSON_KINDS, "object"),
}
# Types that pandas reads CSV columns as. A count above 2**53 would be rounded if it were read as a float.
READ_AS = {"string": "str", **dict.fromkeys(JSON_KINDS, "str"), "integer": "Int64"}


@cache
def schema(name: str) -> pa.DataFrameSchema:
    artifact = ARTIFACTS[name]
    columns = {column.name: _pandera_column(column) for column in artifact.columns}
    return pa.DataFrameSchema(columns, strict=True, ordered=True, unique=list(artifact.key) or None)


def _pandera_column(column: Column) -> pa.Column:
    checks = []
    if column.minimum is not None:
        checks.append(pa.Check.ge(column.minimum, error=f"at least {column.minimum:g}"))
    if column.kind == "number":
        checks.append(pa.Check(lambda values: values.abs() != float("inf"), error="a finite number"))
    if column.allowed:
        words = [*column.allowed, *([""] if column.nullable else [])]
        checks.append(pa.Check.isin(words, error=f"one of {', '.join(words)}"))
    nullable = column.nullable and column.kind != "string"  # an unknown string is an empty one
    return pa.Column(_dtype(column), checks, nullable=nullable)


def _dtype(column: Column) -> str:
    """Return the type of a column's cells; pandas has one for flags of which some are unknown."""
    return "boolean" if column.kind == "boolean" and column.nullable else DTYPES[column.kind]


def conform(name: str, frame: pd.DataFrame) -> pd.DataFrame:
    """Bring a frame into its declared columns, order and dtypes, and check it.

    Raises:
        OtherColumnsError: a column is missing or unknown.
        PipelineError: a value is out of range, or a key occurs twice.
    """
    artifact = ARTIFACTS[name]
    require_names(artifact, frame.columns)
    frame = pd.DataFrame({column.name: _cast(artifact.file, column, frame[column.name]) for column in artifact.columns})
    try:
        schema(name).validate(_with_hashable_keys(artifact, frame))
    except pa.errors.SchemaError as error:
        raise PipelineError(artifact.file, _first_failure(error)) from error
    return frame


def _with_hashable_keys(artifact: Artifact, frame: pd.DataFrame) -> pd.DataFrame:
    """Replace JSON cells of key columns by their text: pandas cannot compare keys that are lists or mappings."""
    columns = [column.name for column in artifact.columns if column.kind in JSON_KINDS and column.name in artifact.key]
    texts = {column: pd.Series(_encoded(frame[column]), frame.index, dtype="object") for column in columns}
    return frame.assign(**texts) if texts else frame


def _cast(file: str, column: Column, values: pd.Series[Any]) -> pd.Series[Any]:
    try:
        if column.kind == "string":
            return values.astype("object").where(values.notna(), "").astype("str")
        if column.kind == "boolean":
            _require_flags(values.dropna() if column.nullable else values)
        if column.kind in CELLS:
            _require_cells(column.kind, values)
        with np.errstate(invalid="ignore"):  # a number that is no 64-bit integer is an error and not a warning
            return values.astype(_dtype(column))  # type: ignore[call-overload, no-any-return]
    except (ValueError, TypeError, OverflowError) as error:
        raise PipelineError(file, f"column {column.name} is not of kind {column.kind} ({error})") from error


def _require_flags(values: pd.Series[Any]) -> None:
    """Raise ValueError for a cell that is no flag: every other text would be True."""
    if not (odd := values[~values.isin([True, False])]).empty:
        raise ValueError(f"{quoted(odd.iloc[0])} is neither True nor False")


def _require_cells(kind: str, values: Iterable[Any]) -> None:
    """Raise ValueError for a JSON cell that is not of its kind."""
    holds, name = CELLS[kind]
    for value in values:
        if not holds(value):
            raise ValueError(f"{quoted(value)} is no {name}")


def _first_failure(error: pa.errors.SchemaError) -> str:
    """Return pandera's report as one line: the column, the first value that fails, and what it should be."""
    cases = error.failure_cases
    value = cases["failure_case"].tolist()[0] if isinstance(cases, pd.DataFrame) and len(cases) else cases
    if unique := getattr(error.schema, "unique", None):
        return f"key {', '.join(unique)}: {quoted(value)} occurs twice"
    if str(error.check) == "not_nullable":
        return f"column {error.schema.name}: a cell is empty"
    check = getattr(error.check, "error", None) or str(error.check)
    return f"column {error.schema.name}: {quoted(value)} is not {check}"


def encode_cells(name: str, frame: pd.DataFrame) -> pd.DataFrame:
    """Write lists and mappings as JSON, so that a CSV cell holds one string."""
    columns = [column.name for column in ARTIFACTS[name].columns if column.kind in JSON_KINDS]
    return frame.assign(**{column: _encoded(frame[column]) for column in columns})


def _encoded(values: Iterable[Any]) -> list[str]:
    """Encode equal cells once: a graph has thousands of nodes that repeat few shapes."""
    encode = json.JSONEncoder(separators=(",", ":")).encode
    texts: dict[str, str] = {}  # by what Python calls the value, which unlike the value can be looked up
    return [texts.get(key := repr(value)) or texts.setdefault(key, encode(value)) for value in values]


def decode_cells(name: str, frame: pd.DataFrame) -> pd.DataFrame:
    """Read lists and mappings back; cells with equal text share one object. PipelineError: a cell is not JSON."""
    artifact = ARTIFACTS[name]
    for column in (column.name for column in artifact.columns if column.kind in JSON_KINDS and column.name in frame):
        try:
            values = {text: json_text.parse(text) for text in frame[column].unique().tolist()}
            cells = [values[text] for text in frame[column].tolist()]
            frame[column] = pd.Series(cells, dtype="object", index=frame.index)
        except (TypeError, ValueError) as error:
            raise PipelineError(artifact.file, f"column {column} holds a cell that is not JSON ({error})") from error
    return frame


def write_csv(name: str, frame: pd.DataFrame, file: IO[str]) -> None:
    """Write a table that conforms, piece by piece, because its text may be larger than the frame.

    Python 3.11 leaves a carriage return unquoted, which breaks the line for a reader. For one, all texts are quoted.
    """
    texts = [column.name for column in ARTIFACTS[name].columns if column.kind == "string"]
    odd = any("\r" in value for column in texts for value in frame[column].tolist())
    quoting: Literal[0, 2] = csv.QUOTE_NONNUMERIC if odd else csv.QUOTE_MINIMAL
    encode_cells(name, frame).to_csv(file, index=False, lineterminator="\n", quoting=quoting)
