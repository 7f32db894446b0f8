"""What arithmetic and movement cost on a card, as configs/card_energy.yaml gives it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from common.configuration import Section
from common.errors import CommandLineError
from common.intervals import ThreePoint
from common.number_formats import PRECISION_BITS

MEMORIES = ("hbm", "ddr", "on_chip")
LINKS = ("pcie", "shared_memory")


@dataclass(frozen=True, slots=True)
class CardEnergy:
    """Picojoules per FLOP by number format, and per byte by memory and link; ``pessimistic`` is the high end."""

    compute_pj_per_flop: Mapping[str, ThreePoint]
    memory_pj_per_byte: Mapping[str, ThreePoint]
    link_pj_per_byte: Mapping[str, ThreePoint]

    def memory(self, kind: str) -> ThreePoint:
        """Of a board's memory, whose kind may say more: ``hbm2`` is an ``hbm``.

        Raises:
            CommandLineError: neither HBM nor DDR.
        """
        family = next((name for name in ("hbm", "ddr") if name in kind.lower()), None)
        if family is None:
            raise CommandLineError("memory.kind", f"{kind!r} has no energy per byte", "it takes hbm or ddr")
        return self.memory_pj_per_byte[family]

    def link(self, kind: str) -> ThreePoint:
        """Of the way between host and card.

        Raises:
            CommandLineError: no such link.
        """
        if kind not in self.link_pj_per_byte:
            raise CommandLineError(
                "host_link.kind", f"{kind!r} has no energy per byte", f"it takes {' or '.join(LINKS)}"
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
