"""The fluid program is a relaxation: against all plans, against the exact program, and plan by plan."""

import random
from collections.abc import Iterator, Sequence

import pytest

from slackswap_ilp.analysis import Graph, derive_closure, keep_all_peak, make_graph, normalise_actions
from slackswap_ilp.instance import Activation, Device, Instance, Layer
from slackswap_ilp.plan import Action
from slackswap_ilp.simulator import simulate
from slackswap_ilp.solvers.backend import Limits, Outcome, solve_program
from slackswap_ilp.solvers.evaluate import evaluate, plan_of, tight_peak
from slackswap_ilp.solvers.exact import solve_exact
from slackswap_ilp.solvers.fluid import make_fluid_program, read_actions
from slackswap_ilp.solvers.fluid_model import FluidProgram
from tests.oracle import BestPlan, best_by_enumeration, find_smallest_budget
from tests.strategies import find_budget_range, random_budget_bytes, random_instance, random_plan

WINDOWS = (None, 1, 2, 3)
TOLERANCE_RATIO = 1e-7
"""What a solver's tolerances may add to a bound; the margin that the ilp solver takes off."""

MOST_TIMED = 1_500
"""Graphs that have more plans to time than this are left to the tests that go plan by plan."""


def long_instance(
    seed: int, *, num_layers: tuple[int, int] = (6, 10), most_activations: int = 9, most_saved: int = 4
) -> Instance:
    """Return a graph of many layers and few saved activations: chains and skips longer than the windows.

    Unsaved intermediates are read by several layers, layers have several outputs, activations are saved by several
    layers, and what rebuilds one activation is a long chain.
    """
    rng = random.Random(f"long {seed}")
    num = rng.randint(*num_layers)
    is_regular = rng.random() < 0.5
    skip, several, save = rng.choice((0.0, 0.1, 0.25, 0.5)), rng.choice((0.0, 0.15, 0.4)), rng.choice((0.05, 0.1, 0.2))
    has_workspaces, has_gradients = rng.random() < 0.5, rng.random() < 0.4
    produced: list[str] = []
    ever_saved: list[str] = []
    layers: list[Layer] = []
    for index in range(num):
        room = most_activations - len(produced) - (num - 1 - index)
        num_outputs = rng.randint(2, min(3, room)) if room > 1 and rng.random() < several else 1
        outputs = [
            Activation(
                name=f"a{index}{'xyz'[position]}",
                size_bytes=rng.randint(1, 8),
                gradient_bytes=rng.randint(0, 3) if has_gradients else 0,
                swappable=rng.random() < 0.85,
            )
            for position in range(num_outputs if room > 0 and rng.random() < 0.95 else 0)
        ]
        inputs = [name for name in produced[-1:] if rng.random() < 0.95]
        inputs += [name for name in produced[:-1] if rng.random() < skip]
        produced += [output.name for output in outputs]
        near = {*inputs, *(output.name for output in outputs)}
        saved = []
        for name in produced:
            chance = 0.3 if name in ever_saved else save if name in near else 0.01
            if rng.random() < chance and (name in ever_saved or len(ever_saved) < most_saved):
                saved.append(name)
                ever_saved += [] if name in ever_saved else [name]
        if index == num - 1 and produced and not ever_saved:
            saved = produced[-1:]
        layers.append(
            Layer(
                name=f"layer{index}",
                forward_seconds=_draw_seconds(rng, is_regular=is_regular),
                backward_seconds=_draw_seconds(rng, is_regular=is_regular),
                inputs=tuple(inputs),
                outputs=tuple(outputs),
                saved=tuple(saved),
                forward_workspace_bytes=rng.choice((0, 0, 1, 2, 5)) if has_workspaces else 0,
                backward_workspace_bytes=rng.choice((0, 0, 1, 2)) if has_workspaces else 0,
                recomputable=rng.random() < 0.93,
            )
        )
    rates = [rng.choice((2.0, 4.0, 8.0, 16.0, 32.0)) if is_regular else rng.uniform(1.0, 40.0) for _ in range(2)]
    device = Device(
        name="gpu",
        memory_bytes=1000,
        host_memory_bytes=rng.randint(0, 16) if rng.random() < 0.2 else None,
        swap_out_bytes_per_second=rates[0],
        swap_in_bytes_per_second=rates[1],
        transfer_latency_seconds=rng.choice((0.0, 0.0, 0.125, 0.5)),
        duplex="half" if rng.random() < 0.3 else "full",
    )
    return Instance(name=f"long {seed}", device=device, layers=tuple(layers))


def _draw_seconds(rng: random.Random, *, is_regular: bool) -> float:
    """Draw the time of one forward or backward."""
    if rng.random() < 0.1:
        return 0.0
    return rng.randint(1, 16) / 8 if is_regular else rng.uniform(0.01, 3.0)


def relax(fluid: FluidProgram) -> float | None:
    """Return the optimum of the linear relaxation in seconds or, without a budget, in bytes; None if infeasible."""
    answer = solve_program(fluid.program, backend="highs", limits=Limits(), relax=True)
    if answer.objective is None:
        assert answer.outcome is Outcome.INFEASIBLE
        return None
    if fluid.budget_bytes is None:
        return answer.objective * fluid.scale.bytes_per_unit
    return fluid.graph.ideal_seconds + answer.objective * fluid.scale.seconds_per_unit


def relax_window(graph: Graph, budget_bytes: int | None, window: int | None) -> float | None:
    """Return the optimum of the relaxation with a window."""
    return relax(make_fluid_program(graph, budget_bytes=budget_bytes, window=window))


def find_whole_bound(graph: Graph, budget_bytes: int, window: int | None) -> float | None:
    """Return the bound that the fluid program proves in whole decisions; None if it is infeasible."""
    fluid = make_fluid_program(graph, budget_bytes=budget_bytes, window=window)
    answer = solve_program(fluid.program, backend="highs", limits=Limits())
    if answer.bound is None:
        assert answer.outcome is Outcome.INFEASIBLE
        return None
    return graph.ideal_seconds + answer.bound * fluid.scale.seconds_per_unit


def is_below(bound: float | None, truth: float) -> bool:
    """Whether a bound is there and not above the truth, but for the solver's tolerance."""
    return bound is not None and bound <= truth * (1 + TOLERANCE_RATIO) + 1e-12


def find_best(instance: Instance, budget_bytes: int) -> BestPlan | None:
    """Return a fastest of all plans, which there is; None if there are too many to time."""
    try:
        best = best_by_enumeration(instance, budget_bytes, MOST_TIMED)
    except ValueError:
        return None
    assert best is not None
    return best


def check_bounds(instance: Instance, seed: int) -> int:
    """Check all bounds at the least and at a random feasible budget; return at how many enumeration finished."""
    graph = make_graph(instance)
    smallest = find_smallest_budget(instance)
    for window in WINDOWS:
        assert is_below(relax_window(graph, None, window), smallest), (seed, window)
    num_checked = 0
    for budget_bytes in sorted({smallest, random_budget_bytes(instance, random.Random(seed))}):
        best = find_best(instance, budget_bytes)
        if best is None:
            continue
        num_checked += 1
        for window in WINDOWS:
            relaxed = relax_window(graph, budget_bytes, window)
            assert is_below(relaxed, best.step_seconds), (seed, budget_bytes, window)
        for window in (None, 1):
            whole = find_whole_bound(graph, budget_bytes, window)
            assert is_below(whole, best.step_seconds), (seed, budget_bytes, window)
    return num_checked


def draw_actions(graph: Graph, rng: random.Random) -> list[Action]:
    """Draw actions that may be taken, from mostly kept to mostly recomputed."""
    keep, swap = rng.choice((0.1, 0.3, 0.6)), rng.choice((0.1, 0.4, 0.8))
    actions = [
        Action.KEEP
        if rng.random() < keep
        else Action.SWAP
        if graph.swappable[activation] and rng.random() < swap
        else Action.RECOMPUTE
        for activation in range(graph.num_activations)
    ]
    while blocked := [layer for layer in derive_closure(graph, actions).rerun_slots if not graph.recomputable[layer]]:
        for layer in blocked:
            for output in graph.outputs[layer]:
                actions[output] = Action.KEEP
    actions = normalise_actions(graph, actions)
    needs = derive_closure(graph, actions).need_slots
    return [
        Action.KEEP if action is Action.SWAP and (need or 0) <= last + 1 else action
        for action, need, last in zip(actions, needs, graph.last_forward_read, strict=True)
    ]


def relax_with_actions(
    graph: Graph, actions: Sequence[Action], budget_bytes: int | None, window: int | None
) -> float | None:
    """Return the optimum of the relaxation in which the actions of what backward needs are given."""
    fluid = make_fluid_program(graph, budget_bytes=budget_bytes, window=window)
    needs = derive_closure(graph, actions).need_slots
    for family, action in ((fluid.keep, Action.KEEP), (fluid.swap, Action.SWAP)):
        for activation, variable in family.items():
            if needs[activation] is not None:
                is_taken = float(actions[activation] is action)
                fluid.program.equal(f"given_{action}[{activation}]", [(variable, 1.0)], is_taken)
    return relax(fluid)


def check_plans(instance: Instance, rng: random.Random, windows: Sequence[int | None]) -> None:
    """Check that the relaxation has room for random plans, and for the leanest plan of random actions."""
    graph = make_graph(instance)
    for actions, peak_bytes, step_seconds in _draw_plans(instance, graph, rng):
        for window in windows:
            bound = relax_with_actions(graph, actions, peak_bytes, window)
            assert is_below(bound, step_seconds), (instance.name, window, actions)
            least = relax_with_actions(graph, actions, None, window)
            assert is_below(least, peak_bytes), (instance.name, window, actions)


def _draw_plans(instance: Instance, graph: Graph, rng: random.Random) -> Iterator[tuple[list[Action], int, float]]:
    """Yield actions, peak and step time of a plan with a random schedule, and of the leanest one for random actions."""
    plan = random_plan(instance, rng)
    simulation = simulate(instance, plan)
    if simulation.fits_host:
        actions = [Action(plan.activations[name].action) for name in graph.names]
        yield normalise_actions(graph, actions), simulation.peak_bytes, simulation.step_seconds
    actions = draw_actions(graph, rng)
    budget_bytes = tight_peak(graph, actions, derive_closure(graph, actions))
    found = evaluate(graph, actions, budget_bytes=budget_bytes)
    if found is not None:
        simulation = simulate(instance, plan_of(graph, found, budget_bytes=budget_bytes))
        yield list(found.actions), simulation.peak_bytes, simulation.step_seconds


def test_fluid_bounds_all_plans_of_random_graphs() -> None:
    """Whatever the window, neither program nor relaxation is above the least of all plans, or infeasible above it."""
    assert sum(check_bounds(random_instance(seed), seed) for seed in range(3000, 3030)) >= 25


def test_fluid_bounds_all_plans_of_long_graphs() -> None:
    """The same where chains are longer than the windows."""
    assert sum(check_bounds(long_instance(seed), seed) for seed in range(30)) >= 25


@pytest.mark.slow
@pytest.mark.parametrize("first_seed", range(4000, 4250, 50))
def test_fluid_bounds_all_plans_of_many_random_graphs(first_seed: int) -> None:
    """The claim of the tests above, on 250 random graphs."""
    for seed in range(first_seed, first_seed + 50):
        check_bounds(random_instance(seed), seed)


@pytest.mark.slow
@pytest.mark.parametrize("first_seed", range(1000, 1250, 50))
def test_fluid_bounds_all_plans_of_many_long_graphs(first_seed: int) -> None:
    """The claim of the tests above, on 250 graphs with chains longer than the windows."""
    for seed in range(first_seed, first_seed + 50):
        check_bounds(long_instance(seed), seed)


def test_fluid_has_room_for_plans_of_large_graphs() -> None:
    """A plan's actions solve the relaxation within the plan's own peak, and in no more than its step time."""
    for seed in range(2000, 2012):
        instance = long_instance(seed, num_layers=(12, 20), most_activations=24, most_saved=8)
        check_plans(instance, random.Random(seed), (None, 1, 2))


@pytest.mark.slow
@pytest.mark.parametrize("first_seed", range(0, 300, 50))
def test_fluid_has_room_for_plans_of_many_graphs(first_seed: int) -> None:
    """The claim of the test above, on 600 graphs, small and large."""
    for seed in range(first_seed, first_seed + 50):
        check_plans(long_instance(seed), random.Random(seed), WINDOWS)
        large = long_instance(seed, num_layers=(12, 24), most_activations=28, most_saved=10)
        check_plans(large, random.Random(seed), WINDOWS)


@pytest.mark.parametrize("seed", range(3000, 3006))
def test_fluid_window_is_below_no_window_below_exact(seed: int) -> None:
    """On 10 to 14 layers: a window relaxes the program without one, which relaxes the exact program."""
    instance = long_instance(seed, num_layers=(10, 14), most_activations=14, most_saved=3)
    graph = make_graph(instance)
    for budget_bytes in sorted({find_least_budget(graph), keep_all_peak(graph) * 3 // 4}):
        answer = solve_exact(graph, budget_bytes=budget_bytes, backend="highs", limits=Limits())
        if answer.plan is None:
            assert answer.is_infeasible
            continue
        step_seconds = simulate(instance, answer.plan).step_seconds
        unwindowed = relax_window(graph, budget_bytes, None)
        assert is_below(unwindowed, step_seconds)
        assert unwindowed is not None
        assert is_below(find_whole_bound(graph, budget_bytes, None), step_seconds)
        for window in (1, 2, 3, 5):
            assert is_below(relax_window(graph, budget_bytes, window), unwindowed), window
            assert is_below(find_whole_bound(graph, budget_bytes, window), step_seconds), window


def find_least_budget(graph: Graph) -> int:
    """Return the least budget that the exact program finds a plan for, by bisection."""
    low, high = max(graph.fixed_bytes) - 1, keep_all_peak(graph)
    while high - low > 1:
        middle = (low + high) // 2
        answer = solve_exact(graph, budget_bytes=middle, backend="highs", limits=Limits())
        low, high = (middle, high) if answer.plan is None else (low, middle)
    return high


def test_fluid_closed_window_restricts() -> None:
    """A closed window's optimum, where there is one, is never below that of the open one."""
    num_closed = 0
    for seed in range(40):
        graph = make_graph(long_instance(seed))
        smallest, keep_all = find_budget_range(graph.instance)
        budget_bytes = (smallest + keep_all) // 2
        for window in (1, 3):
            relaxed = relax_window(graph, budget_bytes, window)
            closed = make_fluid_program(graph, budget_bytes=budget_bytes, window=window, is_closed=True)
            restricted = relax(closed)
            if restricted is not None:
                assert is_below(relaxed, restricted), (seed, window)
                num_closed += 1
    assert num_closed >= 40


def test_fluid_solution_reads_as_actions() -> None:
    """Whole solutions of the closed program decode to one action for every activation, "keep" where there is none."""
    num_read = 0
    for seed in range(12):
        graph = make_graph(long_instance(seed))
        budget_bytes = sum(find_budget_range(graph.instance)) // 2
        closed = make_fluid_program(graph, budget_bytes=budget_bytes, window=3, is_closed=True)
        answer = solve_program(closed.program, backend="highs", limits=Limits())
        if answer.objective is None:
            continue
        actions = read_actions(closed, answer.values)
        assert len(actions) == graph.num_activations
        for activation, action in enumerate(actions):
            if action is Action.SWAP:
                assert graph.swappable[activation]
            if activation not in closed.keep:
                assert action is Action.KEEP
        num_read += 1
    assert num_read >= 8


def test_fluid_slow_link_is_not_infeasible() -> None:
    """However slow the link, where plans exist that wait for it, no relaxation calls the budget infeasible.

    HiGHS drops coefficients below 1e-9: the bytes that a unit of waiting copies must not become that small.
    """
    for exponent in (4, 6, 8, 10):
        instance = slow_link_instance(seconds_per_copy=10.0**exponent)
        graph = make_graph(instance)
        smallest = find_smallest_budget(instance)
        best = find_best(instance, smallest)
        assert best is not None
        for window in WINDOWS:
            assert is_below(relax_window(graph, smallest, window), best.step_seconds), (exponent, window)
            assert is_below(relax_window(graph, None, window), smallest), (exponent, window)
        assert is_below(find_whole_bound(graph, smallest, 1), best.step_seconds), exponent


def slow_link_instance(*, seconds_per_copy: float) -> Instance:
    """Return a chain of four layers of 1 s and 2 s that cannot run again; each saves the GiB that it makes."""
    size_bytes = 2**30
    rate = size_bytes / seconds_per_copy
    device = Device(name="slow link", memory_bytes=2**40, swap_out_bytes_per_second=rate, swap_in_bytes_per_second=rate)
    layers = tuple(
        Layer(
            name=f"layer{index}",
            forward_seconds=1.0,
            backward_seconds=2.0,
            inputs=(f"a{index - 1}",) if index else (),
            outputs=(Activation(name=f"a{index}", size_bytes=size_bytes),),
            saved=(f"a{index}",),
            recomputable=False,
        )
        for index in range(4)
    )
    return Instance(name="slow link", device=device, layers=layers)
