"""Reader of published.yaml: the figures of others that the FPGA models are compared with, each with its source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from common.files.configuration import TRUST, Section
from common.workload.layers import Convolution, Matmul

FILE = Path(__file__).with_name("published.yaml")
OPENED = ("datasheet", "vendor", "published")  # trust marks of figures that were opened


@dataclass(frozen=True, slots=True)
class Design:
    """One array or engine as published."""

    family: str  # whose it is; designs of one family share their generator or their authors
    name: str
    board: str  # a file of configs/boards, or empty where ``channels`` have ``channel_bytes_per_s`` of their own
    precision: str
    size: tuple[int, int, int]  # rows, columns, products per element
    macs_per_dsp: float | None  # products of one DSP per cycle, where it is not the board's rate
    has_logic_multipliers: bool  # whether a part of its multipliers are LUTs
    has_elements: bool  # whether each element has buffers and a network of its own, as in a systolic array
    count: int  # equal arrays of this size
    channels: int
    channel_bytes_per_s: float
    clock_mhz: float | None  # the clock that was reached; None where none is published with the figures
    layer: Matmul | Convolution | None  # the product or convolution; None where only resources are published
    time_us: float | None  # of the layer; None where only resources are published
    resources: Mapping[str, float]  # published amounts by the names of ``Resources``
    is_referee: bool  # whether it took no part in the likely amounts of the model, and judges them
    source: str
    trust: str


@dataclass(frozen=True, slots=True)
class GenericFigures:
    """Times of whole networks on one array that was built for none of them, in µs of one image."""

    design: Design
    is_convolutions_only: bool  # whether the processor computes the fully connected layers, outside the times
    time_us: Mapping[str, float]  # by network


@dataclass(frozen=True, slots=True)
class NetworkFigures:
    """Times of whole networks on one overlay, in µs of one image; frames per second of several threads are apart."""

    engine: str
    board: str
    is_rate: bool
    time_us: Mapping[str, float]
    source: str


@dataclass(frozen=True, slots=True)
class Card:
    """Frames per second of a board that is full of equal engines, by network."""

    board: str  # a file of configs/boards
    engines: str  # their vendor's name
    file: str  # of configs/engines; empty where there is none
    count: int
    clock_mhz: float
    frames_per_s: Mapping[str, float]
    source: str


@dataclass(frozen=True, slots=True)
class Closure:
    """The clock at which a design closed, with the share of the LUTs of its regions; None where it is not published."""

    design: str
    regions: int
    lut_share: float | None
    is_floorplanned: bool
    memory: str
    clock_share: float
    source: str


def designs(key: str = "arrays") -> list[Design]:
    """Return the designs under ``arrays``, ``generic``, ``engines`` or ``apart``."""
    return [_design(section) for section in Section.of_file(FILE).sections(key)]


def generic_figures(key: str = "generic") -> Iterator[GenericFigures]:
    """Yield the networks that were measured on generic arrays, array by array: those of ``generic`` or ``held_out``."""
    for section in Section.of_file(FILE).sections(key):
        rates = section.section("frames_per_second")
        times = {name: 1e6 / rates.number(name) for name in rates}
        yield GenericFigures(_design(section), section.switch("convolutions_only", default=False), times)


def _design(section: Section) -> Design:
    layer = _layer(section)
    gops = _optional(section, "gops")
    time_us = _optional(section, "time_ms", 1e3)
    if gops is not None and layer is not None:
        time_us = 2 * layer.macs / gops * 1e-3
    below = section.section("resources") if "resources" in section else None
    memory = section.section("memory") if "memory" in section else None
    precision, (rows, cols, simd) = section.text("precision"), map(int, section.entries("size"))
    return Design(
        family=section.text("family"),
        name=section.text("name") if "name" in section else f"{precision} {rows}x{cols}x{simd}",
        board=section.text("board") if "board" in section else "",
        precision=precision,
        size=(rows, cols, simd),
        macs_per_dsp=_optional(section, "macs_per_dsp"),
        has_logic_multipliers=section.switch("logic_multipliers", default=False),
        has_elements=section.switch("elements", default=True),
        count=int(section.number("count")) if "count" in section else 1,
        channels=int((memory or section).number("channels")) if memory or "channels" in section else 1,
        channel_bytes_per_s=memory.number("gb_per_s") * 1e9 if memory else 0.0,
        clock_mhz=_optional(section, "clock_mhz"),
        layer=layer,
        time_us=time_us,
        resources={name: below.number(name) for name in below} if below else {},
        is_referee=section.switch("referee", default=False),
        source=section.text("source"),
        trust=section.choice("trust", TRUST),
    )


def _layer(section: Section) -> Matmul | Convolution | None:
    if "gemm" in section:
        m, k, n = map(int, section.entries("gemm"))
        return Matmul(m, k, n)
    if "conv" not in section:
        return None
    images, channels, height, width, out, out_height, out_width, window = map(int, section.entries("conv"))
    return Convolution(images, channels, height, width, out, out_height, out_width, window, window)


def _optional(section: Section, key: str, factor: float = 1.0) -> float | None:
    return section.number(key) * factor if key in section else None


def network_figures() -> Iterator[NetworkFigures]:
    """Yield the published networks, table by table."""
    for section in Section.of_file(FILE).sections("networks"):
        is_rate = "threads" in section
        given, unit_us = ("latency_ms", 1e3) if "latency_ms" in section else ("frames_per_second", 0.0)
        figures = section.section(given)
        values = {name: figures.number(name) for name in figures}
        times = {name: value * unit_us if unit_us else 1e6 / value for name, value in values.items()}
        source = f"{section.text('source')} ({section.choice('trust', TRUST)})"
        yield NetworkFigures(section.text("engine"), section.text("board"), is_rate, times, source)


def cards() -> list[Card]:
    return [_card(section) for section in Section.of_file(FILE).sections("cards")]


def _card(section: Section) -> Card:
    rates = section.section("frames_per_second")
    return Card(
        board=section.text("board"),
        engines=section.text("engines"),
        file=section.text("file") if "file" in section else "",
        count=int(section.number("count")),
        clock_mhz=section.number("clock_mhz"),
        frames_per_s={name: rates.number(name) for name in rates},
        source=f"{section.text('source')} ({section.choice('trust', TRUST)})",
    )


def closures() -> list[Closure]:
    return [
        Closure(
            design=section.text("design"),
            regions=int(section.number("regions")),
            lut_share=_optional(section, "lut_share"),
            is_floorplanned=section.switch("floorplanned", default=False),
            memory=section.text("memory") if "memory" in section else "ddr",
            clock_share=min(1.0, section.number("clock_mhz") / section.number("target_mhz")),
            source=f"{section.text('source')} ({section.choice('trust', TRUST)})",
        )
        for section in Section.of_file(FILE).sections("closures")
    ]


def attention_shares() -> dict[str, float]:
    """Return the share of the peak of its own multipliers that each published attention kernel attains."""
    rows = Section.of_file(FILE).sections("attention")
    return {f"{row.text('kernel')} ({row.choice('trust', TRUST)})": row.number("share") for row in rows}
