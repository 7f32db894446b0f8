"""Energy of one inference with the card, by cause, and the power of a kernel (configs/card_energy.yaml).

E = host busy + host idle + card static + FLOPs × pJ/FLOP + bytes × pJ/byte (memory, buffers, link): the energy roofline
(Choi, Bedard, Fowler, Vuduc, IPDPS 2013) with the static energy of the side that waits. W × µs = µJ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from common.files.configuration import Section
from common.fpga.device.board import Board
from common.fpga.speedup.amdahl import AmdahlTerms, amdahl_rows
from common.fpga.speedup.totals import CardWork, CaseTotals, HostRun
from common.graphs.number_formats import PRECISION_BITS
from common.intervals import NOTHING, ThreePoint, combine, summed
from common.messages.errors import PipelineError
from common.messages.names import quoted
from common.table_rows import SpeedupRow

PJ_PER_UJ = 1e6
KERNEL_PARTS = ("card_compute", "card_memory", "card_on_chip")
ADDED_PARTS = ("transfer", "conversion", "launch", "host_idle", "card_static")


def energy_rows(
    host: HostRun, totals: Sequence[CaseTotals], work: CardWork, card: Board, coefficients: CardEnergy
) -> list[SpeedupRow]:
    """Return the rows of the energy: host busy + host idle + card static + card dynamic + link = new total.

    The host computes what stays there and then idles at its static power until the finish. The card draws its static
    power from start to finish; the part during transfers, conversions and launches is in their rows.
    Without the host's energy or static power every term is unknown.
    """
    waiting_w, moved_uj = host.waiting_w, host.moved_uj
    if host.energy_uj is None or waiting_w is None or moved_uj is None:
        unknown = dict.fromkeys(KERNEL_PARTS, NOTHING.cases), dict.fromkeys(ADDED_PARTS, NOTHING.cases)
        return amdahl_rows("energy", "uj", AmdahlTerms(None, NOTHING.cases, *unknown, hidden={}))
    kernels = {name: cost.cases for name, cost in dynamic_uj(work, card, coefficients).items()}
    added: dict[str, Sequence[float]] = dict.fromkeys(ADDED_PARTS, NOTHING.cases)
    if any(case.kernel_us > 0 for case in totals):  # without a kernel, the machine needs no card
        added = card_static_uj(totals, card)
        link_uj = _uj(work.link_bytes, coefficients.link(card.link.kind)).cases
        added["transfer"] = [sum(parts) for parts in zip(added["transfer"], link_uj, strict=True)]
        of_host = zip(waiting_w.cases, host.rest_us.cases, strict=True)
        waits = zip(totals, of_host, strict=True)
        added["host_idle"] = [w * max(case.finish_us - us, 0.0) for case, (w, us) in waits]
    return amdahl_rows("energy", "uj", AmdahlTerms(host.energy_uj.cases, moved_uj.cases, kernels, added, hidden={}))


def card_static_uj(totals: Sequence[CaseTotals], card: Board) -> dict[str, Sequence[float]]:
    """Divide the card's static energy of one inference over its activities; no time counts twice."""
    parts_uj: dict[str, list[float]] = {name: [] for name in ADDED_PARTS if name != "host_idle"}
    for watts, case in zip(card.static_w.cases, totals, strict=True):
        times = {"transfer": case.transfer_us, "conversion": case.conversion_us, "launch": case.launch_us}
        whole = sum(times.values())
        fraction = min(1.0, case.finish_us / whole) if whole else 0.0
        for name, us in times.items():
            parts_uj[name].append(watts * us * fraction)
        parts_uj["card_static"].append(watts * max(case.finish_us - whole * fraction, 0.0))
    return dict(parts_uj)


def dynamic_uj(work: CardWork, card: Board, coefficients: CardEnergy) -> Mapping[str, ThreePoint]:
    """Return the dynamic energy of the work on the card, by cause.

    A PipelineError says that the energy per byte of the card's memory is unknown.
    """
    costs = (
        summed(_uj(count, coefficients.compute_pj_per_flop[name]) for name, count in work.flops.items()),
        _uj(work.memory_bytes, coefficients.memory(card.memory.kind)),
        _uj(work.buffered_bytes, coefficients.memory_pj_per_byte["on_chip"]),
    )
    return dict(zip(KERNEL_PARTS, costs, strict=True))


def _uj(count: float, pj_each: ThreePoint) -> ThreePoint:
    return combine(lambda pj: count * pj / PJ_PER_UJ, pj_each)


def kernel_dynamic_uj(work: CardWork, card: Board, coefficients: CardEnergy) -> ThreePoint:
    return summed(dynamic_uj(work, card, coefficients).values())


def kernel_energy_uj(work: CardWork, time_us: ThreePoint, card: Board, coefficients: CardEnergy) -> ThreePoint:
    """Return the card's energy while one kernel works: static power × time + the kernel's dynamic energy."""
    dynamic = kernel_dynamic_uj(work, card, coefficients)
    return combine(lambda w, us, uj: w * us + uj, card.static_w, time_us, dynamic)


def kernel_power_w(work: CardWork, time_us: ThreePoint, card: Board, coefficients: CardEnergy) -> ThreePoint:
    """Return the power of the card while one kernel works, at most the card's limit; pessimistic is the highest.

    The highest power is the highest energy in the shortest time, the lowest the lowest energy in the longest time.
    """
    dynamic = kernel_dynamic_uj(work, card, coefficients)
    fastest_last = ThreePoint(time_us.optimistic, time_us.likely, time_us.pessimistic)
    return combine(lambda w, uj, us: min(w + uj / us, card.limit_w), card.static_w, dynamic, fastest_last)


MEMORIES = ("hbm", "ddr", "sdram", "on_chip")
LINKS = ("pcie", "shared_memory", "serial", "ethernet")


@dataclass(frozen=True, slots=True)
class CardEnergy:
    """Energy per FLOP by number format, and per byte by memory and by link; pessimistic is the highest."""

    compute_pj_per_flop: Mapping[str, ThreePoint]
    memory_pj_per_byte: Mapping[str, ThreePoint]
    link_pj_per_byte: Mapping[str, ThreePoint]

    def memory(self, kind: str) -> ThreePoint:
        """Return the energy per byte of a board's memory; ``hbm2`` counts as ``hbm``.

        HyperRAM counts as DDR, with which it has two transfers per cycle in common: no figure of its own is known.

        A PipelineError says that the kind is neither HBM, DDR, HyperRAM nor SDRAM.
        """
        known = MEMORIES[:-1]
        named = "ddr" if kind == "hyperram" else kind.lower()
        family = next((name for name in known if name in named), None)
        if family is None:
            text = f"known: {', '.join(known)}"
            raise PipelineError("memory.kind", f"no energy per byte is known for {quoted(kind)}", text)
        return self.memory_pj_per_byte[family]

    def link(self, kind: str) -> ThreePoint:
        """Return the energy per byte of the link between host and card; PipelineError: the link is unknown."""
        if kind not in self.link_pj_per_byte:
            text = f"known: {', '.join(LINKS)}"
            raise PipelineError("host_link.kind", f"no energy per byte is known for {quoted(kind)}", text)
        return self.link_pj_per_byte[kind]


def read_card_energy(file: Section) -> CardEnergy:
    """Read configs/card_energy.yaml.

    A ConfigurationError says that a key is missing or unknown, or a number is unusable or has no source.
    """
    known = (("compute_pj_per_flop", PRECISION_BITS), ("memory_pj_per_byte", MEMORIES), ("link_pj_per_byte", LINKS))
    parts = []
    for key, names in known:
        below = file.section(key)
        parts.append({name: below.constant(name).as_cost() for name in names})
    file.close()
    return CardEnergy(*parts)
