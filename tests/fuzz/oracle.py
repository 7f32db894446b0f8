"""What a case may end in: an exit code, at most one error line that names a path, whole tables, nothing lost."""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from common.artifacts.stages import STAGES
from tests.fuzz.programs import Ended

DONE, FAILED, COMMAND_LINE, UPSTREAM, BROKE_THRESHOLD, INTERRUPTED = 0, 1, 2, 3, 4, 130
CODES = (DONE, FAILED, COMMAND_LINE, UPSTREAM, BROKE_THRESHOLD, INTERRUPTED)
LONGEST_LINE = 1000
LIVE = ("dashboard.sqlite", "dashboard.token")  # written while a dashboard runs, however it ends
# marks of direction, and line ends that are none in a terminal
MARKS = "\u200e\u200f\u061c\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
WARNING = re.compile(r"^\S+\.py:\d+: (\w+Warning): ", re.MULTILINE)
QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"|\S*/\S+|(?<=not a valid )\w+")
DIGITS = re.compile(r"0x[0-9a-f]+|\d+")


@dataclass(frozen=True)
class Fault:
    """One way in which a case failed.

    Attributes:
        kind: traceback, hang, tables, ...
        site: where or what; equal kinds and sites are one defect.
        detail: the traceback, or the text in question.
    """

    kind: str
    site: str
    detail: str = ""


def faults_of(ended: Ended, names: tuple[str, ...]) -> Iterator[Fault]:
    """Judge how a program ended.

    Args:
        ended: the program.
        names: words of which its error line must have one, because it must say which file or flag it is about.
    """
    text = ended.out + ended.err
    if ended.code is None:
        yield Fault("traceback", ended.site, ended.trace)
    elif "Traceback (most recent call last)" in text:
        yield Fault("traceback", _last_frame(text), text)
    elif ended.code not in CODES:
        yield Fault("exit code", f"{ended.words[0]}: {ended.code}", ended.err)
    errors = [line for line in ended.err.splitlines() if ": error: " in line]
    if ended.code in (FAILED, COMMAND_LINE, UPSTREAM) and len(errors) != 1:
        yield Fault("error lines", f"{ended.words[0]}: {len(errors)} with exit code {ended.code}", ended.err)
    if ended.code in (DONE, BROKE_THRESHOLD, INTERRUPTED) and errors:
        yield Fault("error lines", f"{ended.words[0]}: one with exit code {ended.code}", ended.err)
    for line in errors[:1]:
        if not any(name in line.replace("\\x3c", "<") for name in names):
            yield Fault("no path", _pattern(line), line)
        if len(line) > LONGEST_LINE:
            yield Fault("long line", _pattern(line), line)
    if odd := sorted({name_of(letter) for letter in text if is_odd(letter)}):
        yield Fault("control characters", f"{ended.words[0]}: {', '.join(odd)}", repr(text))
    for warning in WARNING.finditer(ended.err):
        yield Fault("warning", _pattern(ended.err[warning.start() :].splitlines()[0]), ended.err)


def is_odd(letter: str) -> bool:
    """Whether a character acts on a terminal instead of being shown there."""
    if letter == "\n":
        return False
    return unicodedata.category(letter) in ("Cc", "Cs") or letter in MARKS


def name_of(letter: str) -> str:
    """A character that cannot be shown."""
    return f"U+{ord(letter):04X}"


def _last_frame(text: str) -> str:
    frames = re.findall(r'File "([^"]*)", line \d+, in (\S+)', text)
    ours = [frame for frame in frames if "/site-packages/" not in frame[0] and "/lib/python" not in frame[0]]
    raised = [line for line in text.splitlines() if re.match(r"^\w[\w.]*(Error|Exception|Interrupt)\b", line)]
    place = (ours or frames or [("?", "?")])[-1]
    return f"{(raised or ['?'])[-1].partition(':')[0]} in {Path(place[0]).name}:{place[1]}"


def _pattern(line: str) -> str:
    """A line without what differs between cases of one defect."""
    return QUOTED.sub("…", DIGITS.sub("N", line)).partition("(")[0][:120]


# --- tables ----------------------------------------------------------------------------------------------------------


def digests(folder: Path) -> dict[str, str]:
    """SHA-256 of every file of a folder that is not hidden, by its path in the folder."""
    if not folder.is_dir():
        return {}
    files = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    found = {str(path.relative_to(folder)): path for path in files}
    return {
        name: hashlib.sha256(path.read_bytes()).hexdigest()
        for name, path in sorted(found.items())
        if not any(part.startswith(".") for part in Path(name).parts)
    }


def leftovers(folder: Path) -> list[str]:
    """Temporary files that a stage left."""
    return sorted(path.name for path in folder.glob(".*") if path.name not in (".lock", ".make"))


def table_faults(folder: Path, code: int | None, before: Mapping[str, str], script: str) -> Iterator[Fault]:
    """Judge the tables of a folder after a stage.

    Args:
        folder: where the stage writes.
        code: its exit code.
        before: digests of the files that stood there before.
        script: the stage.
    """
    after = {name: digest for name, digest in digests(folder).items() if not name.startswith("incomplete/")}
    if code not in (DONE, BROKE_THRESHOLD):
        lost = sorted(name for name in before if after.get(name) != before[name] and not name.startswith(LIVE))
        added = sorted(name for name in after.keys() - before.keys() if not name.startswith(LIVE))
        if lost or added:
            yield Fault("tables", f"{script}: changed by a failed stage", f"lost {lost}, new {added}")
    else:
        yield from unfinished(folder, script)
    if left := leftovers(folder):
        yield Fault("leftovers", f"{script}: {DIGITS.sub('N', left[0])[:40]}", ", ".join(left))


def unfinished(folder: Path, script: str) -> Iterator[Fault]:
    """Artifacts that do not agree with their sidecars, or that one run of their stage did not write together."""
    for sidecar in sorted(folder.glob("*.meta.json")):
        try:
            record = json.loads(sidecar.read_text(encoding="utf-8"))
            digest, stage = record["sha256"], record["stage"]
        except (ValueError, TypeError, KeyError, OSError, RecursionError):
            continue  # a fault of the case itself
        if stage != script:
            continue
        stem = sidecar.name.removesuffix(".meta.json")
        files = [path for path in folder.glob(f"{stem}.*") if path != sidecar and path.is_file()]
        if not any(hashlib.sha256(path.read_bytes()).hexdigest() == digest for path in files):
            yield Fault("tables", f"{script}: {stem} and its sidecar disagree", str(sidecar))
    if script in STAGES and not any(folder.glob("*.meta.json")):
        yield Fault("tables", f"{script}: ended well without a table", str(folder))
