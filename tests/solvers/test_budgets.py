"""The least budget, bounded from both sides: necessary <= the truth <= sufficient."""

import pytest

from slackswap_ilp.analysis import make_graph
from slackswap_ilp.instance import Instance
from slackswap_ilp.models.presets import generate
from slackswap_ilp.solvers.base import Monitor, Problem, SolveOptions
from slackswap_ilp.solvers.budgets import find_budget_limits
from slackswap_ilp.solvers.ilp import solve_ilp
from tests.oracle import find_smallest_budget
from tests.solvers.test_fluid import long_instance, slow_link_instance
from tests.strategies import random_instance


def check_limits(instance: Instance, backend: str) -> tuple[bool, bool]:
    """Check both sides against the least peak of all plans; return whether each of them meets it."""
    smallest = find_smallest_budget(instance)
    graph = make_graph(instance)
    limits = find_budget_limits(graph, backend=backend, monitor=Monitor())
    assert max(graph.fixed_bytes) <= limits.necessary_bytes <= smallest
    assert limits.sufficient_bytes is not None
    assert smallest <= limits.sufficient_bytes
    return limits.necessary_bytes == smallest, limits.sufficient_bytes == smallest


@pytest.mark.parametrize(("backend", "num_seeds"), [("highs", 80), ("cbc", 10)])
def test_budget_limits_enclose_the_least_budget(backend: str, num_seeds: int) -> None:
    """Necessary is never above the least peak of all plans, sufficient never below, and both mostly meet it."""
    met = [check_limits(random_instance(seed), backend) for seed in range(num_seeds)]
    met += [check_limits(long_instance(seed), backend) for seed in range(num_seeds)]
    assert sum(necessary for necessary, _ in met) / len(met) > 0.9
    assert sum(sufficient for _, sufficient in met) / len(met) > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("first_seed", range(500, 750, 50))
def test_budget_limits_enclose_the_least_budget_of_many_graphs(first_seed: int) -> None:
    """The claim of the test above, on 500 graphs."""
    for seed in range(first_seed, first_seed + 50):
        check_limits(random_instance(seed), "highs")
        check_limits(long_instance(seed), "highs")


def test_budget_limits_of_a_model() -> None:
    """On a real model the two sides are within a hundredth, and at the sufficient one a plan is found."""
    graph = make_graph(generate("bert-large", layers=2))
    limits = find_budget_limits(graph, backend="highs", monitor=Monitor())
    assert limits.sufficient_bytes is not None
    assert limits.necessary_bytes <= limits.sufficient_bytes <= limits.necessary_bytes * 1.01
    options = SolveOptions(gap=0.5)
    claim = solve_ilp(Problem(graph, limits.sufficient_bytes), options, Monitor())
    assert claim.plan is not None
    below = solve_ilp(Problem(graph, limits.necessary_bytes - 1), options, Monitor())
    assert below.is_infeasible
    assert below.plan is None


def test_budget_limits_when_cancelled() -> None:
    """Cancelled at once, the limits are weaker, not wrong."""
    for seed in range(10):
        instance = long_instance(seed)
        limits = find_budget_limits(make_graph(instance), backend="highs", monitor=Monitor(is_cancelled=lambda: True))
        smallest = find_smallest_budget(instance)
        assert limits.necessary_bytes <= smallest
        assert limits.sufficient_bytes is None or smallest <= limits.sufficient_bytes


def test_budget_limits_with_a_slow_link() -> None:
    """However slow the link, what waiting for it can free is not called necessary."""
    for exponent in (4, 8, 10):
        check_limits(slow_link_instance(seconds_per_copy=10.0**exponent), "highs")
