"""A folder of artifacts as one stage reads it: every file is checked against its declaration and its lineage."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from common.artifacts import provenance
from common.artifacts.catalogue import ARTIFACTS
from common.artifacts.checks import json_text
from common.artifacts.checks.documents import OtherColumnsError, require_document
from common.artifacts.journal import settle
from common.artifacts.lineage import VARIANT, indifferent_to, require_fresh, require_same_workload, require_variants
from common.artifacts.provenance import Provenance
from common.artifacts.stages import STAGES, WRITER
from common.messages.errors import PipelineError, UpstreamError

if TYPE_CHECKING:  # a stage that reads and writes no table spares its time and memory
    import pandas as pd

    from common.table_rows import Documents, Tables, TypedReader
else:
    TypedReader = object

Content = TypeVar("Content")


class Folder(TypedReader):
    """The artifacts of one folder.

    Args:
        record: the sidecar of what this stage will write; reads, notes and the workload are entered as they are read.
        lenient: accept stale tables and tables of another model with a note (the view draws what there is).
    """

    def __init__(self, path: Path, record: Provenance, *, lenient: bool = False) -> None:
        self.root = path
        self.record = record
        self.lenient = lenient
        self.inherited: list[str] = []  # why artifacts that were read are incomplete, as is all that is made from them
        self._read: dict[str, tuple[Path, Provenance, str]] = {}

    def path(self, name: str) -> Path:
        """Path of the artifact, whether or not it exists."""
        return self.root / ARTIFACTS[name].file

    def has(self, name: str) -> bool:
        """Whether an artifact is there. Errors are those of :func:`is_there`."""
        return is_there(self.path(name))

    def provenance(self, name: str) -> Provenance:
        """Sidecar of an artifact that has been read."""
        return self._read[name][1]

    def table(self, name: str, path: Path | None = None) -> pd.DataFrame:
        """Read a table, which may be in another folder; JSON cells are lists and mappings, unknown numbers are NA.

        Raises:
            UpstreamError: it is missing, corrupt, stale or of another model.
        """
        frame = self._checked(name, path, _read_table)
        if VARIANT in frame:
            record = self.provenance(name)
            try:
                require_variants(frame[VARIANT], record.swept, record.dimensions)
            except ValueError as error:
                raise UpstreamError(path or self.path(name), f"corrupt ({error})", _remedy(name)) from error
        return frame

    def variant(self, name: str) -> pd.DataFrame:
        """Read a table of variants: its rows that agree with the dimensions of the tables read so far.

        Raises:
            UpstreamError: it has rows but none agrees, or any that :meth:`table` raises.
        """
        frame, bound = self.table(name), self.record.dimensions
        agrees = [all(bound.get(axis, size) == size for axis, size in row.items()) for row in frame[VARIANT]]
        if agrees and not any(agrees):
            raise UpstreamError(self.path(name), f"has no row for dimensions {bound}", _remedy(name))
        return frame[agrees]

    if not TYPE_CHECKING:  # the types by name are those of TypedReader

        def rows(self, name: str, path: Path | None = None) -> Any:
            """Read a table as rows; an unknown is None. Arguments and errors are those of :meth:`table`."""
            return self.rows_by_name(name, path)

        def document(self, name: str, path: Path | None = None) -> Any:
            """Read a flat JSON document; an unknown is None. Arguments and errors are those of :meth:`table`."""
            return self.document_by_name(name, path)

    def rows_by_name(self, name: str, path: Path | None = None) -> list[Any]:
        """Do the same as :meth:`rows` for a name that is a variable, so that mypy knows no type of its rows."""
        from common.artifacts.frames import records

        return records(self.table(name, path))

    def document_by_name(self, name: str, path: Path | None = None) -> Any:
        """Do the same as :meth:`document` for a name that is a variable."""
        return self._checked(name, path, _read_document)

    def tables(self, names: Iterable[str]) -> Tables:
        return cast("Tables", {name: self.rows_by_name(name) for name in names})

    def documents(self, names: Iterable[str]) -> Documents:
        return cast("Documents", {name: self.document_by_name(name) for name in names})

    def foreign(self, name: str, read: Callable[[Path], Content]) -> Content:
        """Read an artifact of a foreign format. Errors are those of :meth:`table`; ``read`` raises PipelineError."""
        return self._checked(name, None, lambda _, file: read(file))

    @contextlib.contextmanager
    def content(self) -> Iterator[None]:
        """Name the folder in an error about the contents of its tables that no check of a single table finds."""
        try:
            yield
        except PipelineError as error:
            if type(error) not in (PipelineError, UpstreamError):
                raise
            raise type(error)(self.root, str(error)) from error

    @contextlib.contextmanager
    def apart(self) -> Iterator[list[str]]:
        """Yield a list of what artifacts read in the block lack; only some written artifacts depend on them."""
        lacking: list[str] = []
        kept, self.inherited = self.inherited, lacking
        try:
            yield lacking
        finally:
            self.inherited = kept

    def _checked(self, name: str, path: Path | None, read: Callable[[str, Path], Content]) -> Content:
        file = self._claim(name, path)
        try:
            return read(name, file)
        except OtherColumnsError as error:  # its content is what its writer left
            problem = f"was not written by this version of the program ({error.problem})"
            raise UpstreamError(file, problem, _remedy(name)) from error
        except (ValueError, TypeError, ArithmeticError, PipelineError) as error:
            first_line = next(iter(str(error).splitlines()), type(error).__name__)
            raise UpstreamError(file, f"corrupt ({first_line})", _remedy(name)) from error

    def _claim(self, name: str, path: Path | None) -> Path:
        """Check that the artifact is as its writer left it, and that no input of it has changed since."""
        file, remedy = path or self.path(name), _remedy(name)
        settle(file.parent)
        if not is_there(file) or not file.is_file():
            raise UpstreamError(file, "not found", f"{remedy} first")
        record = provenance.load(file, remedy)
        try:
            digest = provenance.sha256_of(file)
        except OSError as error:
            raise UpstreamError(file, f"cannot be read ({error.strerror})", remedy) from error
        if digest != record.sha256:
            raise UpstreamError(file, "changed since it was written", remedy)
        self._read[name] = (file, record, remedy)
        try:
            self._require_lineage(file, record, remedy)
        except UpstreamError:
            del self._read[name]  # a stage that goes on without it compares no other one with it
            raise
        self.record.notes += [f"{file}: incomplete ({reason})" for reason in record.incomplete]
        self.inherited += [f"made from {file.name}: {reason}" for reason in record.incomplete]
        self.record.reads[os.path.relpath(file, self.root)] = digest
        return file

    def _require_lineage(self, file: Path, record: Provenance, remedy: str) -> None:
        """Refuse what is stale or of another model; a lenient reader only notes it."""
        try:
            require_fresh(file, record, remedy, indifferent_to(self.record.stage))
            workload = require_same_workload(self._read.values())
            self.record.model_id, self.record.model_path, self.record.dimensions = workload
        except UpstreamError as error:
            if not self.lenient:
                raise
            if (note := str(error)) not in self.record.notes:
                self.record.notes.append(note)


def is_there(path: Path) -> bool:
    """Whether there is something at a path; UpstreamError where a folder on the way hides it, or a name is too long."""
    try:
        return path.exists()
    except OSError as error:
        raise UpstreamError(path, f"cannot be read ({error.strerror})", "make its folder searchable") from error


def absence_notes(names: Iterable[str]) -> list[str]:
    """Return a note for each stage that has not written its artifacts; optional stages need not have run."""
    files: dict[str, list[str]] = {}
    for name in names:
        if not STAGES[WRITER[name]].is_aside:
            files.setdefault(WRITER[name], []).append(ARTIFACTS[name].file)
    return [f"absent: {', '.join(missing)}; run {script}" for script, missing in files.items()]


def _read_table(name: str, file: Path) -> pd.DataFrame:
    import pandas as pd

    from common.artifacts.checks.schema import READ_AS, conform, decode_cells

    kinds = {column.name: column.kind for column in ARTIFACTS[name].columns}
    with np.errstate(invalid="raise"):  # a count that is infinite
        frame = pd.read_csv(
            file,
            dtype={column: READ_AS[kind] for column, kind in kinds.items() if kind in READ_AS},
            keep_default_na=False,
            na_values={column: [""] for column, kind in kinds.items() if READ_AS.get(kind) != "str"},
        )
    if not isinstance(frame.index, pd.RangeIndex):
        raise ValueError("rows are longer than the header")
    if frame.empty and not ARTIFACTS[name].may_be_empty:
        raise ValueError("it has no rows")
    return conform(name, decode_cells(name, frame))


def _read_document(name: str, file: Path) -> dict[str, Any]:
    content = json_text.parse(file.read_text(encoding="utf-8"))
    require_document(name, content)
    return dict(content)


def _remedy(name: str) -> str:
    return f"run {WRITER[name]}"
