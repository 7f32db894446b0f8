"""Plans of a stream against brute force: the interval and the energy of every plan, counted without the program."""

from __future__ import annotations

import itertools
import random

import pytest

from common.fpga.offload.effort import Effort
from common.fpga.offload.schedule import Assignment, evaluate
from common.fpga.offload.search.pipelined import StreamEnergy, best_stream, interval_us, stream_energy_uj
from common.fpga.offload.search.plan_search import optimize
from tests.support.kernels.offload_problems import engine, flow, option, problem, random_problem, started_by_others


def every_plan(given):
    """Sets of options on instances that cover no item twice and fit the weights; who fits the board is tried after."""
    choices = []
    for index, one in enumerate(given.options):
        choices.append([None, *((index, number) for number in range(given.engines[one.engine].max_instances))])
    for picked in itertools.product(*choices):
        calls = [call for call in picked if call is not None]
        covered = [item for index, _ in calls for item in given.options[index].covers]
        weights = sum(given.options[index].weight_bytes for index, _ in calls)
        if len(covered) == len(set(covered)) and weights <= given.memory_capacity_bytes and fits(given, calls):
            yield calls


def fits(given, calls):
    used = sorted({(given.options[index].engine, number) for index, number in calls})
    parts = [given.engines[kind] for kind, _ in used]
    if sum(part.resources.memory_channels for part in parts) > given.memory_channels:
        return False
    budgets = [(region.budget.lut, region.budget.dsp) for region in given.regions]
    needs = [(part.resources.lut, part.resources.dsp) for part in parts]
    if any(sum(need[kind] for need in needs) > sum(budget[kind] for budget in budgets) for kind in (0, 1)):
        return False
    fixed = [need for need, part in zip(needs, parts, strict=True) if not part.spans_regions]
    places = itertools.product(range(len(budgets)), repeat=len(fixed))
    return any(
        all(
            sum(need[kind] for need, at in zip(fixed, where, strict=True) if at == region) <= budgets[region][kind]
            for region in range(len(budgets))
            for kind in (0, 1)
        )
        for where in places
    )


def waits_in_a_circle(given, calls):
    """Whether some call needs what only comes after it."""
    home = {item: ("call", index) for index, _ in calls for item in given.options[index].covers}
    jobs = {home.get(item, ("host", item)) for item in range(len(given.items))}
    needs = {job: set() for job in jobs}
    for tensor in given.flows:
        for item in tensor.consumers:
            if tensor.producer is not None:
                needs[home.get(item, ("host", item))].add(home.get(tensor.producer, ("host", tensor.producer)))
    hosts = sorted(job for job in jobs if job[0] == "host")
    for before, after in itertools.pairwise(hosts):
        needs[after].add(before)
    needs = {job: before - {job} for job, before in needs.items()}
    done = set()
    while ready := [job for job in jobs - done if needs[job] <= done]:
        done.update(ready)
    return done != jobs


def busy_times(given, calls):
    """Busy time of each resource, and the tensors that cross the link, by hand."""
    on_card = {item for index, _ in calls for item in given.options[index].covers}
    busy = {"host": sum(item.host_us for place, item in enumerate(given.items) if place not in on_card)}
    engine_at = {item: given.options[index].engine for index, _ in calls for item in given.options[index].covers}
    crossing = []
    for number, tensor in enumerate(given.flows):
        is_here = tensor.producer is None or tensor.producer not in on_card
        if is_here and on_card & set(tensor.consumers):
            crossing.append(number)
            busy["h2d"] = busy.get("h2d", 0.0) + tensor.h2d_us.likely
        if not is_here and (tensor.is_output or set(tensor.consumers) - on_card):
            crossing.append(number)
            busy["d2h"] = busy.get("d2h", 0.0) + tensor.d2h_us.likely
    for index, number in calls:
        one = given.options[index]
        sources = {tensor.producer for tensor in given.flows if set(tensor.consumers) & set(one.covers)}
        sources -= set(one.covers)
        is_entered = not sources or None in sources or not sources <= on_card
        rule = given.engines[one.engine].launch_per
        from_others = any(engine_at.get(source) != one.engine for source in sources)
        pays = rule == "call" or is_entered or (rule == "engine" and from_others)
        name = one.engine, number
        busy[name] = busy.get(name, 0.0) + one.time_us.likely + (one.launch_us.likely if pays else 0.0)
    return busy, crossing, on_card


def energy_of(given, calls, energy):
    busy, crossing, on_card = busy_times(given, calls)
    total = sum(uj for item, uj in enumerate(energy.item_uj) if item not in on_card)
    total += sum(energy.option_uj[index] for index, _ in calls) + sum(energy.flow_uj[number] for number in crossing)
    return total + (energy.host_w + (energy.card_w if calls else 0)) * max(busy.values())


def random_energy(given, seed):
    chance = random.Random(seed)

    def draw(count, most):
        return [chance.randint(0, most) for _ in range(count)]

    parts = draw(len(given.items), 90), draw(len(given.options), 40), draw(len(given.flows), 9)
    return StreamEnergy(*parts, host_w=chance.randint(0, 3), card_w=chance.randint(0, 3))


@pytest.mark.slow
@pytest.mark.no_cover
@pytest.mark.parametrize(
    "first", [0, *(pytest.param(first, marks=pytest.mark.exhaustive) for first in range(15, 180, 15))]
)
def test_no_plan_has_a_shorter_interval_or_takes_less_energy(first):
    for seed in range(first, first + 15):
        given = random_problem(seed) if seed % 2 else started_by_others(random_problem(seed))
        energy = random_energy(given, seed)
        plans = [calls for calls in every_plan(given) if not waits_in_a_circle(given, calls)]
        found = best_stream(given, Assignment(), Effort())
        least = min(max(busy_times(given, calls)[0].values()) for calls in plans)
        assert interval_us(evaluate(given, found.assignment)) == pytest.approx(least, abs=1e-3), seed
        found = best_stream(given, Assignment(), Effort(), energy)
        least = min(energy_of(given, calls, energy) for calls in plans)
        assert stream_energy_uj(given, found.assignment, energy) == pytest.approx(least, abs=1e-3), seed


# A stands on the host at 30 us; B and C take 40 us there, and 25 or 10 us on the one engine.
TWO = problem(
    [30, 40, 40],
    [flow("x", None, [0], 0), flow("a", 0, [1, 2], 3, 3), flow("y", 2, [], 0, 5, is_output=True)],
    [engine("E")],
    [option("B", [1], 0, 25, 2), option("C", [2], 0, 10, 2)],
)


def test_a_stream_keeps_every_resource_busy_where_one_inference_would_wait():
    # B and C on the engine: host 30, engine 39. C alone: host 70. The interval is 39, and 37 where launches are free.
    found = best_stream(TWO, optimize(TWO).assignment, Effort())
    assert sorted(call.option for call in found.assignment.calls) == [0, 1]
    assert interval_us(evaluate(TWO, found.assignment)) == 39
    assert found.is_proved


def test_the_card_rests_where_its_static_power_costs_more_than_it_saves():
    # All on the host: 110 + 110 W us. With both calls: 30 + 2 x 5 + link 2 x 1 + 39 us of host and card.
    energy = StreamEnergy([30, 40, 40], [5, 5], [0, 1, 1], host_w=1.0, card_w=1.0)
    found = best_stream(TWO, Assignment(), Effort(), energy)
    assert stream_energy_uj(TWO, found.assignment, energy) == 30 + 10 + 2 + 2 * 39
    hungry = StreamEnergy([30, 40, 40], [5, 5], [0, 1, 1], host_w=1.0, card_w=6.0)
    found = best_stream(TWO, optimize(TWO).assignment, Effort(), hungry)
    assert found.assignment.calls == ()
    assert stream_energy_uj(TWO, found.assignment, hungry) == 110 + 110


def test_a_program_that_is_too_large_leaves_the_known_plan(monkeypatch):
    monkeypatch.setattr("common.fpga.offload.search.pipelined.MOST_OPTIONS", 1)
    known = optimize(TWO).assignment
    assert best_stream(TWO, known, Effort()).assignment is known
