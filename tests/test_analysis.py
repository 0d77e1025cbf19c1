"""What solvers derive from an instance, against the oracle on random graphs and plans."""

import random
from collections.abc import Iterator

import pytest

from slackswap_ilp.analysis import (
    Graph,
    Ledger,
    derive_closure,
    is_runnable,
    keep_all_peak,
    make_graph,
    make_plan,
    normalise_actions,
    slot_seconds,
    unswapped_ledger,
)
from slackswap_ilp.instance import Instance
from slackswap_ilp.plan import Action, Plan
from slackswap_ilp.slots import num_slots
from tests.oracle import Graph as OracleGraph
from tests.oracle import read_plan, replay
from tests.schedules import tightest_schedule
from tests.solvers.test_fluid import draw_actions, long_instance
from tests.strategies import find_budget_range, random_instance, random_plan

NUM_SEEDS = 200


def draw_cases() -> Iterator[tuple[Instance, Plan, Graph, list[Action]]]:
    """Yield graphs, small and long, random legal plans, and their actions."""
    for seed in range(NUM_SEEDS):
        instance = random_instance(seed) if seed % 2 else long_instance(seed, most_activations=14, most_saved=8)
        plan = random_plan(instance, random.Random(seed))
        graph = make_graph(instance)
        yield instance, plan, graph, [Action(plan.activations[name].action) for name in graph.names]


def test_closure_is_the_oracles() -> None:
    """Which layers run again and when, need slots and last uses are those of the oracle."""
    for instance, plan, graph, actions in draw_cases():
        expected = replay(instance, plan)
        oracle = OracleGraph(instance)
        recomputed, closure, schedule = read_plan(oracle, plan)
        actual = derive_closure(graph, actions)
        assert actual.rerun_slots == expected.rerun
        assert is_runnable(graph, actual)
        needs = zip(graph.names, actual.need_slots, strict=True)
        assert {name: need for name, need in needs if need is not None} == expected.need_slot
        assert actual.recompute_seconds(graph) == pytest.approx(expected.recompute_seconds)
        for activation, last in enumerate(actual.last_uses):
            if activation in schedule or activation not in recomputed or graph.producers[activation] in closure.rerun:
                resident = oracle.resident_slots(activation, recomputed, closure, schedule)
                assert last == max(resident)


def test_closure_that_may_not_run_is_told() -> None:
    """Actions that run a layer again which must not are not runnable; the oracle refuses them too."""
    num_refused = 0
    for seed in range(NUM_SEEDS):
        instance = random_instance(seed)
        graph = make_graph(instance)
        actions = normalise_actions(graph, [Action.RECOMPUTE] * graph.num_activations)
        closure = derive_closure(graph, actions)
        plan = make_plan(graph, actions, tightest_schedule(graph, actions, closure))
        if is_runnable(graph, closure):
            assert replay(instance, plan).rerun == closure.rerun_slots
        else:
            with pytest.raises(ValueError, match="must not"):
                replay(instance, plan)
            num_refused += 1
    assert 10 < num_refused < NUM_SEEDS - 10


def test_ledger_is_the_oracles() -> None:
    """The ledger without swapped activations, and theirs on top, is the oracle's, to the byte in every slot."""
    for instance, plan, graph, actions in draw_cases():
        _, _, schedule = read_plan(OracleGraph(instance), plan)
        closure = derive_closure(graph, actions)
        swapped = Ledger(graph.num_slots)
        for activation, (release, fetch) in schedule.items():
            size = graph.sizes[activation]
            swapped.occupy(size, graph.last_forward_read[activation] + 1, release - 1)
            swapped.occupy(size, fetch, closure.last_uses[activation])
        unswapped = unswapped_ledger(graph, actions, closure)
        total = [sum(pair) for pair in zip(unswapped, swapped.values(), strict=True)]
        assert total == replay(instance, plan).slot_bytes


def test_fixed_bytes_are_in_every_plan() -> None:
    """No plan uses less than the fixed bytes in any slot; each slot's are reached by what is kept nowhere."""
    for instance, plan, graph, _ in draw_cases():
        ledger = replay(instance, plan).slot_bytes
        assert len(graph.fixed_bytes) == len(ledger) == num_slots(graph.num_layers) == graph.num_slots
        assert all(fixed <= used for fixed, used in zip(graph.fixed_bytes, ledger, strict=True))
        oracle = OracleGraph(instance)
        closure = oracle.close(frozenset())
        for slot, fixed in enumerate(graph.fixed_bytes):
            everyone = range(graph.num_activations)
            live = [a for a in everyone if graph.producers[a] <= slot <= graph.last_forward_read[a]]
            gradients = sum(graph.gradients[a] for a in everyone if slot in oracle.gradient_slots(a))
            workspace = oracle.workspace_bytes(slot, closure)
            assert fixed == sum(graph.sizes[a] for a in live) + gradients + workspace


def test_keep_all_peak_is_the_oracles() -> None:
    """The keep-all peak is the oracle's, and no smaller than the least of all budgets."""
    for seed in range(60):
        instance = random_instance(seed)
        smallest, peak_bytes = find_budget_range(instance)
        assert smallest <= keep_all_peak(make_graph(instance)) == peak_bytes


def test_slot_seconds_are_the_oracles() -> None:
    """Every slot computes as long as in the oracle, and all together ideal and recompute time."""
    for instance, plan, graph, actions in draw_cases():
        oracle = OracleGraph(instance)
        _, expected, _ = read_plan(oracle, plan)
        closure = derive_closure(graph, actions)
        assert slot_seconds(graph, closure) == pytest.approx(oracle.slot_seconds(expected), rel=1e-12)
        total = graph.ideal_seconds + closure.recompute_seconds(graph)
        assert sum(slot_seconds(graph, closure)) == pytest.approx(total, rel=1e-12)


def test_tightest_schedule_is_the_leanest() -> None:
    """No other schedule for the same actions has a smaller peak."""
    for instance, plan, graph, actions in draw_cases():
        tightest = make_plan(graph, actions, tightest_schedule(graph, actions, derive_closure(graph, actions)))
        assert replay(instance, tightest).peak_bytes <= replay(instance, plan).peak_bytes


def test_normalise_actions_costs_nothing() -> None:
    """Kept on paper, what backward needs in no way: the same layers run again, and no slot holds a byte more."""
    num_changed = 0
    for seed in range(NUM_SEEDS):
        graph = make_graph(long_instance(seed))
        rng = random.Random(seed)
        drawn = draw_actions(graph, rng)
        needs = derive_closure(graph, drawn).need_slots
        actions = [Action.RECOMPUTE if need is None else action for action, need in zip(drawn, needs, strict=True)]
        normalised = normalise_actions(graph, actions)
        closure, expected = derive_closure(graph, actions), derive_closure(graph, normalised)
        assert closure.rerun_slots == expected.rerun_slots
        assert closure.need_slots == expected.need_slots
        before = unswapped_ledger(graph, actions, closure)
        after = unswapped_ledger(graph, normalised, expected)
        assert all(new <= old for new, old in zip(after, before, strict=True))
        num_changed += normalised != actions
    assert num_changed > 20
