"""The output of one stage in a folder: written to temporary files, and put in place all together or not at all."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from common.artifacts import journal, provenance
from common.artifacts.catalogue import ARTIFACTS
from common.artifacts.checks.documents import require_document
from common.artifacts.journal import ASIDE, PICTURE_SUFFIXES
from common.artifacts.lineage import VARIANT, require_variants
from common.artifacts.provenance import Provenance
from common.artifacts.stages import STAGES
from common.messages.errors import PipelineError
from common.process import interrupts

if TYPE_CHECKING:  # see the folder
    import pandas as pd

    from common.table_rows import Tables, TypedWriter
else:
    TypedWriter = object

RESERVED_BYTES, RESERVED_BYTES_PER_ROW = 4 * 2**20, 64


class Transaction(TypedWriter):
    """The artifacts that one stage writes, as a context: left without an error, it puts all of them in place.

    A missing folder is created. Sidecars state ``record``, and why what the stage read is incomplete (``inherited``).
    """

    def __init__(self, folder: Path, record: Provenance, inherited: Sequence[str] = ()) -> None:
        self.folder = folder
        self.record = record
        self._written: set[Path] = set()
        self._row_counts: dict[str, int] = {}
        self.targets = folder  # another folder once the tables are set aside
        self._inherited = inherited
        self._staged: list[tuple[Path, Path]] = []  # (temporary, target)
        self._without_sidecar: list[tuple[Path, Path]] = []  # pictures, and pages
        self._obsolete: list[Path] = []
        self._incomplete: dict[str, list[str]] = {}
        self._swept: dict[str, list[str]] = {}  # dimensions that differ between the rows of a table
        self.commit_elsewhere: Callable[[], None] = lambda: None  # if it fails, no file is replaced

    def __enter__(self) -> Transaction:
        """Lock the folder; PipelineError where a file cannot be written there, or another stage is writing."""
        with self._reporting():
            self.folder.mkdir(parents=True, exist_ok=True)
            holder = f"{self.record.stage} (process {os.getpid()})"
            with contextlib.ExitStack() as stack:
                self._staging = stack.enter_context(journal.holding(self.folder, holder))
                for name in STAGES[self.record.stage].leaves:
                    journal.require_replaceable(self.path(name))  # now, not after an hour of measuring
                self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Put everything in place, or drop it if the block raised; then release the folder.

        Raises:
            PipelineError: the disk is full, or the folder cannot be written.
        """
        with self._stack:
            if kind is None:
                with self._reporting():
                    self._commit()

    def written_lines(self) -> list[str]:
        """One line for each artifact that was put in place, the primary one first."""
        stage = STAGES[self.record.stage]
        names = (name for name in dict.fromkeys((stage.primary, *stage.leaves)) if self.path(name) in self._written)
        return [f"wrote {self.path(name)}{self._extent(name)}" for name in names]

    def _extent(self, name: str) -> str:
        if ARTIFACTS[name].form == "picture":
            return f" and {PICTURE_SUFFIXES[1]}"
        return f" ({self._row_counts[name]} rows)" if name in self._row_counts else ""

    # --- staging --------------------------------------------------------------------------------------------------

    def path(self, name: str) -> Path:
        return self.targets / ARTIFACTS[name].file

    def add_table(self, name: str, frame: pd.DataFrame) -> pd.DataFrame:
        """Check a table, stage it, and return it in its declared dtypes."""
        from common.artifacts.checks.schema import conform, write_csv

        checked = conform(name, frame)
        if VARIANT in checked:
            self._enter_variants(name, checked)
        with self._opened(self._staged_as(name)) as file:
            write_csv(name, checked, file)
        self._row_counts[name] = len(checked)
        return checked

    def _enter_variants(self, name: str, frame: pd.DataFrame) -> None:
        """Note which dimensions the rows of a table of variants sweep, for its sidecar; all must bind the same."""
        swept = sorted({axis for row in frame[VARIANT] for axis in row})
        try:
            require_variants(frame[VARIANT], swept, {})
        except ValueError as error:
            raise PipelineError(ARTIFACTS[name].file, str(error)) from error
        self._swept[name] = swept

    if not TYPE_CHECKING:  # the types by name are those of TypedWriter

        def add_rows(self, name: str, rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
            """Check a table that is given as rows, and stage it; there may be no rows."""
            return self.add_rows_by_name(name, rows)

        def add_document(self, name: str, content: Mapping[str, Any]) -> None:
            """Check a flat document and stage it."""
            require_document(name, content)
            ordered = {column.name: content[column.name] for column in ARTIFACTS[name].columns}
            self.add_text(name, json.dumps(ordered, indent=2, ensure_ascii=False, allow_nan=False) + "\n")

    def add_rows_by_name(self, name: str, rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
        """Do the same as :meth:`add_rows` for a name that is a variable, so that mypy knows no type of its rows."""
        from common.artifacts.frames import frame_of

        return self.add_table(name, frame_of(rows, [column.name for column in ARTIFACTS[name].columns]))

    def add_tables(self, tables: Tables) -> None:
        for name, rows in tables.items():
            self.add_rows_by_name(name, cast("Iterable[Mapping[str, Any]]", rows))

    def add_text(self, name: str, text: str) -> None:
        self._write(self._staged_as(name), text)

    def add_bytes(self, name: str, content: bytes) -> None:
        with self._reporting():
            self._staged_as(name).write_bytes(content)

    def add_file(self, name: str, temporary: Path) -> None:
        """Stage a file that another program wrote to :meth:`temporary`."""
        self._staged.append((temporary, self.path(name)))

    def add_copy(self, name: str, source: Path) -> None:
        with self._reporting():
            shutil.copyfile(source, self._staged_as(name))

    def remove(self, name: str) -> None:
        """Remove an artifact of an earlier run that this run does not write."""
        self._obsolete += [self.path(name), provenance.sidecar(self.path(name))]

    def remove_others(self, names: Iterable[str]) -> None:
        """Remove those of these artifacts that earlier stages wrote and this one has not staged."""
        staged = {target for _, target in self._staged}
        for name in names:
            if self.path(name) not in staged:
                self.remove(name)

    def add_or_remove(self, contents: Mapping[str, str | bytes], *names: str) -> None:
        """Stage text and binary artifacts; one without a content is removed, as :meth:`remove` does."""
        for name in names:
            match contents.get(name):
                case None:
                    self.remove(name)
                case bytes(content):
                    self.add_bytes(name, content)
                case str(content):
                    self.add_text(name, content)

    def add_page(self, name: str, text: str) -> None:
        """Stage a page that shows another file with the same stem; the sidecar of that file is for both."""
        temporary = self.temporary(ARTIFACTS[name].file)
        self._without_sidecar.append((temporary, self.path(name)))
        self._write(temporary, text)

    def add_picture(self, name: str, drawn: Mapping[str, bytes]) -> None:
        """Stage a picture by file suffix; a suffix that is missing removes the picture of an earlier run."""
        for suffix in PICTURE_SUFFIXES:
            target = self.path(name).with_suffix(suffix)
            if suffix not in drawn:
                self._obsolete.append(target)
                continue
            temporary = self.temporary(target.name)
            self._without_sidecar.append((temporary, target))
            with self._reporting():
                temporary.write_bytes(drawn[suffix])

    def mark_incomplete(self, reasons: Sequence[str], *names: str) -> None:
        """Say in the sidecars of these artifacts what they lack; their readers pass it on."""
        for name in names:
            self._incomplete[name] = [*self._incomplete.get(name, ()), *reasons]

    def set_aside(self, reason: str) -> None:
        """Mark everything staged as incomplete and direct it to a subfolder, so that earlier tables stay."""
        self.mark_incomplete([reason], *STAGES[self.record.stage].leaves)
        self.targets = self.folder / ASIDE
        self._staged = [(temporary, self.targets / target.name) for temporary, target in self._staged]

    # --- space ----------------------------------------------------------------------------------------------------

    def temporary(self, file_name: str) -> Path:
        """Path that another program may write to; :meth:`add_file` takes it over."""
        return self._staging / file_name

    @contextlib.contextmanager
    def scratch(self) -> Iterator[Path]:
        """Make a folder for files that another program writes, until the block ends; PipelineError on a full disk."""
        folder = self._staging / "scratch"
        folder.mkdir()
        try:
            yield folder
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            with self._reporting():
                raise
        finally:
            shutil.rmtree(folder)

    def reserve(self, row_count: float) -> None:
        """Reserve space for a number of rows, at most half of the free space: the disk may fill during the runs."""
        with self._reporting():
            wanted = RESERVED_BYTES + RESERVED_BYTES_PER_ROW * int(row_count)
            # Zeros are written, because not every file system can reserve space without writing.
            self._reserve.write_bytes(bytes(min(wanted, shutil.disk_usage(self.folder).free // 2)))

    def release(self) -> None:
        """Give the reserved space back."""
        self._reserve.unlink(missing_ok=True)

    @property
    def _reserve(self) -> Path:
        return self.temporary("reserve")

    # --- the folder -----------------------------------------------------------------------------------------------

    def _reporting(self) -> contextlib.AbstractContextManager[None]:
        return journal.reporting(self.folder)

    def _staged_as(self, name: str) -> Path:
        """Stage an artifact, and return the temporary file that holds it until the commit."""
        temporary = self.temporary(ARTIFACTS[name].file)
        self.add_file(name, temporary)
        return temporary

    def _write(self, temporary: Path, text: str) -> None:
        with self._opened(temporary) as file:
            file.write(text)

    @contextlib.contextmanager
    def _opened(self, temporary: Path) -> Iterator[IO[str]]:
        """Open a file for text; where a path holds bytes that are no UTF-8, they become question marks."""
        with self._reporting(), temporary.open("w", encoding="utf-8", errors="replace", newline="") as file:
            yield file

    def _commit(self) -> None:
        """Write the sidecars (notes and reads are complete by now), then put everything in place.

        The primary artifact goes last: while it is missing or old, make runs the stage again.
        """
        self._stage_sidecars()
        primary = ARTIFACTS[STAGES[self.record.stage].primary].file
        files = sorted((*self._without_sidecar, *self._staged), key=lambda file: file[1].name == primary)
        with interrupts.Deferred():
            journal.put_in_place(self.folder, files, self._obsolete, self.commit_elsewhere)
            self._written = {target for _, target in files}

    def _stage_sidecars(self) -> None:
        lacks = {self.path(name): reasons for name, reasons in self._incomplete.items()}
        swept_by = {self.path(name): axes for name, axes in self._swept.items()}
        for temporary, target in tuple(self._staged):
            swept = swept_by.get(target, [])
            record = replace(
                self.record,
                sha256=provenance.sha256_of(temporary),
                incomplete=[*self._inherited, *lacks.get(target, [])],
                swept=swept,
                dimensions={name: size for name, size in self.record.dimensions.items() if name not in swept},
            )
            sidecar = provenance.sidecar(target)
            self._staged.append((self.temporary(sidecar.name), sidecar))
            self._write(self.temporary(sidecar.name), record.to_json())
