"""The exact program against enumeration, the simulator, and what must not change its optimum for the worse."""

import random
from typing import Any

import pytest

from slackswap_ilp.analysis import keep_all_peak, make_graph
from slackswap_ilp.instance import Activation, Device, Instance, Layer
from slackswap_ilp.simulator import simulate
from slackswap_ilp.solvers.backend import Limits, Outcome
from slackswap_ilp.solvers.exact import ExactAnswer, solve_exact
from tests.oracle import best_by_enumeration, find_smallest_budget
from tests.strategies import random_budget_bytes, random_instance

TOLERANCE_RATIO = 1e-6
MOST_TIMED = 60_000
"""Random instances that have more plans to time than this are compared with the simulator alone."""


def solve(instance: Instance, budget_bytes: int, backend: str = "highs") -> ExactAnswer:
    """Solve without limits."""
    return solve_exact(make_graph(instance), budget_bytes=budget_bytes, backend=backend, limits=Limits())


def find_step_seconds(instance: Instance, budget_bytes: int, backend: str = "highs") -> float | None:
    """Return the optimum, after checking that the program's plan fits and costs what the program says."""
    answer = solve(instance, budget_bytes, backend)
    if answer.plan is None:
        assert answer.is_infeasible
        return None
    simulation = simulate(instance, answer.plan)
    assert answer.outcome is Outcome.SOLVED
    assert simulation.fits(budget_bytes)
    assert answer.objective_seconds == pytest.approx(simulation.step_seconds, rel=TOLERANCE_RATIO)
    assert answer.bound_seconds is not None
    assert answer.bound_seconds <= simulation.step_seconds * (1 + 1e-12)
    assert answer.bound_seconds == pytest.approx(simulation.step_seconds, rel=TOLERANCE_RATIO)
    return simulation.step_seconds


def assert_matches_enumeration(instance: Instance, budget_bytes: int, backend: str) -> None:
    """Check the optimum, or that there is none, against the least of all plans."""
    found = find_step_seconds(instance, budget_bytes, backend)
    try:
        best = best_by_enumeration(instance, budget_bytes, MOST_TIMED)
    except ValueError:
        return
    if best is None or found is None:
        assert best is None
        assert found is None
    else:
        assert found == pytest.approx(best.step_seconds, rel=TOLERANCE_RATIO)


def assert_seed_matches_enumeration(seed: int, backend: str) -> None:
    """Check a random instance at a random budget that some plan fits, and just below the least such budget."""
    instance = random_instance(seed)
    assert_matches_enumeration(instance, random_budget_bytes(instance, random.Random(seed)), backend)
    smallest = find_smallest_budget(instance)
    if smallest > 1:
        assert solve(instance, smallest - 1, backend).is_infeasible


def change(instance: Instance, **fields: Any) -> Instance:
    """Return a validated copy of an instance with some of its device's fields changed."""
    content = instance.model_dump()
    return Instance.model_validate({**content, "device": {**content["device"], **fields}})


@pytest.mark.parametrize("seed", range(40))
def test_exact_is_the_least_of_all_plans(seed: int) -> None:
    """The objective is the simulated step time of the plan, and the least of all enumerated plans."""
    assert_seed_matches_enumeration(seed, "highs")


@pytest.mark.parametrize("seed", range(100, 108))
def test_exact_is_the_least_of_all_plans_with_cbc(seed: int) -> None:
    """The same program, solved by CBC, has the same optimum."""
    assert_seed_matches_enumeration(seed, "cbc")


@pytest.mark.slow
@pytest.mark.parametrize("first_seed", range(1000, 1500, 50))
def test_exact_is_the_least_of_all_plans_on_many_graphs(first_seed: int) -> None:
    """The claim of the tests above, on 500 random graphs."""
    for seed in range(first_seed, first_seed + 50):
        assert_seed_matches_enumeration(seed, "highs")


def test_exact_is_not_misled_by_presolve() -> None:
    """HiGHS 1.16's presolve calls this program infeasible, but a plan fits: found on random instance 886."""
    instance = random_instance(886)
    assert find_step_seconds(instance, 23) == pytest.approx(5.625)


@pytest.mark.parametrize("backend", ["highs", "cbc"])
def test_exact_without_decisions_keeps_all(backend: str) -> None:
    """A program without integer variables is answered too: CBC's log does not say "optimal" there."""
    device = Device(name="toy", memory_bytes=9, swap_out_bytes_per_second=1.0, swap_in_bytes_per_second=1.0)
    layer = Layer(name="free", forward_seconds=1.0, backward_seconds=2.0, outputs=(Activation(name="y", size_bytes=8),))
    instance = Instance(name="one layer", device=device, layers=(layer,))
    assert find_step_seconds(instance, 8, backend) == 3.0
    assert solve(instance, 7, backend).is_infeasible


def test_exact_cbc_bound_is_not_above_the_optimum() -> None:
    """CBC prints its bound to six digits, which may round it up: found on random instance 27."""
    assert find_step_seconds(random_instance(27), 13, "cbc") == pytest.approx(9.875)


@pytest.mark.parametrize("seed", range(200, 210))
def test_exact_never_gets_worse_with_more(seed: int) -> None:
    """More budget, more bandwidth or less latency never makes the optimum worse."""
    instance = random_instance(seed)
    budget_bytes = random_budget_bytes(instance, random.Random(seed))
    step_seconds = find_step_seconds(instance, budget_bytes)
    assert step_seconds is not None
    device = instance.device
    richer = (
        find_step_seconds(instance, budget_bytes + 1),
        find_step_seconds(
            change(instance, swap_out_bytes_per_second=1.5 * device.swap_out_bytes_per_second), budget_bytes
        ),
        find_step_seconds(
            change(instance, swap_in_bytes_per_second=1.5 * device.swap_in_bytes_per_second), budget_bytes
        ),
        find_step_seconds(
            change(instance, transfer_latency_seconds=0.5 * device.transfer_latency_seconds), budget_bytes
        ),
    )
    for other in richer:
        assert other is not None
        assert other <= step_seconds * (1 + TOLERANCE_RATIO)


@pytest.mark.parametrize("factor", [1e-6, 1e3])
def test_exact_scales_with_time(factor: float) -> None:
    """All times and 1 / bandwidth times k make the step k times as long, down to microseconds."""
    for seed in range(300, 306):
        instance = random_instance(seed)
        budget_bytes = random_budget_bytes(instance, random.Random(seed))
        content = instance.model_dump()
        for layer in content["layers"]:
            layer["forward_seconds"] *= factor
            layer["backward_seconds"] *= factor
        content["device"]["transfer_latency_seconds"] *= factor
        content["device"]["swap_out_bytes_per_second"] /= factor
        content["device"]["swap_in_bytes_per_second"] /= factor
        step_seconds = find_step_seconds(instance, budget_bytes)
        assert step_seconds is not None
        scaled = find_step_seconds(Instance.model_validate(content), budget_bytes)
        assert scaled == pytest.approx(step_seconds * factor, rel=TOLERANCE_RATIO)


def test_exact_scales_with_bytes() -> None:
    """Sizes, budget and bandwidth times a prime near a billion change nothing, and plans still fit to the byte."""
    factor = 999_999_937
    for seed in range(400, 408):
        instance = random_instance(seed)
        budget_bytes = random_budget_bytes(instance, random.Random(seed))
        content = instance.model_dump()
        for layer in content["layers"]:
            layer["forward_workspace_bytes"] *= factor
            layer["backward_workspace_bytes"] *= factor
            for output in layer["outputs"]:
                output["size_bytes"] *= factor
                output["gradient_bytes"] *= factor
        content["device"]["swap_out_bytes_per_second"] *= factor
        content["device"]["swap_in_bytes_per_second"] *= factor
        if content["device"]["host_memory_bytes"] is not None:
            content["device"]["host_memory_bytes"] *= factor
        scaled = find_step_seconds(Instance.model_validate(content), budget_bytes * factor)
        assert scaled == pytest.approx(find_step_seconds(instance, budget_bytes), rel=TOLERANCE_RATIO)


def test_exact_plan_is_its_own_start() -> None:
    """Started from its own plan, even with no time left, the program returns one as good."""
    found = 0
    for seed in range(500, 512):
        instance = random_instance(seed)
        budget_bytes = random_budget_bytes(instance, random.Random(seed))
        first = solve(instance, budget_bytes)
        assert first.plan is not None
        again = solve_exact(
            make_graph(instance), budget_bytes=budget_bytes, backend="highs", limits=Limits(), start_plan=first.plan
        )
        assert again.objective_seconds == pytest.approx(first.objective_seconds, rel=TOLERANCE_RATIO)
        found += "swap" in {decision.action for decision in first.plan.activations.values()}
    assert found


def test_exact_bound_holds_when_stopped() -> None:
    """Stopped at once, the program claims no optimum, and no bound above it."""
    instance = random_instance(110)
    graph = make_graph(instance)
    budget_bytes = keep_all_peak(graph) * 2 // 3
    answer = solve_exact(graph, budget_bytes=budget_bytes, backend="highs", limits=Limits(is_cancelled=lambda: True))
    best = best_by_enumeration(instance, budget_bytes, MOST_TIMED)
    assert best is not None
    assert not answer.is_infeasible
    if answer.bound_seconds is not None:
        assert answer.bound_seconds <= best.step_seconds * (1 + 1e-12)
