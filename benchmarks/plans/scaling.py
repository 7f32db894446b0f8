"""Measure how the search for a plan grows with the network: steps, options, status, gap, time and memory.

The networks have the shape, the work and the fused groups of ResNet-50, Inception-v1, BERT-base and DenseNet-121, of a
U-Net, of a detector whose steps are mostly the host's, of a detector on a pyramid, and of a mixture of experts, some of
them of 300, 1,000 and 5,000 steps; host and engines are made up. Each is planned in a process of its own. No test
depends on a time.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import resource
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field

from common.fpga.device.resources import Resources
from common.fpga.offload.effort import Effort, Endless
from common.fpga.offload.problem import EngineType, Item, OffloadFlow, Option, Problem, RegionBudget
from common.fpga.offload.search.plan_search import optimize
from common.intervals import ThreePoint

HOST_MACS_PER_US, HOST_BYTES_PER_US, LINK_BYTES_PER_US, CARD_BYTES_PER_US = 6.3e4, 1.1e4, 1.05e4, 3.1e5
LAUNCH_US = ThreePoint(130.0, 70.0, 50.0)
SLR = Resources(lut=250e3, ff=360e3, bram36=400, uram=250, dsp=2250)
# Multiply-accumulates per microsecond of dense products, of attention, of row and pointwise work; 0: cannot.
ENGINES = (
    (EngineType("systolic-64x64", Resources(190e3, 260e3, 300, 64, 2100, 4), False, 2), 1.1e6, 0.0, 0.0),
    (EngineType("systolic-32x32", Resources(70e3, 95e3, 120, 16, 540, 2), False, 3), 3.0e5, 0.0, 0.0),
    (EngineType("systolic-16x16", Resources(25e3, 35e3, 40, 4, 140, 1), False, 2), 7.5e4, 0.0, 0.0),
    (EngineType("overlay-b4096", Resources(110e3, 180e3, 256, 96, 1180, 4), False, 2, "entry"), 4.2e5, 1.4e5, 6.0e3),
    (EngineType("overlay-b1600", Resources(55e3, 90e3, 120, 40, 520, 2), False, 2, "entry"), 1.7e5, 6.0e4, 2.4e3),
    (EngineType("attention", Resources(60e3, 90e3, 160, 80, 620, 4), False), 0.0, 2.6e5, 0.0),
    (EngineType("rowwise", Resources(22e3, 30e3, 30, 0, 60, 4), False), 0.0, 0.0, 1.9e4),
    (EngineType("streaming", Resources(90e3, 140e3, 130, 32, 1500, 16), True), 2.4e5, 0.0, 9.0e3),
)


@dataclass
class Network:
    """A made-up network, built item by item; ``kind`` is dense, attention or rows."""

    seed: int = 11
    items: list[Item] = field(default_factory=list)
    kinds: list[tuple[str, float, float]] = field(default_factory=list)
    readers: dict[int, list[int]] = field(default_factory=dict)
    groups: list[tuple[int, ...]] = field(default_factory=list)

    def add(self, kind: str, macs: float, out_bytes: float, *sources: int) -> int:
        """Append an item and return its index; -1 is the input of the graph."""
        index = len(self.items)
        host_us = 4 + macs / HOST_MACS_PER_US + 4 * out_bytes / HOST_BYTES_PER_US
        self.items.append(Item(f"{kind}{index}", host_us))
        self.kinds.append((kind, macs, out_bytes))
        for source in sources:
            self.readers.setdefault(source, []).append(index)
        self.groups.append((index,))
        return index

    def problem(self) -> Problem:
        """Return the offload problem, with an option for every engine that can compute a group."""
        options = []
        for covers in self.groups:
            for engine, (_, *rates) in enumerate(ENGINES):
                if (
                    time_us := self._time_us(covers, dict(zip(("dense", "attention", "rows"), rates, strict=True)))
                ) > 0:
                    shape = [self.kinds[item] for item in covers]
                    chance = random.Random(f"{self.seed} {shape} {engine}")
                    likely = time_us * chance.uniform(1.05, 1.9)  # what tiles of this shape leave idle
                    name = f"{self.items[covers[0]].name}@{ENGINES[engine][0].name}"
                    weights = int(sum(self.kinds[item][1] for item in covers) / 500)
                    options.append(
                        Option(name, covers, engine, ThreePoint(1.5 * likely, likely, time_us), LAUNCH_US, weights)
                    )
        regions = tuple(RegionBudget(f"SLR{number}", SLR) for number in range(3))
        engines = tuple(engine for engine, *_ in ENGINES)
        return Problem(tuple(self.items), tuple(self._flows()), engines, tuple(options), regions, 32, 8e9)

    def _time_us(self, covers: Sequence[int], rates: dict[str, float]) -> float:
        total = 0.0
        for kind, macs, out_bytes in (self.kinds[item] for item in covers):
            work = macs if kind != "rows" else out_bytes
            if not rates.get(kind) and not (kind == "rows" and len(covers) > 1):
                return 0.0
            rate = rates[kind] if rates[kind] else CARD_BYTES_PER_US
            total += max(work / rate, out_bytes / CARD_BYTES_PER_US)
        return total + 1.5

    def _flows(self) -> list[OffloadFlow]:
        flows, last = [], len(self.items) - 1
        for source in range(-1, len(self.items)):
            size = self.kinds[source][2] if source >= 0 else 150_528.0
            link = size / LINK_BYTES_PER_US + 6
            convert = ThreePoint.exactly(size / 1.9e4)
            way = ThreePoint(1.3 * link, link, 0.9 * link)
            readers = tuple(self.readers.get(source, ()))
            producer = None if source < 0 else source
            flows.append(OffloadFlow(f"t{source}", producer, readers, source == last, way, way, convert, convert))
        return flows


def resnet() -> Network:
    """Bottleneck blocks of fused convolutions, the shortcut added in the last one."""
    net = Network()
    last = net.add("rows", 0, 2e5, net.add("dense", 118e6, 8e5, -1))
    for blocks, channels, pixels in ((3, 64, 3136), (4, 128, 784), (6, 256, 196), (3, 512, 49)):
        for block in range(blocks):
            entry, wide = last, 4 * channels
            shortcut = entry if block else net.add("dense", pixels * wide * wide / 2, pixels * wide, entry)
            narrow = net.add("dense", pixels * wide * channels, pixels * channels, entry)
            middle = net.add("dense", pixels * 9 * channels**2, pixels * channels, narrow)
            last = net.add("dense", pixels * wide * channels, pixels * wide, middle, shortcut)
            net.groups.append((narrow, middle))
    net.add("dense", 2e6, 1e3, net.add("rows", 0, 2048, last))
    return net


def inception() -> Network:
    """Four branches that meet in a concatenation, nine times."""
    net = Network()
    last = net.add("dense", 360e6, 6e5, net.add("dense", 118e6, 8e5, -1))
    for pixels, channels in ((784, 200), (784, 300), *[(196, 500)] * 5, (49, 830), (49, 832)):
        one = net.add("dense", pixels * channels * channels / 4, pixels * channels / 4, last)
        narrow = net.add("dense", pixels * channels * channels / 5, pixels * channels / 5, last)
        three = net.add("dense", pixels * 9 * channels * channels / 15, pixels * channels / 3, narrow)
        thin = net.add("dense", pixels * channels * channels / 16, pixels * channels / 16, last)
        five = net.add("dense", pixels * 25 * channels * channels / 160, pixels * channels / 8, thin)
        pool = net.add("rows", 0, pixels * channels, last)
        side = net.add("dense", pixels * channels * channels / 8, pixels * channels / 8, pool)
        last = net.add("rows", 0, pixels * channels, one, three, five, side)
        net.groups += [(narrow, three), (thin, five), (pool, side)]
    net.add("dense", 1e6, 1e3, net.add("rows", 0, 1024, last))
    return net


def encoder(layers: int = 12, tokens: int = 128, width: int = 768) -> Network:
    """Q, K and V side by side, attention, two dense layers; what moves elements stays on the host or in a group."""
    net, plane = Network(), float(tokens * width)
    last = net.add("rows", 0, plane, -1)
    for _ in range(layers):
        heads = []
        for _ in range(3):
            dense = net.add("dense", plane * width, plane, last)
            moved = net.add("rows", 0, plane, net.add("rows", 0, plane, dense))
            heads.append(moved)
            net.groups.append((dense, moved - 1, moved))
        scores = net.add("attention", plane * tokens, 12.0 * tokens**2, *heads[:2])
        soft = net.add("rows", 0, 12.0 * tokens**2, scores)
        mixed = net.add("attention", plane * tokens, plane, soft, heads[2])
        net.groups.append((scores, soft, mixed))
        out = net.add("dense", plane * width, plane, mixed)
        normal = net.add("rows", 0, plane, out, last)
        wide = net.add("dense", 4 * plane * width, 4 * plane, normal)
        gelu = net.add("rows", 0, 4 * plane, wide)
        narrow = net.add("dense", 4 * plane * width, plane, gelu)
        last = net.add("rows", 0, plane, narrow, normal)
        net.groups += [(out, normal), (wide, gelu), (wide, gelu, narrow), (narrow, last)]
    return net


def densenet() -> Network:
    """Each layer reads what all earlier ones of its block wrote, joined by concatenation."""
    net = Network()
    last = net.add("rows", 0, 2e5, net.add("dense", 118e6, 8e5, -1))
    channels = 64
    for layers, pixels in ((6, 3136), (12, 784), (24, 196), (16, 49)):
        for _ in range(layers):
            norm = net.add("rows", 0, pixels * channels, last)
            relu = net.add("rows", 0, pixels * channels, norm)
            narrow = net.add("dense", pixels * channels * 128, pixels * 128, relu)
            inner = net.add("rows", 0, pixels * 128, net.add("rows", 0, pixels * 128, narrow))
            grown = net.add("dense", pixels * 9 * 128 * 32, pixels * 32, inner)
            channels += 32
            net.groups += [(norm, relu, narrow), (inner - 1, inner, grown), (narrow, inner - 1, inner, grown)]
            last = net.add("rows", 0, pixels * channels, last, grown)
        channels //= 2
        dense = net.add("dense", pixels * 2 * channels * channels, pixels * channels, last)
        last = net.add("rows", 0, pixels * channels / 4, dense)
    net.add("dense", 1e6, 1e3, net.add("rows", 0, 1024, last))
    return net


def unet(blocks: int = 6) -> Network:
    """Levels that go down and up again, with so many residual blocks each and a skip from each block down to one up."""
    net = Network()
    time = net.add("dense", 1e6, 1.3e3, -1)
    last = net.add("dense", 11e6, 1.3e6, -1)
    skips: list[int] = []

    def residual(source: int, pixels: float, channels: float) -> int:
        first = net.add("rows", 0, pixels * channels, source)
        inner = net.add("dense", pixels * 9 * channels**2, pixels * channels, first)
        shift = net.add("dense", 1280 * channels, channels, time)
        second = net.add("rows", 0, pixels * channels, inner, shift)
        outer = net.add("dense", pixels * 9 * channels**2, pixels * channels, second)
        net.groups.append((second, outer))
        return net.add("rows", 0, pixels * channels, outer, source)

    for pixels, channels in ((4096, 160), (1024, 320), (256, 640)):
        for _ in range(blocks):
            last = residual(last, pixels, channels)
            skips.append(last)
        last = net.add("dense", pixels / 4 * 18 * channels**2, pixels / 4 * channels * 2, last)
    for pixels, channels in ((256, 640), (1024, 320), (4096, 160)):
        last = net.add("rows", 0, pixels * channels, last)
        for _ in range(blocks):
            joined = net.add("rows", 0, 2 * pixels * channels, last, skips.pop())
            last = residual(net.add("dense", pixels * 2 * channels**2, pixels * channels, joined), pixels, channels)
    net.add("dense", 11e6, 1.6e4, last)
    return net


def detector(anchors: int = 400) -> Network:
    """A backbone and three heads on the card, and so many short steps for boxes that only the host can do."""
    net = resnet()
    levels: list[int] = []
    for pixels in (784, 196, 49):
        neck = net.add("dense", pixels * 256 * 512, pixels * 256, len(net.items) - 3 if levels == [] else levels[-1])
        box = net.add("dense", pixels * 9 * 256**2, pixels * 256, neck)
        label = net.add("dense", pixels * 9 * 256**2, pixels * 256, neck)
        levels.append(net.add("dense", pixels * 256 * 90, pixels * 90, box, label))
    last = levels[-1]
    for number in range(anchors):
        last = net.add("host", 0, 2e3, last, *(levels[:2] if number == 0 else ()))
    return net


def pyramid(levels: int = 5, depth: int = 4) -> Network:
    """A backbone, and at each level of a pyramid two towers of convolutions side by side, as FCOS has them."""
    net = resnet()
    taps = [place for place, (_, _, size) in enumerate(net.kinds) if size in (512 * 784.0, 1024 * 196.0, 2048 * 49.0)]
    above, ends = taps[-1], list[int]()
    for level, pixels in enumerate([12.0, 24.0, 49.0, 196.0, 784.0][-levels:]):
        lateral = net.add("dense", pixels * 256 * 512, pixels * 256, taps[-1 - min(level, len(taps) - 1)])
        above = net.add("dense", pixels * 9 * 256**2, pixels * 256, lateral, above)
        for outputs in (80, 5):
            last = above
            for _ in range(depth):
                inner = net.add("dense", pixels * 9 * 256**2, pixels * 256, last)
                last = net.add("rows", 0, pixels * 256, inner)
                net.groups.append((inner, last))
            ends.append(net.add("dense", pixels * 9 * 256 * outputs, pixels * outputs, last))
    net.add("host", 0, 1e4, *ends)
    return net


def mixture(layers: int = 12, experts: int = 8) -> Network:
    """Attention and a router on every layer, and experts side by side of which the data choose two."""
    net, plane = Network(), 128.0 * 768
    last = net.add("rows", 0, plane, -1)
    for _ in range(layers):
        inner = net.add("dense", 3 * plane * 768, 3 * plane, last)
        mixed = net.add("attention", plane * 256, plane, inner)
        out = net.add("dense", plane * 768, plane, mixed)
        normal = net.add("rows", 0, plane, out, last)
        chosen = net.add("host", 0, 1e3, net.add("dense", plane * experts, 1e3, normal))
        outputs = []
        for _ in range(experts):
            wide = net.add("dense", plane * 768, plane, net.add("host", 0, plane / 4, chosen, normal))
            outputs.append(net.add("dense", plane * 768, plane / 4, wide))
            net.groups.append((wide, outputs[-1]))
        last = net.add("rows", 0, plane, normal, *outputs)
    return net


NETWORKS: dict[str, Callable[[], Network]] = {
    "resnet": resnet,
    "inception": inception,
    "encoder": encoder,
    "densenet": densenet,
    "unet": unet,
    "detector": detector,
    "pyramid": pyramid,
    "mixture": mixture,
    "encoder300": lambda: encoder(300 // 18),
    "encoder1000": lambda: encoder(1000 // 18),
    "encoder5000": lambda: encoder(5000 // 18),
    "unet1000": lambda: unet(23),
    "detector5000": lambda: detector(4900),
    "mixture1000": lambda: mixture(32),
}


TITLES = ("steps", "options", "host_us", "plan_us", "status", "gap", "wall_s", "cpu_s", "MB")


class Limit(Endless):
    """A clock that leaves so many seconds."""

    def __init__(self, limit_s: float) -> None:
        self.end_s = time.monotonic() + limit_s

    def left_s(self) -> float:
        return self.end_s - time.monotonic()


def measure(name: str, effort: float, limit_s: float) -> str:
    """Plan a network and return its line."""
    problem = NETWORKS[name]().problem()
    begin, begin_cpu = time.monotonic(), time.process_time()
    solution = optimize(problem, Effort(effort), Limit(limit_s))
    wall_s, cpu_s = time.monotonic() - begin, time.process_time() - begin_cpu
    counts = f"{len(problem.items):>8} {len(problem.options):>8} {problem.host_only_us:>8.0f}"
    plan = f"{solution.finish_us:>8.0f} {solution.status:>8} {solution.gap:>8.2%}"
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return f"{name:>12} {counts} {plan} {wall_s:>8.1f} {cpu_s:>8.1f} {peak_mb:>8.0f}"


def main() -> None:
    """Print one line per network."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("networks", nargs="*", help=", ".join(NETWORKS))
    parser.add_argument("--effort", type=float, default=Effort().deterministic_limit, help="per 1,000 steps")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for each network")
    given = parser.parse_args()
    if unknown := set(given.networks) - set(NETWORKS):
        parser.error(f"{', '.join(sorted(unknown))} is none of {', '.join(NETWORKS)}")
    print(f"{'network':>12}", *(f"{title:>8}" for title in TITLES))
    for name in given.networks or NETWORKS:
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:  # its peak of memory is its own
            print(pool.submit(measure, name, given.effort, given.limit).result(), flush=True)


if __name__ == "__main__":
    main()
