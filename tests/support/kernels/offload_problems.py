"""Small random offload problems, and the best plan found by trying all of them, with no code of the program."""

import itertools
import random
from dataclasses import replace

from common.fpga.device.resources import Resources
from common.fpga.offload.problem import EngineType, Item, OffloadFlow, Option, Problem, RegionBudget
from common.intervals import ThreePoint


def known(value):
    return ThreePoint.exactly(float(value))


def flow(tensor, producer, consumers, h2d=5, d2h=7, *, is_output=False, convert=(0, 0)):
    ways = (known(h2d), known(d2h), known(convert[0]), known(convert[1]))
    return OffloadFlow(tensor, producer, tuple(consumers), is_output, *ways)


def option(name, covers, engine, time_us, launch_us=0, weight_bytes=0):
    return Option(name, tuple(covers), engine, known(time_us), known(launch_us), weight_bytes)


def engine(name, dsp=10, *, lut=0, spans=False, instances=1, launch_per="call", channels=0):
    return EngineType(name, Resources(lut=lut, dsp=dsp, memory_channels=channels), spans, instances, launch_per)


def problem(hosts, flows, engines, options, budgets=((0, 100),), channels=32, capacity=1000):
    items = tuple(Item(f"n{index}", float(host)) for index, host in enumerate(hosts))
    regions = tuple(RegionBudget(f"R{index}", Resources(lut=lut, dsp=dsp)) for index, (lut, dsp) in enumerate(budgets))
    return Problem(items, tuple(flows), tuple(engines), tuple(options), regions, channels, capacity)


def random_problem(seed):
    """Branches that part and join, engines that compete for two regions, chains of up to three items."""
    chance = random.Random(seed)
    size = chance.randint(1, 6)
    readers = {source: [] for source in range(-1, size)}
    for item in range(size):
        sources = {max(-1, item - chance.choice((1, 1, 1, 2, 3))) for _ in range(chance.choice((1, 1, 2)))}
        for source in sources if chance.random() > 0.05 else ():
            readers[source].append(item)
    flows = [
        flow(
            f"t{source}",
            None if source < 0 else source,
            readers[source],
            chance.choice((0, 1, 3, 11)),
            chance.choice((0, 2, 5, 13)),
            is_output=source >= 0 and (source == size - 1 or chance.random() < 0.1),
            convert=chance.choice(((0, 0), (0, 0), (2, 1))),
        )
        for source in range(-1, size)
    ]
    engines = [
        engine(
            f"E{index}",
            chance.randint(20, 80),
            lut=chance.randint(10, 60),
            spans=chance.random() < 0.3,
            instances=chance.choice((1, 1, 2)),
            launch_per=chance.choice(("call", "entry")),
            channels=chance.choice((0, 9, 17)),
        )
        for index in range(2)
    ]
    singles = [(item,) for item in range(size)]
    chains = [tuple(sorted(chance.sample(range(size), chance.choice((2, 3))))) for _ in range(2) if size > 2]
    options = [
        option(
            f"{covers}@{number}",
            covers,
            number,
            chance.randint(1, 23 * len(covers)),
            chance.choice((0, 4)),
            chance.randint(0, 40),
        )
        for covers in dict.fromkeys(singles + chains)
        for number in range(2)
        if chance.random() < 0.75
    ]
    hosts = [chance.choice((0, 3, 17, 29, 41, 53)) for _ in range(size)]
    return problem(hosts, flows, engines, options, ((60, 100), (50, 70)), 26, 150)


def random_towers(seed):
    """Two chains that the host computes one after the other, each with steps that only the host can do, and a join.

    The card may begin the second chain while the host computes the first. Calls are about as long as what hides them.
    """
    chance = random.Random(seed)
    lengths = chance.randint(2, 4), chance.randint(2, 3)
    size = sum(lengths) + 1
    starts, join = (0, lengths[0]), size - 1
    flows = []
    for start, length in zip(starts, lengths, strict=True):
        links = (chance.choice((0, 1, 3)), chance.choice((0, 2, 5)))
        flows.append(flow(f"in{start}", None, [start], *links))
        for item in range(start, start + length):
            reader = item + 1 if item + 1 < start + length else join
            flows.append(flow(f"t{item}", item, [reader], *links, convert=chance.choice(((0, 0), (2, 1)))))
    flows.append(flow("out", join, [], 1, 1, is_output=True))
    engines = [
        engine(f"E{index}", chance.randint(20, 60), instances=chance.choice((1, 1, 2)), launch_per="call")
        for index in range(2)
    ]
    may_move = [item for item in range(size) if chance.random() < 0.6]
    pairs = [(item, item + 1) for item in may_move if item + 1 in may_move and item + 1 not in (*starts, join)]
    options = [
        option(f"{covers}@{number}", covers, number, chance.randint(1, 20), chance.choice((5, 15, 30)))
        for covers in [*((item,) for item in may_move), *pairs]
        for number in range(2)
        if chance.random() < 0.7
    ]
    hosts = [chance.choice((1, 2, 11, 23, 41)) for _ in range(size)]
    return problem(hosts, flows, engines, options, ((0, 100), (0, 40)))


def started_by_others(given):
    """The same problem with engines that fetch their own instructions, once somebody has started them."""
    rules = {"entry": "engine", "call": "call"}
    return replace(given, engines=tuple(replace(one, launch_per=rules[one.launch_per]) for one in given.engines))


# --- every plan -----------------------------------------------------------------------------------------------------


def earliest_finish(given):
    """Over all covers, instances, and orders of whatever shares a resource."""
    best = [sum(item.host_us for item in given.items)]
    for calls in _covers(given, 0, []):
        used = {(given.options[index].engine, number) for index, number in calls}
        weights = sum(given.options[index].weight_bytes for index, _ in calls)
        if weights <= given.memory_capacity_bytes and _fits(given, sorted(used)):
            jobs = _jobs(given, calls)
            _orders(jobs, {}, {}, best, set())
    return best[0]


def _covers(given, item, calls):
    taken = {covered for index, _ in calls for covered in given.options[index].covers}
    while item in taken:
        item += 1
    if item == len(given.items):
        yield list(calls)
        return
    yield from _covers(given, item + 1, calls)
    for index, candidate in enumerate(given.options):
        # An option is met at its first item, so that an item left to the host is not taken later.
        if candidate.covers[0] == item and not taken & set(candidate.covers):
            for number in range(given.engines[candidate.engine].max_instances):
                yield from _covers(given, item + 1, [*calls, (index, number)])


def _fits(given, used):
    parts = [given.engines[index] for index, _ in used]
    if sum(part.resources.memory_channels for part in parts) > given.memory_channels:
        return False
    fixed = [part.resources for part in parts if not part.spans_regions]
    budgets = [region.budget for region in given.regions]
    for kind in ("lut", "dsp"):
        if sum(getattr(part.resources, kind) for part in parts) > sum(getattr(budget, kind) for budget in budgets):
            return False
    return any(
        all(
            sum(getattr(part, kind) for part, at in zip(fixed, places, strict=True) if at == here)
            <= getattr(budget, kind)
            for here, budget in enumerate(budgets)
            for kind in ("lut", "dsp")
        )
        for places in itertools.product(range(len(budgets)), repeat=len(fixed))
    )


def _jobs(given, calls):
    """The jobs by name: resource, duration, (job to wait for, delay after it), and the time that follows the job."""
    home = {item: ("host", item) for item in range(len(given.items))}
    for index, _ in calls:
        home.update(dict.fromkeys(given.options[index].covers, ("call", index)))
    jobs, before = {}, None
    for item, work in enumerate(given.items):
        if home[item] == ("host", item):
            jobs["host", item] = ["host", work.host_us, [(before, 0)] if before else [], 0]
            before = ("host", item)
    for index, number in calls:
        chosen = given.options[index]
        fed = [tensor.producer for tensor in given.flows if set(tensor.consumers) & set(chosen.covers)]
        fed = [source for source in fed if source not in chosen.covers]
        from_host = [source for source in fed if source is None or home[source][0] == "host"]
        rule = given.engines[chosen.engine].launch_per
        pays = rule == "call" or from_host or not fed
        if not pays and rule == "engine":
            pays = any(given.options[home[source][1]].engine != chosen.engine for source in fed)
        duration = chosen.time_us.likely + (chosen.launch_us.likely if pays else 0)
        jobs["call", index] = [("engine", chosen.engine, number), duration, [], 0]
    for number, tensor in enumerate(given.flows):
        source = None if tensor.producer is None else home[tensor.producer]
        is_here = source is None or source[0] == "host"
        for reader in {home[item] for item in tensor.consumers} - {source}:
            if (reader[0] == "host") == is_here:
                jobs[reader][2] += [(source, 0)] if source else []
            else:
                way = "h2d" if is_here else "d2h"
                jobs[reader][2].append(((way, number), tensor.h2d_convert_us.likely if is_here else 0))
                _add_transfer(jobs, way, number, tensor, source)
        if tensor.is_output and not is_here:
            _add_transfer(jobs, "d2h", number, tensor, source)
    return jobs


def _add_transfer(jobs, way, number, tensor, source):
    if way == "h2d":
        waits = [(source, 0)] if source else []
        jobs[way, number] = [way, tensor.h2d_us.likely, waits, tensor.h2d_convert_us.likely]
    else:
        jobs[way, number] = [way, tensor.d2h_us.likely, [(source, tensor.d2h_convert_us.likely)], 0]


def _orders(jobs, ends, free, best, seen):
    """Append any job that may come next to its resource; every order of every resource comes up."""
    if len(ends) == len(jobs):
        best[0] = min(best[0], max((ends[name] + jobs[name][3] for name in ends), default=0))
        return
    state = frozenset(ends.items())
    if state in seen or any(end >= best[0] for end in ends.values()):
        return
    seen.add(state)
    for name, (resource, duration, waits, _) in jobs.items():
        if name not in ends and all(source in ends for source, _ in waits):
            start = max([free.get(resource, 0), *(ends[source] + delay for source, delay in waits)])
            end = start + duration
            _orders(jobs, {**ends, name: end}, {**free, resource: end}, best, seen)
