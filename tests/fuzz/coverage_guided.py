"""Feed each reader of files with what reaches new code of it, by Atheris (libFuzzer for Python).

    python -m tests.fuzz.coverage_guided --minutes 10                     # all readers; `make fuzz-coverage`
    python -m tests.fuzz.coverage_guided --reader traces --file FILE      # give one file to one reader

Each reader runs in a process of its own, because libFuzzer never returns. An exception that is none of ours is a
fault: the file and its traceback are kept, one for each place where it was raised, and the search goes on.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.paths import ROOT

LARGEST_INPUT = 100_000  # bytes
SLOWEST_S, MEMORY_MIB = 300, 3072  # of one input: a hang, and too much memory
PROGRESS = re.compile(r"^#(\d+)\s.*?cov: (\d+) ft: (\d+)", re.MULTILINE)
STATISTICS = re.compile(r"stat::number_of_executed_units:\s*(\d+)")


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.coverage_guided", allow_abbrev=False)
    parser.add_argument("--reader", action="append", help="repeatable (default: all)")
    parser.add_argument("--minutes", type=float, default=10.0, help="for all readers together (default: 10)")
    parser.add_argument("--seed", type=int, default=1, help="of libFuzzer (default: 1)")
    parser.add_argument("--report", type=Path, default=Path("fuzz-faults"), help="folder of files that fail")
    parser.add_argument("--file", type=Path, help="give this file to the reader, and fuzz nothing")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--corpus", type=Path, help=argparse.SUPPRESS)
    return parser


@dataclass(frozen=True)
class Campaign:
    """What one reader was given, and what came of it."""

    reader: str
    executions: int
    cpu_s: float
    edges: int
    features: int
    faults: tuple[str, ...]


def run_reader(name: str, seconds: float, given: argparse.Namespace) -> Campaign:
    """Fuzz one reader in a process of its own, which must not have imported ours before it is instrumented."""
    from tests.fuzz.workers import shared_memory

    faults = given.report / name
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory(dir=shared_memory()) as folder:
        corpus = Path(folder) / "corpus"
        corpus.mkdir()
        words = ["--child", "--reader", name, "--corpus", str(corpus), "--report", str(faults.resolve())]
        words += ["--seed", str(given.seed), "--minutes", str(seconds / 60)]
        command = [sys.executable, "-m", "tests.fuzz.coverage_guided", *words]
        ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, errors="replace", check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    log = ended.stderr + ended.stdout
    counts = [tuple(map(int, found)) for found in PROGRESS.findall(log)] or [(0, 0, 0)]
    executed = [int(number) for number in STATISTICS.findall(log)] or [counts[-1][0]]
    if ended.returncode:  # libFuzzer ends itself at a hang, at too much memory, or in a crash of native code
        faults.mkdir(parents=True, exist_ok=True)
        (faults / "ended.txt").write_text(log[-20_000:])
    places = sorted(path.stem for path in faults.glob("*.txt")) if faults.is_dir() else []
    used_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Campaign(name, executed[-1], used_s, counts[-1][1], counts[-1][2], tuple(places))


def fuzz_here(given: argparse.Namespace) -> None:
    """Turn this process into the fuzzer of one reader; it ends with the process."""
    import atheris

    with atheris.instrument_imports(include=["common"]):
        from tests.fuzz.readers import READERS, attempt
    reader = READERS[given.reader[0]]
    (folder := given.corpus.parent / "files").mkdir()
    for number, content in enumerate(reader.seeds()):
        (given.corpus / f"seed-{number}").write_bytes(content)

    def test_one_input(content: bytes) -> None:
        try:
            attempt(reader, content, folder)
        except Exception as error:
            keep_fault(given.report, error, content)

    def mutated(content: bytes, largest: int, seed: int) -> bytes:
        rng = random.Random(seed)
        if reader.mutate and rng.random() < 0.8:
            changed = reader.mutate(content, rng)
            return changed if len(changed) <= largest else content
        return atheris.Mutate(content, largest)

    flags = [f"-seed={given.seed}", f"-max_total_time={max(1, round(60 * given.minutes))}", f"-max_len={LARGEST_INPUT}"]
    flags += [f"-timeout={SLOWEST_S}", f"-rss_limit_mb={MEMORY_MIB}", "-print_final_stats=1"]
    flags += [f"-artifact_prefix={given.corpus}/"]
    atheris.Setup([sys.argv[0], *flags, str(given.corpus)], test_one_input, custom_mutator=mutated)
    atheris.Fuzz()


def keep_fault(folder: Path, error: Exception, content: bytes) -> None:
    """Keep the first file for each place where an exception was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if f"{os.sep}common{os.sep}" in frame.filename] or frames
    name = f"{type(error).__name__} in {Path(ours[-1].filename).stem}.{ours[-1].name}"
    folder.mkdir(parents=True, exist_ok=True)
    if not (text := folder / f"{name}.txt").exists():
        text.write_text("".join(traceback.format_exception(error)), errors="replace")
        (folder / f"{name}.input").write_bytes(content)


def main(argv: Sequence[str] | None = None) -> int:
    """Fuzz the readers one after the other, and end with 1 if any has a fault."""
    given = arguments().parse_args(argv)
    if given.child:
        fuzz_here(given)
        return 0
    from tests.fuzz.readers import READERS, attempt

    names = given.reader or list(READERS)
    if unknown := [name for name in names if name not in READERS]:
        arguments().error(f"no reader {unknown[0]!r}; there are {', '.join(READERS)}")
    if given.file:
        attempt(READERS[names[0]], given.file.read_bytes(), Path(tempfile.mkdtemp()))
        print(f"{given.file}: {names[0]} reads it, or refuses it in one line")
        return 0
    shutil.rmtree(given.report, ignore_errors=True)
    campaigns = []
    print(f"{'reader':<18}{'executions':>12}{'CPU s':>8}{'edges':>8}{'features':>10}{'faults':>8}")
    for name in names:
        campaigns.append(found := run_reader(name, 60 * given.minutes / len(names), given))
        figures = f"{found.executions:>12}{found.cpu_s:>8.0f}{found.edges:>8}{found.features:>10}"
        print(f"{name:<18}{figures}{len(found.faults):>8}", flush=True)
        for fault in found.faults:
            again = f"--reader {name} --file '{given.report}/{name}/{fault}.input'"
            print(f"  {fault}\n    python -m tests.fuzz.coverage_guided {again}")
    return int(any(found.faults for found in campaigns))


if __name__ == "__main__":
    sys.exit(main())
