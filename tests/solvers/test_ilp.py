"""The ilp solver against enumeration: the least step time, an honest bound, and infeasible only where nothing fits."""

import random
import time
from collections import Counter

import pytest

from slackswap_ilp.analysis import keep_all_peak, make_graph
from slackswap_ilp.instance import Instance
from slackswap_ilp.models.presets import generate
from slackswap_ilp.pipeline import solve
from slackswap_ilp.result import Result, Status
from slackswap_ilp.simulator import simulate
from slackswap_ilp.solvers.base import Monitor, Problem, SolveOptions
from slackswap_ilp.solvers.ilp import solve_ilp
from tests.oracle import best_by_enumeration, find_smallest_budget
from tests.solvers.test_fluid import long_instance
from tests.strategies import random_budget_bytes, random_instance

MOST_TIMED = 1_500
GAPS = {"highs": (1e-6, 0.05), "cbc": (1e-4, 0.05)}
"""CBC prints its bound to six digits, so it cannot prove less than a hundred-thousandth."""


def check_result(instance: Instance, result: Result, gap: float) -> None:
    """Check a result with a plan against the simulator, and its status against its own numbers."""
    assert result.plan is not None
    assert result.step_seconds is not None
    assert result.bound_seconds is not None
    assert result.gap_ratio is not None
    simulation = simulate(instance, result.plan)
    assert simulation.fits(result.budget_bytes)
    assert result.step_seconds == simulation.step_seconds
    assert result.bound_seconds <= result.step_seconds
    assert result.gap_ratio == pytest.approx(result.step_seconds / result.bound_seconds - 1, abs=1e-12)
    assert (result.status is Status.OPTIMAL) == (result.gap_ratio <= gap)


def check_against_enumeration(instance: Instance, budget_bytes: int, gap: float, backend: str) -> str:
    """Check a solve that nothing stops; return how it was solved."""
    result = solve(instance, budget=budget_bytes, gap=gap, backend=backend, time_limit_seconds=None)
    check_result(instance, result, gap)
    try:
        best = best_by_enumeration(instance, budget_bytes, MOST_TIMED)
    except ValueError:
        return result.method
    assert best is not None
    assert result.step_seconds is not None
    assert result.bound_seconds is not None
    assert result.bound_seconds <= best.step_seconds * (1 + 1e-12)
    assert result.step_seconds >= best.step_seconds * (1 - 1e-9)
    assert result.status is Status.OPTIMAL
    return result.method


def check_infeasible(instance: Instance, budget_bytes: int, smallest: int, backend: str) -> str:
    """Check that a budget below the smallest is infeasible, with figures that enclose it; return the proof."""
    result = solve(instance, budget=budget_bytes, backend=backend)
    assert result.status is Status.INFEASIBLE
    assert result.plan is None
    assert result.necessary_budget_bytes is not None
    assert result.sufficient_budget_bytes is not None
    assert result.necessary_budget_bytes <= smallest <= result.sufficient_budget_bytes
    assert result.message is not None
    assert "infeasible" in result.message
    assert str(result.necessary_budget_bytes) in result.message
    assert str(result.sufficient_budget_bytes) in result.message
    return result.method


def check_seed(instance: Instance, seed: int, backend: str) -> Counter[str]:
    """Check a random graph at its least budget, at a random one above it, and one byte below it."""
    smallest = find_smallest_budget(instance)
    seen: Counter[str] = Counter()
    drawn = random_budget_bytes(instance, random.Random(seed))
    for budget_bytes in sorted({max(1, smallest), max(1, drawn)}):
        seen[check_against_enumeration(instance, budget_bytes, GAPS[backend][seed % 2], backend)] += 1
    if smallest > 1:
        seen[check_infeasible(instance, smallest - 1, smallest, backend)] += 1
    return seen


def test_ilp_is_the_least_of_all_plans() -> None:
    """Within the gap the step time is the least of all plans, and infeasible is said exactly when there is none."""
    seen: Counter[str] = Counter()
    for seed in range(14):
        seen += check_seed(random_instance(seed), seed, "highs")
        seen += check_seed(long_instance(seed), seed, "highs")
    assert {"keeping all fits", "exact", "fluid", "ledger", "fluid relaxation"} <= set(seen)


def test_ilp_is_the_least_of_all_plans_with_cbc() -> None:
    """The same with CBC."""
    for seed in range(100, 105):
        check_seed(random_instance(seed), seed, "cbc")
    check_seed(long_instance(100), 100, "cbc")


@pytest.mark.slow
@pytest.mark.parametrize("first_seed", range(5000, 5250, 25))
def test_ilp_is_the_least_of_all_plans_on_many_graphs(first_seed: int) -> None:
    """The claim of the tests above, on 500 graphs."""
    for seed in range(first_seed, first_seed + 25):
        check_seed(random_instance(seed), seed, "highs")
        check_seed(long_instance(seed), seed, "highs")


@pytest.mark.parametrize("backend", ["highs", "cbc"])
def test_ilp_keeps_all_that_fits(backend: str) -> None:
    """At the keep-all peak it keeps everything at the ideal step time, without a program, even with no time."""
    for instance in (random_instance(3), generate("bert-large")):
        peak_bytes = keep_all_peak(make_graph(instance))
        result = solve(instance, budget=peak_bytes, backend=backend, time_limit_seconds=1e-9, gap=0.0)
        assert result.method == "keeping all fits"
        assert result.num_kept == len(instance.activations)
        assert result.step_seconds == pytest.approx(result.ideal_seconds)
        assert result.gap_ratio == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("backend", ["highs", "cbc"])
def test_ilp_without_time_says_nothing_wrong(backend: str) -> None:
    """With a time limit of nearly nothing: a plan that fits or none, a valid bound, and no false infeasibility."""
    num_plans = 0
    for seed in range(20, 32):
        instance = random_instance(seed)
        budget_bytes = random_budget_bytes(instance, random.Random(seed))
        result = solve(instance, budget=budget_bytes, backend=backend, time_limit_seconds=1e-6)
        check_stopped(instance, result)
        num_plans += result.plan is not None
    assert num_plans


@pytest.mark.parametrize("backend", ["highs", "cbc"])
def test_ilp_cancelled_at_once_says_nothing_wrong(backend: str) -> None:
    """Cancelled at once: a plan that fits or none, a valid bound, and no false infeasibility."""
    for seed in range(20, 28):
        instance = random_instance(seed)
        budget_bytes = random_budget_bytes(instance, random.Random(seed))
        result = solve(instance, budget=budget_bytes, backend=backend, is_cancelled=lambda: True)
        assert result.is_interrupted
        check_stopped(instance, result)


@pytest.mark.parametrize("num_asked", [1, 3, 10, 30, 100, 300])
def test_ilp_cancelled_on_the_way_says_nothing_wrong(num_asked: int) -> None:
    """The same when cancelled later on, wherever it is by then."""
    for seed in (24, 26, 31):
        instance = random_instance(seed)
        budget_bytes = random_budget_bytes(instance, random.Random(seed))
        left = num_asked

        def is_cancelled() -> bool:
            nonlocal left
            left -= 1
            return left < 0

        check_stopped(instance, solve(instance, budget=budget_bytes, gap=0.0, is_cancelled=is_cancelled))


def check_stopped(instance: Instance, result: Result) -> None:
    """Check what a solve that was stopped says of a budget that some plan fits."""
    assert result.status is not Status.INFEASIBLE
    if result.plan is not None:
        check_result(instance, result, 0.001 if result.status is Status.OPTIMAL else (result.gap_ratio or 0.0) / 2)
    try:
        best = best_by_enumeration(instance, result.budget_bytes, MOST_TIMED)
    except ValueError:
        return
    assert best is not None
    if result.bound_seconds is not None:
        assert result.bound_seconds <= best.step_seconds * (1 + 1e-12)
    if result.step_seconds is not None:
        assert result.step_seconds >= best.step_seconds * (1 - 1e-9)


def test_ilp_stopped_on_a_model_has_plan_and_bound() -> None:
    """On a real model, stopped after a second: a plan, a bound above the ideal step, and no word of optimal."""
    instance = generate("bert-large", layers=12)
    result = solve(instance, budget="40%", gap=1e-9, time_limit_seconds=1.0)
    assert result.status is Status.FEASIBLE
    check_result(instance, result, 1e-9)
    assert result.bound_seconds is not None
    assert result.bound_seconds >= result.ideal_seconds


def test_ilp_progress_is_ordered() -> None:
    """Step times reported on the way fall, bounds rise, never past each other, to what is claimed in the end."""
    graph = make_graph(generate("bert-large", layers=2))
    seen: list[tuple[float | None, float | None]] = []
    monitor = Monitor(on_progress=lambda step, bound: seen.append((step, bound)), deadline=time.monotonic() + 20)
    claim = solve_ilp(Problem(graph, keep_all_peak(graph) * 8 // 10), SolveOptions(), monitor)
    assert claim.plan is not None
    assert claim.bound_seconds is not None
    steps = [step for step, _ in seen if step is not None]
    bounds = [bound for _, bound in seen if bound is not None]
    assert steps == sorted(steps, reverse=True)
    assert bounds == sorted(bounds)
    step_seconds = simulate(graph.instance, claim.plan).step_seconds
    assert steps[-1] == pytest.approx(step_seconds, rel=1e-6)
    assert bounds[-1] <= step_seconds
    assert bounds[-1] == pytest.approx(claim.bound_seconds, rel=1e-6)
