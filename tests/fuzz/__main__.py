"""Run the campaigns, print a table of what was tried and what failed, and end with 1 if anything failed."""

from __future__ import annotations

import argparse
import faulthandler
import gc
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from models.small.tiny import build_tiny_mlp
from tests.fuzz.command_lines import CommandLines
from tests.fuzz.configurations import Configurations
from tests.fuzz.disks import Disks
from tests.fuzz.injection import Injection
from tests.fuzz.kills import Kills
from tests.fuzz.models import Models
from tests.fuzz.oracle import Fault, is_odd, name_of
from tests.fuzz.programs import import_all, run_here
from tests.fuzz.tables import Tables
from tests.fuzz.workers import Campaign, Pool, Result, run_case, shared_memory

SHARES: dict[Callable[[], Campaign], float] = {
    Models: 0.4,
    Tables: 0.13,
    Configurations: 0.07,
    CommandLines: 0.03,
    Kills: 0.15,
    Disks: 0.07,
    Injection: 0.15,
}
SHOWN = 3  # cases of one defect


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    names = [campaign.name for campaign in SHARES]
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__, allow_abbrev=False)
    parser.add_argument("--seed", type=int, default=0, help="of all cases (default: 0)")
    parser.add_argument("--minutes", type=float, default=10.0, help="for all campaigns together (default: 10)")
    parser.add_argument("--campaign", action="append", choices=names, help="repeatable (default: all)")
    parser.add_argument("--case", type=int, help="run this case alone, and keep its folder")
    parser.add_argument("--cases", type=int, help="run so many cases of each campaign, whatever the time")
    parser.add_argument("--first", type=int, default=0, help="number of the first case: go on where a run has ended")
    parser.add_argument(
        "--workers", type=int, default=len(os.sched_getaffinity(0)), help="(default: one per processor)"
    )
    parser.add_argument("--report", type=Path, help="also write each distinct failure into a file of this folder")
    return parser


@dataclass
class Tally:
    """What a campaign found: the failed cases of each distinct fault."""

    name: str
    tried: int = 0
    failed: int = 0
    distinct: dict[tuple[str, str], list[tuple[Result, Fault]]] = field(default_factory=dict)

    def enter(self, result: Result) -> list[Fault]:
        """Count a case; return its faults that no earlier case had."""
        self.tried += 1
        self.failed += bool(result.faults)
        new = []
        for fault in result.faults:
            cases = self.distinct.setdefault((fault.kind, fault.site), [])
            new += [] if cases else [fault]
            cases.append((result, fault))
        return new


def made(make: Callable[..., Campaign], seed: int) -> Campaign:
    """Return a campaign. The points of injection have an order, which follows from the seed, too."""
    return make(seed=seed) if make is Injection else make()


def run_campaign(campaign: Campaign, given: argparse.Namespace, folder: Path, unit: float, seconds: float) -> Tally:
    """Run the cases of one campaign for a time, or a number of them, and print each new failure as it comes."""
    tally = Tally(campaign.name)
    (folder / "shared").mkdir(exist_ok=True)
    campaign.prepare(folder / "shared", unit)
    gc.freeze()  # what the workers share stays shared
    start = time.monotonic()

    def is_over(case: int) -> bool:
        return case - given.first >= given.cases if given.cases else time.monotonic() - start > seconds

    pool = Pool(campaign, given.seed, folder, unit, given.workers)
    for result in pool.results(is_over, given.first):
        for fault in tally.enter(result):
            print(described(result, fault, given.seed), flush=True)
            if given.report:
                given.report.mkdir(parents=True, exist_ok=True)
                name = re.sub(r"[^\w.-]+", "_", f"{campaign.name}-{fault.kind}-{fault.site}")[:120]
                (given.report / f"{name}.txt").write_text(described(result, fault, given.seed, lines=60))
    if isinstance(campaign, Injection):
        print(*campaign.summary(given.first, tally.tried, tally.failed), sep="\n")
    print(f"{campaign.name}: go on with --first {given.first + tally.tried}", flush=True)
    return tally


def described(result: Result, fault: Fault, seed: int, lines: int = 4) -> str:
    """A failure: what it is, the case, and the command that repeats it."""
    detail = [line for line in fault.detail.strip().splitlines() if line.strip()][-lines:]
    again = f"python -m tests.fuzz --campaign {result.campaign} --seed {seed} --case {result.case}"
    told = [line[:300] for line in result.story]
    return "\n".join((f"FAILED {fault.kind}: {fault.site}", *indented(told), *indented(detail), f"    {again}", ""))


def indented(lines: Sequence[str]) -> list[str]:
    """Lines with a margin, with nothing in them that acts on a terminal."""
    return ["    " + "".join(name_of(letter) if is_odd(letter) else letter for letter in line) for line in lines]


def repeat(campaign: Campaign, seed: int, case: int, unit: float) -> int:
    """Run one case in this process, and say what it does; its folder stays."""
    folder = Path(tempfile.mkdtemp(prefix="fuzz-case-"))
    (folder / "shared").mkdir()
    campaign.prepare(folder / "shared", unit)
    faulthandler.register(signal.SIGPROF, all_threads=False, chain=True)
    result = run_case(campaign, seed, case, folder / "case", unit)
    print("\n".join(indented(result.story)))
    for fault in result.faults:
        print(described(result, fault, seed, lines=60))
    print(f"{len(result.faults)} faults; its files are in {folder / 'case'}")
    return 1 if result.faults else 0


def cpu_unit(folder: Path) -> float:
    """CPU time in s that 02 takes here for a tiny model: what the limits are multiples of."""
    path = folder / "unit.onnx"
    path.write_bytes(build_tiny_mlp().SerializeToString())
    run_here("02_shapes_flops_bytes.py", "--model", str(path), "--out", str(folder / "unit"))
    start = time.process_time()
    run_here("02_shapes_flops_bytes.py", "--model", str(path), "--out", str(folder / "unit"))
    return time.process_time() - start


def settle_in(home: Path) -> None:
    """Let programs remember things in this folder: the user's own caches are neither read nor written."""
    home.mkdir()
    os.environ["HOME"] = str(home)
    for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "MPLCONFIGDIR"):
        os.environ.pop(name, None)


def show_table(tallies: Sequence[Tally]) -> None:
    """Print the campaigns: cases tried, cases failed, distinct failures."""
    print(f"{'campaign':<16}{'tried':>8}{'failed':>8}{'distinct':>10}")
    for tally in tallies:
        print(f"{tally.name:<16}{tally.tried:>8}{tally.failed:>8}{len(tally.distinct):>10}")
        for (kind, site), cases in sorted(tally.distinct.items(), key=lambda item: -len(item[1])):
            numbers = ", ".join(str(result.case) for result, _ in cases[:SHOWN])
            print(f"  {len(cases):>5}  {kind}: {site}  (case {numbers})")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the campaigns."""
    given = arguments().parse_args(argv)
    chosen = {make: share for make, share in SHARES.items() if not given.campaign or make.name in given.campaign}
    if given.case is not None and len(chosen) != 1:
        arguments().error("--case needs one --campaign")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # on the way out the folders are deleted
    import_all()
    folder = Path(tempfile.mkdtemp(prefix="fuzz-", dir=shared_memory()))
    try:
        settle_in(folder / "home")
        import_all()
        unit = cpu_unit(folder)
        if given.case is not None:
            return repeat(made(next(iter(chosen)), given.seed), given.seed, given.case, unit)
        tallies = []
        for make, share in chosen.items():
            seconds = 60 * given.minutes * share / sum(chosen.values())
            tallies.append(run_campaign(made(make, given.seed), given, folder, unit, seconds))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    show_table(tallies)
    return 1 if any(tally.failed for tally in tallies) else 0


if __name__ == "__main__":
    sys.exit(main())
