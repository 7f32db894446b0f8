"""Damaged tables: cells, columns, headers, encodings, sidecars and lineage, through every stage that reads them.

The tables of what is run by hand (loads, pairs, comparisons, NPUs) are in a folder of their own.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import os
import random
import shutil
from pathlib import Path

import onnx

from common.artifacts.catalogue import ARTIFACTS
from common.artifacts.provenance import sha256_of, sidecar
from common.artifacts.stages import STAGES as DECLARED
from tests.fuzz.configurations import GOOD, MODEL, WORKLOAD
from tests.fuzz.pipeline import ENGINE, STAGES, WORKLOADS, build_tables, in_child, must
from tests.fuzz.protos import mutate
from tests.fuzz.trial import Trial
from tests.fuzz.values import CELLS, broken_bytes, mutated_json, recoded

FLAGS = {script: flags for script, *flags in STAGES} | {"23_overlay_estimate.py": [*ENGINE], "24_what_if.py": []}
BY_HAND = "by-hand"
MADE_BY_HAND = ("14", "18", "19", "20", "21", "22", "10", "13", "15", "11", "17", "16")  # 10 after others that load
READERS = {script: GOOD[script] for script in GOOD if script[:2] in ("06", "09", "11", "17")}
READERS |= {"10_load_test.py": (*MODEL, "--best", "--duration", "100ms")}
CHANGES = (
    *("header only", "no header", "row twice", "row gone", "rows gone", "rows reversed", "row of nothing"),
    *("column gone", "column twice", "column renamed", "column moved", "cell too many", "cell too few"),
)
SPECIAL = ("missing", "folder", "pipe", "link to itself", "of another model", "another table", "empty")


class Tables:
    """The campaign.

    Args:
        workloads: the models whose tables are damaged.
    """

    name = "tables"

    def __init__(self, workloads: tuple[str, ...] = tuple(WORKLOADS)) -> None:
        """Build nothing yet."""
        self.workloads = workloads

    def prepare(self, folder: Path, unit: float) -> None:
        """Run all stages once."""
        self.folder = folder
        in_child(build_tables, folder, self.workloads)
        if WORKLOAD in self.workloads:
            shutil.copytree(folder / WORKLOAD, folder / BY_HAND)
            in_child(_run_by_hand, folder / BY_HAND)

    def run(self, rng: random.Random, trial: Trial) -> None:
        """Damage one table or two, and run a stage that reads them."""
        is_by_hand = WORKLOAD in self.workloads and rng.random() < 0.4
        source = self.folder / (BY_HAND if is_by_hand else rng.choice(self.workloads))
        shutil.copytree(source, trial.folder, symlinks=True, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".*"))
        flags = READERS if is_by_hand else FLAGS
        script = rng.choice([*flags])
        read = [name for name in DECLARED[script].reads if not is_by_hand or _writer(name) in MADE_BY_HAND]
        for name in rng.sample(read or DECLARED[script].reads, rng.choice((1, 1, 1, 2))):
            self._damage(rng, trial, name)
        trial.run(script, *flags[script])

    def _damage(self, rng: random.Random, trial: Trial, name: str) -> None:
        path = trial.out / ARTIFACTS[name].file
        if not path.is_file():
            return
        draw = rng.random()
        if draw < 0.06:
            what = rng.choice(SPECIAL)
            trial.tell(f"{path.name}: {what}")
            self._replace(rng, path, what)
        elif draw < 0.2:
            _damage_sidecar(rng, trial, sidecar(path))
        else:
            before = sha256_of(path)
            path.write_bytes(_damaged(rng, trial, path))
            if rng.random() < 0.93:  # else the stage sees at once that the file is not what was written
                _agree(trial.out, before, sha256_of(path))

    def _replace(self, rng: random.Random, path: Path, what: str) -> None:
        other = self.folder / rng.choice(self.workloads) / "out" / path.name
        beside = rng.choice(sorted(path.parent.glob("*.csv")))
        path.unlink()
        if what == "folder":
            path.mkdir()
        elif what == "pipe":
            os.mkfifo(path)
        elif what == "link to itself":
            path.symlink_to(path.name)
        elif what == "of another model" and other.is_file():
            shutil.copy(other, path)
            shutil.copy(sidecar(other), sidecar(path))
        elif what == "another table" and beside.is_file():
            shutil.copy(beside, path)
            _agree(path.parent, json.loads(sidecar(path).read_text())["sha256"], sha256_of(path))
        elif what == "empty":
            path.touch()
            _agree(path.parent, json.loads(sidecar(path).read_text())["sha256"], sha256_of(path))


def _run_by_hand(place: Path) -> None:
    os.chdir(place)
    for number in MADE_BY_HAND:
        if number != "21" or importlib.util.find_spec("mlperf_loadgen"):
            must(*next((script, *flags) for script, flags in GOOD.items() if script.startswith(number)))


def _writer(name: str) -> str:
    """The number of the stage that writes a table."""
    return next(script[:2] for script, stage in DECLARED.items() if name in stage.writes)


def _agree(folder: Path, old: str, new: str) -> None:
    """Let every sidecar name the new digest, so that the damage passes for what a stage wrote."""
    for file in folder.glob("*.meta.json"):
        text = file.read_text(encoding="utf-8", errors="surrogateescape")
        if old in text:
            file.write_text(text.replace(old, new), encoding="utf-8", errors="surrogateescape")


def _damage_sidecar(rng: random.Random, trial: Trial, path: Path) -> None:
    draw = rng.random()
    if draw < 0.1:
        path.unlink()
        trial.tell(f"{path.name}: deleted")
        return
    content = path.read_bytes()
    if draw < 0.3:
        content = broken_bytes(rng, content) if draw < 0.2 else recoded(rng, content)
    else:
        content = _json_text(rng, mutated_json(rng, json.loads(content)))
    path.write_bytes(content)
    trial.tell(f"{path.name}: {content[:2000]!r}")


def _json_text(rng: random.Random, value) -> bytes:
    text = json.dumps(value, ensure_ascii=rng.random() < 0.5)
    if rng.random() < 0.05:
        text = text.replace("1", rng.choice(("NaN", "1e999", "-Infinity", "1" * 5000, "01", "[" * 2000)), 1)
    return text.encode("utf-8", "surrogatepass")


def _damaged(rng: random.Random, trial: Trial, path: Path) -> bytes:
    """The content of an artifact with a fault in it."""
    content, draw = path.read_bytes(), rng.random()
    if draw < 0.08:
        trial.tell(f"{path.name}: bytes")
        return broken_bytes(rng, content)
    if draw < 0.14 and path.suffix != ".onnx":
        trial.tell(f"{path.name}: encoding")
        return recoded(rng, content)
    if path.suffix == ".csv":
        return _damaged_csv(rng, trial, path.name, content.decode())
    if path.suffix == ".json":
        document = json.loads(content)
        changed = _json_text(rng, mutated_json(rng, document))
        trial.tell(f"{path.name}: {changed[:2000]!r}")
        return changed
    model = onnx.ModelProto.FromString(content)
    changes = [mutate(rng, model, [model]) for _ in range(rng.choice((1, 2, 3)))]
    trial.tell(f"{path.name}: {'; '.join(changes)}")
    return model.SerializeToString()


def _damaged_csv(rng: random.Random, trial: Trial, name: str, text: str) -> bytes:
    rows = list(csv.reader(io.StringIO(text)))
    has_rows = len(rows) > 1
    change = _change_cells(rng, rows) if has_rows and rng.random() < 0.75 else _change_table(rng, rows)
    trial.tell(f"{name}: {change}")
    written = io.StringIO()
    csv.writer(written, lineterminator="\n").writerows(rows)
    return written.getvalue().encode("utf-8", "surrogatepass")


def _change_cells(rng: random.Random, rows: list[list[str]]) -> str:
    """Change one cell, a whole column, or swap two cells."""
    row, column = rng.randrange(1, len(rows)), rng.randrange(len(rows[0]))
    draw = rng.random()
    if draw < 0.6:
        rows[row][column] = rng.choice(CELLS)
        return f"row {row}, {rows[0][column]}: {rows[row][column]!r:.80}"
    if draw < 0.8:
        value = rng.choice(CELLS)
        for cells in rows[1:]:
            cells[column] = value
        return f"column {rows[0][column]}: {value!r:.80}"
    other, beside = rng.randrange(1, len(rows)), rng.randrange(len(rows[0])) if draw > 0.9 else column
    rows[row][column], rows[other][beside] = rows[other][beside], rows[row][column]
    return f"row {row}, {rows[0][column]} swapped with row {other}, {rows[0][beside]}"


def _change_table(rng: random.Random, rows: list[list[str]]) -> str:
    """Delete, repeat or reorder rows and columns, or change the header."""
    row, column = rng.randrange(len(rows)), rng.randrange(len(rows[0]))
    change = rng.choice(CHANGES)
    if change == "header only":
        del rows[1:]
    elif change == "no header":
        del rows[0]
    elif change == "row twice":
        rows.append(list(rows[row]))
    elif change == "row gone":
        del rows[row]
    elif change == "rows gone":
        rows[1:] = [cells for cells in rows[1:] if rng.random() < 0.5]
    elif change == "rows reversed":
        rows[1:] = rows[:0:-1]
    elif change == "column renamed":
        rows[0][column] = rng.choice(("", "x", rows[0][0], rows[0][column].upper(), rng.choice(CELLS)))
    elif change == "cell too many":
        rows[row].append("1")
    elif change == "cell too few":
        rows[row].pop()
    elif change == "row of nothing":
        rows.insert(row, [])
    else:
        _change_column(rng, rows, change, column)
    return f"{change} (row {row}, column {column})"


def _change_column(rng: random.Random, rows: list[list[str]], change: str, column: int) -> None:
    for cells in rows:
        if change == "column gone":
            del cells[column]
        elif change == "column twice":
            cells.append(cells[column])
        else:
            cells.append(cells.pop(column))
