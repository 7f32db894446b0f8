"""Energy of arithmetic and data movement on a card (configs/card_energy.yaml)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from common.configuration import Section
from common.errors import PipelineError
from common.intervals import ThreePoint
from common.names import quoted
from common.number_formats import PRECISION_BITS

MEMORIES = ("hbm", "ddr", "on_chip")
LINKS = ("pcie", "shared_memory")


@dataclass(frozen=True, slots=True)
class CardEnergy:
    """Energy per FLOP by number format, and per byte by memory and by link; pessimistic is the highest."""

    compute_pj_per_flop: Mapping[str, ThreePoint]
    memory_pj_per_byte: Mapping[str, ThreePoint]
    link_pj_per_byte: Mapping[str, ThreePoint]

    def memory(self, kind: str) -> ThreePoint:
        """Return the energy per byte of a board's memory; ``hbm2`` counts as ``hbm``.

        Raises:
            PipelineError: the kind is neither HBM nor DDR.
        """
        family = next((name for name in ("hbm", "ddr") if name in kind.lower()), None)
        if family is None:
            raise PipelineError("memory.kind", f"no energy per byte is known for {quoted(kind)}", "known: hbm, ddr")
        return self.memory_pj_per_byte[family]

    def link(self, kind: str) -> ThreePoint:
        """Return the energy per byte of the link between host and card.

        Raises:
            PipelineError: the link is unknown.
        """
        if kind not in self.link_pj_per_byte:
            raise PipelineError(
                "host_link.kind", f"no energy per byte is known for {quoted(kind)}", f"known: {', '.join(LINKS)}"
            )
        return self.link_pj_per_byte[kind]


def read_card_energy(file: Section) -> CardEnergy:
    """Read configs/card_energy.yaml.

    Raises:
        ConfigurationError: a key is missing or unknown, or a number is unusable or has no source.
    """
    parts = [
        _costs(file, key, names)
        for key, names in (
            ("compute_pj_per_flop", tuple(PRECISION_BITS)),
            ("memory_pj_per_byte", MEMORIES),
            ("link_pj_per_byte", LINKS),
        )
    ]
    file.close()
    return CardEnergy(*parts)


def _costs(file: Section, key: str, names: tuple[str, ...]) -> dict[str, ThreePoint]:
    below = file.section(key)
    return {name: below.constant(name).as_cost() for name in names}
