"""A folder of artifacts: read with their lineage checked, written all together or not at all."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import pandas as pd

from common.artifacts import provenance
from common.artifacts.catalogue import ARTIFACTS
from common.artifacts.frames import frame_of
from common.artifacts.lineage import require_fresh, require_same_workload
from common.artifacts.provenance import Provenance
from common.artifacts.schema import READ_AS, conform, decode_cells, write_csv
from common.artifacts.stages import STAGES, WRITER
from common.errors import PipelineError, UpstreamError

LOCK, TEMPORARY = ".lock", ".tmp"
ASIDE = "incomplete"  # where the tables of a measurement that failed on its way are kept
RESERVED_BYTES, RESERVED_BYTES_PER_ROW = 4 * 2**20, 64
PICTURE_SUFFIXES = (".svg", ".png")


class Store:
    """The artifacts of one folder, as one stage sees them.

    Args:
        folder: where the artifacts stand; it is made when the first one is written.
        record: what every sidecar written by this stage says; reads and notes are added as they happen.
        lenient: take stale tables and tables of another model with a note (the view draws what stands there).
    """

    def __init__(self, folder: Path, record: Provenance, *, lenient: bool = False) -> None:
        """Start with nothing read and nothing staged."""
        self.folder = folder
        self.targets = folder  # where what is staged goes: another folder once it is set aside
        self.record = record
        self.lenient = lenient
        self._read: dict[str, tuple[Path, Provenance, str]] = {}
        self._staged: list[tuple[Path, Path]] = []  # (temporary, target)
        self._pictures: list[tuple[Path, Path]] = []  # the same, without a sidecar
        self._obsolete: list[Path] = []
        self._incomplete: dict[str, list[str]] = {}
        self._inherited: list[str] = []
        self._reserve: Path | None = None
        self._written: set[Path] = set()

    # --- reading --------------------------------------------------------------------------------------------------

    def path(self, name: str) -> Path:
        """Where the artifact stands."""
        return self.targets / ARTIFACTS[name].file

    @property
    def written(self) -> list[Path]:
        """What this stage has put in place, in the order of the catalogue."""
        return [path for name in STAGES[self.record.stage].writes if (path := self.path(name)) in self._written]

    def provenance(self, name: str) -> Provenance:
        """The sidecar of an artifact that has been read."""
        return self._read[name][1]

    def table(self, name: str, path: Path | None = None) -> pd.DataFrame:
        """Read a table; JSON cells come back as lists and mappings, unknown numbers as NA."""
        artifact, file = ARTIFACTS[name], self._claim(name, path)
        kinds = {column.name: column.kind for column in artifact.columns}
        try:
            frame = pd.read_csv(
                file,
                dtype={column: READ_AS[kind] for column, kind in kinds.items() if kind in READ_AS},
                keep_default_na=False,
                na_values={column: [""] for column, kind in kinds.items() if READ_AS.get(kind) != "str"},
            )
            if not isinstance(frame.index, pd.RangeIndex):
                raise ValueError("rows are longer than the header")
            return conform(name, decode_cells(name, frame))
        except (ValueError, TypeError, PipelineError) as error:
            raise UpstreamError(file, f"corrupt ({_detail(error)})", _remedy(name)) from error

    def document(self, name: str, path: Path | None = None) -> dict[str, Any]:
        """Read a flat JSON document; an unknown is None."""
        file = self._claim(name, path)
        try:
            content = json.loads(file.read_text(encoding="utf-8"), parse_constant=_refuse_constant)
            conform(name, pd.DataFrame([content]))
        except (ValueError, TypeError, PipelineError) as error:
            raise UpstreamError(file, f"corrupt ({_detail(error)})", _remedy(name)) from error
        return dict(content)

    def file(self, name: str) -> Path:
        """Path of an artifact of a foreign format, checked like the others."""
        return self._claim(name, None)

    def _claim(self, name: str, path: Path | None) -> Path:
        """Check that the artifact is what its writer left and that nothing it came from has changed since."""
        file, remedy = path or self.path(name), _remedy(name)
        if not file.is_file():
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
            require_fresh(file, record, remedy)
            workload = require_same_workload(self._read.values())
            self.record.model_id, self.record.model_path, self.record.dimensions = workload
        except UpstreamError as error:
            if not self.lenient:
                raise
            self.record.notes.append(str(error))
        self.record.notes += [f"{file}: incomplete ({reason})" for reason in record.incomplete]
        self._inherited += [f"made from {file.name}: {reason}" for reason in record.incomplete]
        self.record.reads[os.path.relpath(file, self.folder)] = digest
        return file

    # --- writing --------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def writing(self) -> Iterator[Store]:
        """Hold the folder, stage what is written, and put all of it in place only when the block ends well.

        Raises:
            PipelineError: the folder cannot be written, the disk is full, or another stage is writing there.
        """
        with contextlib.ExitStack() as stack:
            with self._reporting():
                self.folder.mkdir(parents=True, exist_ok=True)
                # Without a buffer: what a full disk refuses is not written again when the file is closed.
                self._hold(stack.enter_context((self.folder / LOCK).open("a+b", buffering=0)))
            stack.callback(self._discard)
            yield self
            with self._reporting():
                self._commit()

    @contextlib.contextmanager
    def _reporting(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise PipelineError(self.folder, "the disk is full", "free some space or use --out FOLDER") from error
            raise PipelineError(self.folder, f"cannot be written ({error.strerror})", "use --out FOLDER") from error

    def _discard(self) -> None:
        self.release()
        for temporary, _ in (*self._staged, *self._pictures):
            temporary.unlink(missing_ok=True)
        self._staged.clear()
        self._pictures.clear()
        self._obsolete.clear()

    def _hold(self, lock: IO[bytes]) -> None:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            holder = lock.read().decode(errors="replace").strip() or "another stage"
            raise PipelineError(self.folder, f"{holder} is writing here", "wait for it or use --out FOLDER") from None
        lock.truncate(0)
        lock.write(f"{self.record.stage} (process {os.getpid()})".encode())
        for leftover in self.folder.glob(f".*{TEMPORARY}"):  # of a stage that was killed; we hold the lock
            shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink(missing_ok=True)

    def temporary(self, file_name: str) -> Path:
        """A path inside the folder that another program may write to; :meth:`add_file` takes it over."""
        return self.folder / f".{file_name}{TEMPORARY}"

    @contextlib.contextmanager
    def scratch(self) -> Iterator[Path]:
        """A folder beside the artifacts for files that another program writes; it goes when the block ends."""
        with tempfile.TemporaryDirectory(prefix=".scratch-", suffix=TEMPORARY, dir=self.folder) as folder:
            yield Path(folder)

    def reserve(self, row_count: float) -> None:
        """Take space for so many rows, or half of what is free; a disk may fill while they are measured."""
        with self._reporting():
            wanted = RESERVED_BYTES + RESERVED_BYTES_PER_ROW * int(row_count)
            file = self._reserve = self.temporary("reserve")
            # Written out: not every file system can set space aside.
            file.write_bytes(bytes(min(wanted, shutil.disk_usage(self.folder).free // 2)))

    def release(self) -> None:
        """Give the reserved space back."""
        if self._reserve:
            self._reserve.unlink(missing_ok=True)

    def mark_incomplete(self, reasons: Sequence[str], *names: str) -> None:
        """Say in the sidecars of these artifacts what they lack; their readers pass it on."""
        for name in names:
            self._incomplete[name] = [*self._incomplete.get(name, ()), *reasons]

    def set_aside(self, reason: str) -> None:
        """Mark all that is staged as incomplete, and put it into a folder of its own: what stood here stays."""
        self.mark_incomplete([reason], *STAGES[self.record.stage].writes)
        self.targets = self.folder / ASIDE
        self._staged = [(temporary, self.targets / target.name) for temporary, target in self._staged]

    def add_table(self, name: str, frame: pd.DataFrame) -> pd.DataFrame:
        """Check a table and stage it; returns it in its declared dtypes."""
        checked = conform(name, frame)
        temporary = self.temporary(ARTIFACTS[name].file)
        self.add_file(name, temporary)
        with self._opened(temporary) as file:
            write_csv(name, checked, file)
        return checked

    def add_rows(self, name: str, rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
        """The same from rows; there may be none."""
        return self.add_table(name, frame_of(rows, [column.name for column in ARTIFACTS[name].columns]))

    def add_document(self, name: str, content: dict[str, Any]) -> None:
        """Check a flat document and stage it."""
        conform(name, pd.DataFrame([content]))
        ordered = {column.name: content[column.name] for column in ARTIFACTS[name].columns}
        self.add_text(name, json.dumps(ordered, indent=2, ensure_ascii=False, allow_nan=False) + "\n")

    def add_bytes(self, name: str, content: bytes) -> None:
        """Stage a binary artifact that this program writes itself."""
        temporary = self.temporary(ARTIFACTS[name].file)
        self.add_file(name, temporary)
        with self._reporting():
            temporary.write_bytes(content)

    def add_picture(self, name: str, drawn: Mapping[str, bytes]) -> None:
        """Stage a picture by file suffix; one that could not be drawn must not leave that of an earlier run behind."""
        for suffix in PICTURE_SUFFIXES:
            target = self.path(name).with_suffix(suffix)
            if suffix not in drawn:
                self._obsolete.append(target)
                continue
            temporary = self.temporary(target.name)
            self._pictures.append((temporary, target))
            with self._reporting():
                temporary.write_bytes(drawn[suffix])

    def add_file(self, name: str, temporary: Path) -> None:
        """Stage a file that another program wrote to :meth:`temporary`."""
        self._staged.append((temporary, self.path(name)))

    def add_text(self, name: str, text: str) -> None:
        """Stage an artifact that this program writes itself."""
        temporary = self.temporary(ARTIFACTS[name].file)
        self.add_file(name, temporary)
        self._write(temporary, text)

    def _write(self, temporary: Path, text: str) -> None:
        with self._opened(temporary) as file:
            file.write(text)

    @contextlib.contextmanager
    def _opened(self, temporary: Path) -> Iterator[IO[str]]:
        """A file to write, on the disk when the block ends."""
        with self._reporting(), temporary.open("w", encoding="utf-8", newline="") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())

    def _commit(self) -> None:
        """Write the sidecars (notes and reads are complete now), then rename everything into place."""
        lacks = {self.path(name): reasons for name, reasons in self._incomplete.items()}
        for temporary, target in tuple(self._staged):
            self.record.sha256 = provenance.sha256_of(temporary)
            self.record.incomplete = [*self._inherited, *lacks.get(target, [])]
            meta = provenance.sidecar(target)
            self._staged.append((self.temporary(meta.name), meta))
            self._write(self.temporary(meta.name), self.record.to_json())
        for temporary, target in (*self._pictures, *self._staged):
            target.parent.mkdir(exist_ok=True)
            temporary.replace(target)
            self._written.add(target)
        for target in self._obsolete:
            target.unlink(missing_ok=True)
        self._discard()


def _refuse_constant(text: str) -> float:
    """NaN and Infinity are no JSON, and no unknown either: that is null."""
    raise ValueError(f"{text} is not JSON")


def _remedy(name: str) -> str:
    return f"run {WRITER[name]}"


def _detail(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
