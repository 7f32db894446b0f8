"""The gradient engine on fused groups: probabilities that are sure cost what the groups cost."""

import numpy as np
import pytest

from common.design_space.accelerator.single_buffer import SingleBuffer
from common.design_space.search.engines import gradient_engine
from common.design_space.search.fronts import best
from common.design_space.search.search import ModelPart, search
from common.design_space.single_buffer.fusion import fused_front
from common.design_space.single_buffer.fusion_problem import TILINGS, FusionProblem
from common.workload.loop_nests import LoopNest
from tests.support.designs.layer_graphs import conv_layer, graph_of, traffic_layer

torch = pytest.importorskip("torch", reason="comes with requirements-torch.txt")
BUFFER = SingleBuffer(900, 3.0, 1000.0, 10.0, 2.5, 0.25, 0.3)


def layer(source, written, added=(), taps=3):
    nest = LoopNest(k=2, c=2, p=5, q=3, r=taps, s=taps, pad_p=taps // 2, pad_q=taps // 2, height=5, width=3)
    return conv_layer(nest, source, written, added)


def chain():
    return graph_of([layer(f"t{index}", f"t{index + 1}", taps=1 + 2 * (index % 2)) for index in range(4)], {"t4"})


def diamond():
    """Two branches that are added, behind an operator that fuses with nothing."""
    moved = traffic_layer(4 * 2 * 5 * 3, "input", "t0")
    branches = [layer("t0", "t1"), layer("t0", "t2"), layer("t1", "t3", ("t2",)), layer("t3", "t4", ("t0",))]
    return graph_of([moved, *branches], {"t4"})


GRAPHS = {"chain": chain, "diamond": diamond}


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=[*GRAPHS])
def test_choices_that_are_sure_cost_what_their_groups_do(graph):
    """Each layer joins one before it, or none; nothing is resident. Then a group is certain or impossible."""
    problem = FusionProblem(graph(), BUFFER)
    count = len(problem.graph.layers)
    descent = problem.descent(1, torch.Generator().manual_seed(1))
    generator, compared = np.random.default_rng(3), set()
    for _ in range(60):
        choices = np.zeros(len(problem.choice_sizes), dtype=np.int64)
        choices[:count] = generator.integers(0, TILINGS, count)
        for index, others in enumerate(problem.neighbours):
            earlier = [pick for pick, other in enumerate(others, 1) if other < index]
            choices[count + index] = generator.choice([0, *earlier])
        wanted = {
            (index, problem.neighbours[index][pick - 1])
            for index, pick in enumerate(choices[count : 2 * count])
            if pick
        }
        members = [plan.members for plan in problem.schedule(choices)]
        if not all(any({*pair} <= {*group} for group in members) for pair in wanted):
            continue  # the choices had to be repaired: they stand for other groups
        joins, tilings = np.zeros((1, count, descent.joins.shape[-1])), np.zeros((1, count, TILINGS))
        joins[0, range(count), choices[count : 2 * count]] = 1
        tilings[0, range(count), choices[:count]] = 1
        cycles, energy = descent.costs(torch.tensor(joins), torch.tensor(tilings))
        ours = problem.evaluate(choices[None])
        assert cycles.item() == pytest.approx(ours[0][0], rel=1e-6)
        assert energy.item() == pytest.approx(ours[1][0], rel=1e-6)
        compared.add(tuple(members))
    assert len(compared) > 4


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=[*GRAPHS])
def test_the_gradient_is_the_difference_quotient(graph):
    descent = FusionProblem(graph(), BUFFER).descent(2, torch.Generator().manual_seed(5))
    descent.step(0.7)[2].backward()
    for parameter in descent.parameters:
        assert parameter.grad.isfinite().all()
        place = np.unravel_index(int(parameter.grad.abs().argmax()), parameter.shape)
        ends = []
        for sign in (1, -1):
            with torch.no_grad():
                parameter[place] += sign * 1e-5
                ends.append(descent.step(0.7)[2].item())
                parameter[place] -= sign * 1e-5
        assert parameter.grad[place].item() == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-4)
        assert parameter.grad[place]


def test_what_is_better_fused_becomes_likelier():
    """In a roomy buffer, the traffic between two layers is all that fusing them changes."""
    graph = graph_of([layer("t0", "t1", taps=1), layer("t1", "t2", taps=1)], {"t2"})
    roomy = SingleBuffer(100_000, 3.0, 1000.0, 1000.0, 2.5, 0.25)
    descent = FusionProblem(graph, roomy).descent(1, torch.Generator().manual_seed(2))
    descent.step(1.0)[2].backward()
    alone, joined = descent.joins.grad[0, 1]
    assert alone > 0 > joined


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=[*GRAPHS])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_engine_finds_the_optimum_of_small_graphs_and_nothing_below(graph, seed):
    problem = FusionProblem(graph(), BUFFER)
    found = search({"model": ModelPart(problem)}, gradient_engine.propose, 1500, seed)
    assert found.edp == pytest.approx(best(fused_front(problem.graph, BUFFER)).edp, rel=1e-12)
    again = search({"model": ModelPart(problem)}, gradient_engine.propose, 200, seed)
    assert again.curve == search({"model": ModelPart(problem)}, gradient_engine.propose, 200, seed).curve


def test_a_move_changes_one_choice_that_counts():
    problem = FusionProblem(diamond(), BUFFER)
    choices = np.zeros(len(problem.choice_sizes), dtype=np.int64)
    moves = problem.moves(choices)
    assert set((moves != choices).sum(axis=1)) == {1}
    assert len({move.tobytes() for move in moves}) == len(moves)
    several = sum(len(step.front) > 1 for step in problem.steps(choices))
    others = sum(size - 1 for size in problem.choice_sizes[len(problem.graph.layers) :])
    assert len(moves) == others + several * (TILINGS - 1)
