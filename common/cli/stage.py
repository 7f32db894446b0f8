"""One run of a stage: the work that all numbered scripts have in common."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from common.artifacts.catalogue import ARTIFACTS
from common.artifacts.folder import Folder
from common.artifacts.journal import path_in, settle
from common.artifacts.provenance import Provenance, sidecar, tool_versions
from common.artifacts.stages import STAGES
from common.artifacts.transaction import Transaction
from common.artifacts.whole_folder import whole_folder
from common.cli import streams
from common.cli.flags.settings import Parser, Settings, parse
from common.cli.texts import wording
from common.messages.errors import PipelineError, UnboundDimensionsError, UnusableValueError, UpstreamError
from common.messages.note_kinds import ranked
from common.process.host_identity import host_identity

Beside = TypeVar("Beside")
MAKE_LINE = "MAKE_LINE"  # variable of the environment: the command line of make, without DIM
MAKE_VARIABLES = "MAKE_VARIABLES"  # by setting, the variable of make that gives it: "from_trace=TRACE threads=THREADS"
MOST_NOTES, MOST_WRITTEN = 2, 2  # with the line of a search, at most five lines on stderr
MISUSED = re.compile(r"^command line: argument (--[\w-]+)\S*: ")  # how argparse names a flag whose value is unusable
PLAIN_NAME = re.compile(r"[\w.:/+-]+")  # of a dimension that make can pass on


class StageRun:
    """A stage while it runs; ``tables`` is the folder that it reads, ``record`` the sidecar of what it writes."""

    def __init__(self, settings: Settings, flags: Mapping[str, str], record: Provenance, *, lenient: bool) -> None:
        self.settings = settings
        self.record = record
        self.tables = Folder(settings.out, record, lenient=lenient)
        self._spoken: Callable[[str], str] = str
        self._flags = flags
        self._written: list[str] = []  # a line for each artifact, the primary one first
        self._folders: list[str] = []

    def plain(self, text: str) -> str:
        """Replace the quantities and tables that a room names in angle brackets by flags and scripts."""
        return wording.plain(text, self._flags)

    def take_defaults(self, defaults: Mapping[str, Any], origin: str) -> Settings:
        """Fill in settings without a value from a file called ``origin``, in the sidecars as well."""
        self.settings = self.settings.with_defaults(defaults, origin)
        self.record.settings = self.settings.record()
        return self.settings

    def set_model(self, model_id: str, model_path: str, dimensions: Mapping[str, int]) -> None:
        """Enter the model and its bound dimensions into the sidecars."""
        self.record.model_id, self.record.model_path = model_id, model_path
        self.record.dimensions = dict(dimensions)

    def set_imported(self, facts: Mapping[str, Any], unused: Sequence[str]) -> None:
        """Say in the sidecars that the measurement was recorded elsewhere, on an unknown host.

        The facts are the imported files and what they say of the recording. No import depends on ``unused`` settings.
        """
        record = self.record
        record.imported, record.host = dict(facts), {}
        record.tools = {name: version for name, version in record.tools.items() if name != "onnxruntime"}
        record.settings = {name: entry for name, entry in record.settings.items() if name not in unused}
        for name in record.settings.keys() & facts.keys():
            if record.settings[name]["from"] != "flag":
                record.settings[name] = {"value": facts[name], "from": "the trace"}

    def folder(self, path: Path | None) -> Folder:
        """Return another folder of tables to read; the stage's own if none is given or if it is --out."""
        if path is None or os.path.realpath(path) == os.path.realpath(self.settings.out):  # of a loop of links, too
            return self.tables
        return Folder(path, Provenance(self.record.stage, self.record.command))

    def enter_reads(self, folders: Sequence[Folder]) -> None:
        """Enter what was read in other folders into the sidecars, with what it lacks; the model is the last one's."""
        for folder in (folder for folder in folders if folder is not self.tables):
            reads = folder.record.reads.items()
            self.record.reads |= {os.path.relpath(folder.root / name, self.settings.out): sha for name, sha in reads}
            self.tables.inherited += folder.inherited
        last = folders[-1].record
        self.set_model(last.model_id, last.model_path, last.dimensions)

    def beside(self, names: Sequence[str], subject: str, read: Callable[[], Beside]) -> Beside | None:
        """Return what is read from additional tables; None if one is missing, or (with a note) cannot be used."""
        try:
            return read() if all(map(self.tables.has, names)) else None
        except UpstreamError as error:
            self.note(f"{subject} is left out: {error}")
            return None

    def note(self, *notes: str) -> None:
        """Add notes to the sidecars, each once; they are printed when the stage ends."""
        new = dict.fromkeys(map(self.plain, notes))
        self.record.notes += [note for note in new if note not in self.record.notes]

    def print_notes_as(self, spoken: Callable[[str], str]) -> None:
        """Print notes in other words, such as labels of executed nodes; the sidecars keep the original notes."""
        self._spoken = spoken

    @contextlib.contextmanager
    def writing(self) -> Iterator[Transaction]:
        """Write artifacts: all of them are put in place if the block ends well, and none otherwise."""
        self.end_of_checks()
        transaction = Transaction(self.settings.out, self.record, self.tables.inherited)
        try:
            with transaction:
                streams.journals.append(path_in(self.settings.out))
                yield transaction
        finally:
            lines = transaction.written_lines()
            streams.files_in_place += lines
            self._written += lines

    @contextlib.contextmanager
    def writing_folder(self, folder: Path | None, quantity: str) -> Iterator[dict[str, str]]:
        """Write a folder if the user names one; see :func:`common.artifacts.whole_folder.whole_folder`."""
        if folder is None:
            yield {}
            return
        with whole_folder(folder, quantity) as texts:
            yield texts
        self._folders.append(f"wrote {folder} ({len(texts)} files)")
        streams.files_in_place += self._folders

    def show(self, text: str) -> None:
        """Print the stage's table on stdout."""
        streams.show(self.settings, text)

    def progress_bar(self, unit: str) -> Callable[[float, float], None]:
        """Return a progress bar on stderr; see :func:`common.cli.streams.progress_bar`."""
        return streams.progress_bar(self.settings, unit)

    def end_of_checks(self) -> None:
        """End the stage with success if it is to make only its checks (``--check``); it has written nothing yet."""
        if self.settings.check:
            raise SystemExit(0)

    def close(self) -> None:
        """Print the most important notes and written files; ``--all-notes`` prints all of them."""
        stage, written, more = STAGES.get(self.record.stage), self._written, list[str]()
        notes = ranked(self.record.notes, stage.writes if stage else ())
        if not self.settings.all_notes:
            if len(notes) > MOST_NOTES + 1:
                place = f" in {sidecar(self.settings.out / ARTIFACTS[stage.primary].file)}" if stage and written else ""
                more = [f"{len(notes) - MOST_NOTES} more notes{place}; --all-notes prints them"]
                notes = notes[:MOST_NOTES]
            if len(written) > MOST_WRITTEN:
                written = [f"{written[0]} and {len(written) - 1} more files"]
        lines = [line for note in notes for line in streams.note_lines(f"note: {self._spoken(note)}")]
        streams.say(self.settings, *lines, *more, *written, *self._folders)


@contextlib.contextmanager
def parsed(parser: Parser, argv: Sequence[str] | None) -> Iterator[Settings]:
    """Parse a command line; in errors of the block, replace the quantities and tables by flags and scripts."""
    given: Sequence[tuple[str, int]] = ()
    try:
        settings = parse(parser, argv)
        given = settings.values.get("dim") or ()
        yield settings
    except PipelineError as error:
        error.args = (_spelled_out(_for_make(error, given), parser),)
        raise


def _for_make(error: PipelineError, given: Sequence[tuple[str, int]]) -> PipelineError:
    """Return an error on unbound dimensions; if make runs the stage, its remedy is a command line of make."""
    line = os.environ.get(MAKE_LINE)
    if not (line and isinstance(error, UnboundDimensionsError) and all(map(PLAIN_NAME.fullmatch, error.sizes))):
        return error
    sizes = " ".join(f"{name}={size}" for name, size in (*given, *error.sizes.items()))
    return UnboundDimensionsError(error.problem, f'run for example `{line} DIM="{sizes}"`', error.sizes)


def _make_variables(flags: Collection[str]) -> dict[str, str]:
    """Return the variables of make for settings that have a flag; none if make does not run the stage."""
    if not os.environ.get(MAKE_LINE):
        return {}
    pairs = (word.partition("=") for word in os.environ.get(MAKE_VARIABLES, "").split())
    return {setting: variable for setting, _, variable in pairs if setting in flags}


def _spelled_out(error: PipelineError, parser: Parser) -> str:
    """Return the message of an error; a quantity without a flag (such as a key of a what-if) is named in words."""
    variables = _make_variables(parser.flags)
    line = wording.plain(str(error), {**parser.flags, **variables})
    by_flag = {parser.flags[setting]: f"{variable}: " for setting, variable in variables.items()}
    line = MISUSED.sub(lambda found: by_flag.get(found[1], found[0]), line)
    for name in error.quantities if isinstance(error, UnusableValueError) else ():
        line = line.replace(f"<{name}>", name.replace("_", "-"))
    return line


@contextlib.contextmanager
def stage(parser: Parser, argv: Sequence[str] | None, *, lenient: bool = False) -> Iterator[StageRun]:
    """Run a stage: parse its command line, and when the block ends well, print notes and the written files.

    Arguments and errors are those of :func:`parsed`; ``lenient`` accepts stale tables with a note.
    """
    with parsed(parser, argv) as settings:
        recorded = settings.record()
        record = Provenance(parser.prog, settings.command, recorded, host=host_identity(), tools=tool_versions())
        settle(settings.out)
        running = StageRun(settings, parser.flags, record, lenient=lenient)
        try:
            yield running
            running.close()
        except UpstreamError:
            running.end_of_checks()  # the missing tables are still to be made
            raise
