"""The transfer schedule: legal, within the budget whenever that is possible, timed as the simulator times it."""

import math
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence

from slackswap_ilp.analysis import (
    Graph,
    Schedule,
    derive_closure,
    is_runnable,
    make_graph,
    make_plan,
)
from slackswap_ilp.instance import Instance
from slackswap_ilp.plan import Action
from slackswap_ilp.simulator import simulate
from slackswap_ilp.solvers.transfers import schedule_transfers, time_schedule
from tests.oracle import Graph as OracleGraph
from tests.oracle import count_plans, enumerate_plans, read_plan, replay
from tests.schedules import tightest_schedule
from tests.solvers.test_fluid import draw_actions, long_instance
from tests.strategies import random_instance, random_plan

NUM_SEEDS = 150
MOST_PLANS = 200
"""Graphs with more plans than this are too slow to go through them all."""


def _draw_cases() -> Iterator[tuple[Instance, Graph, list[Action], random.Random]]:
    """Yield graphs, small and long, and actions that may be taken."""
    for seed in range(NUM_SEEDS):
        rng = random.Random(seed)
        instance = random_instance(seed) if seed % 2 else long_instance(seed, most_activations=12, most_saved=8)
        graph = make_graph(instance)
        yield instance, graph, draw_actions(graph, rng), rng


def find_tight_peak(instance: Instance, graph: Graph, actions: Sequence[Action]) -> int:
    """Return the peak of the tightest schedule, by the oracle's ledger."""
    schedule = tightest_schedule(graph, actions, derive_closure(graph, actions))
    return replay(instance, make_plan(graph, actions, schedule)).peak_bytes


def test_schedule_fits_whenever_the_tightest_does() -> None:
    """At every budget from the tightest schedule's peak on there is a legal schedule that fits; below there is none."""
    num_swaps = 0
    for instance, graph, actions, rng in _draw_cases():
        closure = derive_closure(graph, actions)
        assert is_runnable(graph, closure)
        least = find_tight_peak(instance, graph, actions)
        for budget_bytes in (least, least + 1, least + rng.randint(2, 10), 10 * least):
            schedule = schedule_transfers(graph, actions, closure, budget_bytes=budget_bytes)
            assert schedule is not None
            simulation = simulate(instance, make_plan(graph, actions, schedule))
            assert simulation.peak_bytes <= budget_bytes
            assert time_schedule(graph, closure, schedule) == simulation.step_seconds
            num_swaps += len(schedule.fetch_slots)
        assert schedule_transfers(graph, actions, closure, budget_bytes=least - 1) is None
    assert num_swaps > NUM_SEEDS


def test_time_schedule_is_the_simulated_step_time() -> None:
    """What solvers expect a schedule to take, whoever made it, is what the simulator says, to the last bit."""
    for seed in range(NUM_SEEDS):
        instance = random_instance(seed)
        plan = random_plan(instance, random.Random(seed))
        graph = make_graph(instance)
        _, _, slots = read_plan(OracleGraph(instance), plan)
        schedule = Schedule({a: release for a, (release, _) in slots.items()}, {a: f for a, (_, f) in slots.items()})
        actions = [Action(plan.activations[name].action) for name in graph.names]
        seconds = time_schedule(graph, derive_closure(graph, actions), schedule)
        assert seconds == simulate(instance, plan).step_seconds


def test_schedule_loses_little_to_the_best_schedule() -> None:
    """For given actions and budget the schedule is never faster than the best of all, mostly as fast, rarely far off.

    The loss is what the heuristic gives away, recorded here so that a change for the worse is seen.
    """
    losses: list[float] = []
    for seed in range(300):
        instance = random_instance(seed, max_layers=3)
        graph = make_graph(instance)
        if count_plans(instance) > MOST_PLANS:
            continue
        fastest: dict[tuple[Action, ...], dict[int, float]] = defaultdict(dict)
        for plan in enumerate_plans(instance):
            actions = tuple(Action(plan.activations[name].action) for name in graph.names)
            if Action.SWAP in actions:
                result = replay(instance, plan)
                steps = fastest[actions]
                steps[result.peak_bytes] = min(result.step_seconds, steps.get(result.peak_bytes, math.inf))
        for actions, steps in fastest.items():
            closure = derive_closure(graph, actions)
            for budget_bytes in sorted(steps):
                schedule = schedule_transfers(graph, actions, closure, budget_bytes=budget_bytes)
                assert schedule is not None
                seconds = simulate(instance, make_plan(graph, actions, schedule)).step_seconds
                best = min(step for peak, step in steps.items() if peak <= budget_bytes)
                assert seconds >= best * (1 - 1e-12)
                losses.append(seconds / best - 1 if best else 0.0)
    assert len(losses) > 1000
    assert sum(loss <= 1e-9 for loss in losses) / len(losses) > 0.97
    assert sum(losses) / len(losses) < 0.002
    assert max(losses) < 0.3
