"""Greedy SlackSwap: plans that fit, or nothing; never a proof."""

import random

import pytest

from slackswap_ilp.analysis import Graph, keep_all_peak, make_graph
from slackswap_ilp.instance import Activation, Device, Instance, Layer
from slackswap_ilp.models.presets import generate
from slackswap_ilp.plan import Action
from slackswap_ilp.simulator import simulate
from slackswap_ilp.solvers.base import Monitor, Problem, SolveOptions
from slackswap_ilp.solvers.greedy import find_greedy, rank_candidates, solve_greedy
from tests.oracle import find_smallest_budget
from tests.solvers.test_fluid import long_instance
from tests.strategies import random_budget_bytes, random_instance

UNLIMITED = Monitor()


def make_chain(num_layers: int, *, bytes_per_second: float, is_recomputable: bool = True) -> Instance:
    """Return a chain whose layers take 1 s and 2 s and save what they read, 8 bytes each."""
    device = Device(
        name="toy",
        memory_bytes=1000,
        swap_out_bytes_per_second=bytes_per_second,
        swap_in_bytes_per_second=bytes_per_second,
    )
    layers = tuple(
        Layer(
            name=f"layer{index}",
            forward_seconds=1.0,
            backward_seconds=2.0,
            inputs=(f"x{index - 1}",) if index else (),
            outputs=(Activation(name=f"x{index}", size_bytes=8),),
            saved=(f"x{index - 1}",) if index else (),
            recomputable=is_recomputable,
        )
        for index in range(num_layers)
    )
    return Instance(name="chain", device=device, layers=layers)


def solve(graph: Graph, budget_bytes: int) -> float | None:
    """Return the simulated step time of greedy's plan, after checking its claim; None if it found nothing."""
    claim = solve_greedy(Problem(graph, budget_bytes), SolveOptions(), Monitor())
    assert not claim.is_infeasible
    assert claim.bound_seconds is None
    if claim.plan is None:
        return None
    simulation = simulate(graph.instance, claim.plan)
    assert simulation.fits(budget_bytes)
    assert claim.plan.budget_bytes == budget_bytes
    found = find_greedy(graph, budget_bytes=budget_bytes, monitor=Monitor())
    assert found is not None
    assert found.step_seconds == simulation.step_seconds
    return simulation.step_seconds


def test_greedy_claims_a_plan_that_fits_or_nothing() -> None:
    """Its plans fit and take the time it expects; it mostly finds one, and never below the least budget."""
    num_found = 0
    for seed in range(24):
        instance = random_instance(seed) if seed % 2 else long_instance(seed)
        graph = make_graph(instance)
        smallest = find_smallest_budget(instance)
        if smallest > 1:
            assert solve(graph, smallest - 1) is None
        num_found += solve(graph, random_budget_bytes(instance, random.Random(seed))) is not None
    assert num_found >= 20


def test_greedy_keeps_all_that_fits() -> None:
    """At the keep-all peak it keeps everything."""
    graph = make_graph(random_instance(5))
    found = find_greedy(graph, budget_bytes=keep_all_peak(graph), monitor=UNLIMITED)
    assert found is not None
    assert set(found.actions) == {Action.KEEP}
    assert solve(graph, keep_all_peak(graph)) == pytest.approx(graph.ideal_seconds)


def test_greedy_swaps_while_the_link_has_slack() -> None:
    """A link that moves every activation within a layer's time makes half the memory free of charge."""
    graph = make_graph(make_chain(12, bytes_per_second=16.0))
    assert solve(graph, keep_all_peak(graph) // 2) == pytest.approx(graph.ideal_seconds)


def test_greedy_recomputes_without_slack() -> None:
    """Where a copy takes longer than the step, it swaps nothing and pays with recomputing."""
    graph = make_graph(make_chain(12, bytes_per_second=0.1))
    found = find_greedy(graph, budget_bytes=keep_all_peak(graph) * 2 // 3, monitor=UNLIMITED)
    assert found is not None
    assert Action.SWAP not in found.actions
    assert Action.RECOMPUTE in found.actions
    assert found.step_seconds is not None
    assert found.step_seconds > graph.ideal_seconds


def test_greedy_stalls_where_nothing_else_is_left() -> None:
    """Where nothing may run again and the link is slow, it still finds a plan, one that waits."""
    graph = make_graph(make_chain(6, bytes_per_second=1.0, is_recomputable=False))
    step_seconds = solve(graph, keep_all_peak(graph) * 2 // 3)
    assert step_seconds is not None
    assert step_seconds > graph.ideal_seconds


def test_greedy_counts_what_rebuilding_takes() -> None:
    """What hides an unsaved chain is dearer per byte than what its own layer rebuilds alone.

    z (8 bytes) takes layers 2 and 1 again, 1 + 1 s, for y is not saved; x takes layer 0 alone, 1 s.
    """
    device = Device(name="toy", memory_bytes=99, swap_out_bytes_per_second=1.0, swap_in_bytes_per_second=1.0)
    layers = tuple(
        Layer(
            name=name,
            forward_seconds=1.0,
            backward_seconds=1.0,
            inputs=inputs,
            outputs=(Activation(name=name, size_bytes=8),),
            saved=saved,
        )
        for name, inputs, saved in (("x", (), ("x",)), ("y", ("x",), ()), ("z", ("y",), ("z",)))
    )
    candidates = rank_candidates(make_graph(Instance(name="chain", device=device, layers=layers)))
    prices = {candidate.activations: candidate.seconds_per_byte for candidate in candidates}
    assert prices == {(2,): 2 / 8, (0,): 1 / 8}


def test_greedy_is_deterministic() -> None:
    """Two runs make the same plan."""
    graph = make_graph(generate("bert-large", layers=2))
    budget_bytes = keep_all_peak(graph) * 8 // 10
    first, second = (solve_greedy(Problem(graph, budget_bytes), SolveOptions(), Monitor()).plan for _ in range(2))
    assert first is not None
    assert first == second


def test_greedy_cancelled_returns() -> None:
    """Cancelled at once, it returns what it has, and claims nothing it has not."""
    graph = make_graph(generate("bert-large", layers=4))
    budget_bytes = keep_all_peak(graph) * 7 // 10
    claim = solve_greedy(Problem(graph, budget_bytes), SolveOptions(), Monitor(is_cancelled=lambda: True))
    assert not claim.is_infeasible
    if claim.plan is not None:
        assert simulate(graph.instance, claim.plan).fits(budget_bytes)
