"""Alarms: a figure beyond a threshold for a while. Thresholds are in a configuration."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from common.files.configuration import Section
from common.messages.names import quoted
from common.monitor.figures.figure_names import is_known


@dataclass(frozen=True, slots=True)
class Alarm:
    """A threshold: an alarm is active once its figure has been above it, or below it, for a time."""

    name: str  # what the page shows
    figure: str  # what is compared; of a figure with several places, the worst place counts
    above: float | None  # the alarm is active while the figure is above this; None: not by this side
    below: float | None  # the same on the other side
    for_s: float  # how long it must be so
    meaning: str  # what it says about the service

    def is_beyond(self, value: float) -> bool:
        return (self.above is not None and value > self.above) or (self.below is not None and value < self.below)


class AlarmWatch:
    """Which alarms are active, from one tick to the next."""

    def __init__(self, alarms: Iterable[Alarm]) -> None:
        self.alarms = tuple(alarms)
        self._since: dict[str, float] = {}

    def active(self, now_s: float, figures: Mapping[str, float | None]) -> list[str]:
        """Return the names of the alarms that are active now; an unknown figure raises none."""
        known = [({key, key.partition(":")[0]}, value) for key, value in figures.items() if value is not None]
        for alarm in self.alarms:
            if any(alarm.figure in names and alarm.is_beyond(value) for names, value in known):
                self._since.setdefault(alarm.name, now_s)
            else:
                self._since.pop(alarm.name, None)
        return [alarm.name for alarm in self.alarms if now_s - self._since.get(alarm.name, float("inf")) >= alarm.for_s]


def read_alarms(path: Path) -> tuple[Alarm, ...]:
    """Read thresholds: a mapping from the name of an alarm to its keys. ConfigurationError: it cannot be used."""
    section = Section.of_file(path)
    below = section.section("alarms")
    alarms = tuple(_alarm(name, below.section(name)) for name in below)
    section.close()
    return alarms


def _alarm(name: str, section: Section) -> Alarm:
    above, below = (section.number(side) if side in section else None for side in ("above", "below"))
    if (above is None) == (below is None):
        raise section.error("", "needs either above or below")
    figure = section.text("figure")
    if not is_known(figure):
        raise section.error("figure", f"is {quoted(figure)}, which no tick has", "docs/DASHBOARD.md lists the figures")
    section.origin()
    return Alarm(name, figure, above, below, section.number("for_s"), section.text("meaning"))
