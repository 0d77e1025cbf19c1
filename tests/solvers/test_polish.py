"""Local search and repair: never worse than the start, within their limits, the same twice."""

import math
import random
from collections.abc import Callable, Iterator

import pytest

from slackswap_ilp.analysis import Graph, keep_all_peak, make_graph
from slackswap_ilp.plan import Action
from slackswap_ilp.simulator import simulate
from slackswap_ilp.solvers import polish
from slackswap_ilp.solvers.base import Monitor
from slackswap_ilp.solvers.evaluate import Evaluation, evaluate, plan_of
from slackswap_ilp.solvers.polish import Search, best_of, improve, repair
from tests.oracle import best_by_enumeration, find_smallest_budget
from tests.solvers.test_fluid import draw_actions, long_instance
from tests.strategies import random_budget_bytes, random_instance


def draw_cases(num_seeds: int) -> Iterator[tuple[Graph, int, Evaluation]]:
    """Yield graphs, feasible budgets and random starts, which may or may not fit."""
    for seed in range(num_seeds):
        rng = random.Random(seed)
        instance = random_instance(seed) if seed % 2 else long_instance(seed)
        graph = make_graph(instance)
        budget_bytes = random_budget_bytes(instance, rng)
        start = evaluate(graph, draw_actions(graph, rng), budget_bytes=budget_bytes)
        if start is not None:
            yield graph, budget_bytes, start


def make_search(graph: Graph, budget_bytes: int, *, max_evaluations: int = 2000, is_cancelled: bool = False) -> Search:
    """Return a search without a step time that is good enough."""
    return Search(graph, budget_bytes, Monitor(is_cancelled=lambda: is_cancelled), 0.0, max_evaluations)


def test_improve_is_never_worse_and_never_below_all_plans() -> None:
    """What it returns is no worse than the start, fits if it has a time, and is simulated in exactly that time."""
    num_better = 0
    for graph, budget_bytes, start in draw_cases(60):
        found = improve(make_search(graph, budget_bytes), start)
        assert found is start or found.is_better_than(start)
        num_better += found is not start
        if found.step_seconds is None:
            assert 0 < found.overflow_bytes <= start.overflow_bytes
            continue
        assert start.step_seconds is None or found.step_seconds <= start.step_seconds
        simulation = simulate(graph.instance, plan_of(graph, found, budget_bytes=budget_bytes))
        assert simulation.fits(budget_bytes)
        assert simulation.step_seconds == found.step_seconds
    assert num_better >= 30


def test_improve_from_keep_all_meets_the_optimum_of_most_small_graphs() -> None:
    """It never goes below the least of all plans, and reaches it on most graphs."""
    num_met = num_compared = 0
    for seed in range(40):
        instance = random_instance(seed, max_layers=4)
        graph = make_graph(instance)
        budget_bytes = random_budget_bytes(instance, random.Random(seed))
        start = evaluate(graph, [Action.KEEP] * graph.num_activations, budget_bytes=budget_bytes)
        assert start is not None
        found = improve(make_search(graph, budget_bytes), start)
        best = best_by_enumeration(instance, budget_bytes, 20_000)
        assert best is not None
        if found.step_seconds is not None:
            assert found.step_seconds >= best.step_seconds * (1 - 1e-12)
            num_met += found.step_seconds <= best.step_seconds * (1 + 1e-9)
        num_compared += 1
    assert num_met / num_compared >= 0.8


def test_repair_only_lowers_the_overflow() -> None:
    """From what does not fit it comes to what fits, or overflows no more; what fits it leaves alone."""
    num_repaired = 0
    for graph, budget_bytes, start in draw_cases(60):
        found = repair(make_search(graph, budget_bytes), start)
        assert found.overflow_bytes <= start.overflow_bytes
        if start.step_seconds is not None:
            assert found is start
        elif found.step_seconds is not None:
            assert simulate(graph.instance, plan_of(graph, found, budget_bytes=budget_bytes)).fits(budget_bytes)
            num_repaired += 1
    assert num_repaired >= 10


@pytest.mark.parametrize("search_for", [improve, repair])
def test_search_stays_within_its_evaluations(
    search_for: Callable[[Search, Evaluation], Evaluation], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It evaluates no more neighbours than it may, none when cancelled, and then returns the start."""
    num_evaluated = 0

    def count(
        graph: Graph, actions: list[Action], *, budget_bytes: int, cutoff_seconds: float = math.inf
    ) -> Evaluation | None:
        nonlocal num_evaluated
        num_evaluated += 1
        return evaluate(graph, actions, budget_bytes=budget_bytes, cutoff_seconds=cutoff_seconds)

    monkeypatch.setattr(polish, "evaluate", count)
    graph = make_graph(long_instance(3))
    budget_bytes = find_smallest_budget(graph.instance)
    start = evaluate(graph, [Action.KEEP] * graph.num_activations, budget_bytes=budget_bytes)
    assert start is not None
    assert start.step_seconds is None
    assert search_for(make_search(graph, budget_bytes, is_cancelled=True), start) is start
    assert num_evaluated == 0
    search_for(make_search(graph, budget_bytes, max_evaluations=5), start)
    assert 0 < num_evaluated <= 5


def test_search_is_deterministic() -> None:
    """Two searches from the same start end at the same actions."""
    for graph, budget_bytes, start in draw_cases(10):
        first, second = (improve(make_search(graph, budget_bytes), start) for _ in range(2))
        assert first.actions == second.actions


def test_improve_stops_when_it_is_good_enough() -> None:
    """A start that is good enough is returned as it is."""
    graph = make_graph(random_instance(1))
    budget_bytes = keep_all_peak(graph)
    start = evaluate(graph, draw_actions(graph, random.Random(4)), budget_bytes=budget_bytes)
    assert start is not None
    assert start.step_seconds is not None
    assert improve(Search(graph, budget_bytes, Monitor(), math.inf, 100), start) is start


def test_best_of_takes_the_first_of_equals() -> None:
    """Of equals the first is best, what fits is better than what does not, and nothing is worse than anything."""
    graph = make_graph(random_instance(1))
    peak_bytes = keep_all_peak(graph)
    actions = [Action.KEEP] * graph.num_activations
    fits, again = (evaluate(graph, actions, budget_bytes=peak_bytes) for _ in range(2))
    misses = evaluate(graph, actions, budget_bytes=peak_bytes - 1)
    assert best_of([None, misses, fits, again]) is fits
    assert best_of([misses, None]) is misses
    assert best_of([None, None]) is None
