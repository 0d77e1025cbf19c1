"""The simulator against the oracle, two independent readings of docs/semantics.md, on random plans."""

import random
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import given, settings

from slackswap_ilp.errors import PlanError
from slackswap_ilp.instance import Instance
from slackswap_ilp.plan import KEEP, RECOMPUTE, Decision, Plan, Swap
from slackswap_ilp.simulator import simulate
from slackswap_ilp.slots import num_slots, slot_name
from tests.oracle import Graph, read_plan, replay
from tests.strategies import instances_with_plans, random_decisions, random_instance, random_plan

NUM_PAIRS = 400
TOLERANCE_RATIO = 1e-12
WHERE = r"^(activations\[.+\]|instance_digest).*: "


def assert_agree(instance: Instance, plan: Plan) -> None:
    """Check every number of the simulator against the oracle: bytes exactly, times to a part of the step time."""
    expected, actual = replay(instance, plan), simulate(instance, plan)
    assert list(actual.slot_bytes) == expected.slot_bytes
    assert (actual.peak_bytes, actual.swapped_bytes) == (expected.peak_bytes, expected.swapped_bytes)
    scale = TOLERANCE_RATIO * expected.step_seconds
    assert list(actual.slot_start_seconds) == pytest.approx(expected.slot_start_seconds, rel=TOLERANCE_RATIO, abs=scale)
    assert list(actual.slot_end_seconds) == pytest.approx(expected.slot_end_seconds, rel=TOLERANCE_RATIO, abs=scale)
    assert actual.step_seconds == pytest.approx(expected.step_seconds, rel=TOLERANCE_RATIO, abs=scale)
    assert actual.ideal_seconds == pytest.approx(expected.ideal_seconds, rel=TOLERANCE_RATIO, abs=scale)
    assert actual.recompute_seconds == pytest.approx(expected.recompute_seconds, rel=TOLERANCE_RATIO, abs=scale)
    assert actual.stall_seconds == pytest.approx(expected.stall_seconds, rel=TOLERANCE_RATIO, abs=scale)


def assert_same_verdict(instance: Instance, plan: Plan) -> bool:
    """Check that oracle and simulator both refuse the plan or agree on it; return whether it is legal."""
    try:
        replay(instance, plan)
    except ValueError:
        with pytest.raises(PlanError, match=WHERE):
            simulate(instance, plan)
        return False
    assert_agree(instance, plan)
    return True


def break_rules(instance: Instance, plan: Plan) -> Iterator[tuple[str, Plan]]:
    """Yield copies of a legal plan that break one rule each, with the rule's name."""
    graph = Graph(instance)
    _, closure, schedule = read_plan(graph, plan)
    decisions = dict(plan.activations)

    def change(index: int, decision: Decision) -> Plan:
        return plan.model_copy(update={"activations": {**decisions, graph.activations[index].name: decision}})

    def swap(release: int, fetch: int) -> Swap:
        return Swap(release_slot=slot_name(release, graph.num_layers), fetch_slot=slot_name(fetch, graph.num_layers))

    yield "unknown activation", plan.model_copy(update={"activations": {**decisions, "nobody": KEEP}})
    yield "another instance", plan.model_copy(update={"instance_digest": "sha256:" + 64 * "0"})
    for index, activation in enumerate(graph.activations):
        rest = {name: decision for name, decision in decisions.items() if name != activation.name}
        yield "no decision", plan.model_copy(update={"activations": rest})
        reads, last_read = closure.backward_reads[index], graph.last_reads[index]
        if not reads:
            yield "swap without need", change(index, swap(last_read + 1, last_read + 1))
        elif last_read + 1 < min(reads) and not activation.swappable and decisions[activation.name] == KEEP:
            yield "not swappable", change(index, swap(last_read + 1, min(reads) - 1))
        if reads and not graph.layers[graph.producers[index]].recomputable:
            yield "not recomputable", change(index, RECOMPUTE)
    for index, (release, fetch) in schedule.items():
        need = min(closure.backward_reads[index])
        yield "release in last forward read", change(index, swap(graph.last_reads[index], fetch))
        yield "fetch in need slot", change(index, swap(release, need))
        yield "fetch at the end", change(index, swap(release, num_slots(graph.num_layers) - 1))
        if release > graph.last_reads[index] + 1:
            yield "fetch before release", change(index, swap(release, release - 1))
        no_slot = f"B{graph.num_layers}"
        yield "no such slot", change(index, Swap(release_slot=slot_name(release, graph.num_layers), fetch_slot=no_slot))
        for other, (_, other_fetch) in schedule.items():
            if need < min(closure.backward_reads[other]) and graph.last_reads[other] + 1 < fetch <= other_fetch:
                yield "fetch order", change(other, swap(graph.last_reads[other] + 1, fetch - 1))


@pytest.mark.parametrize("start", range(0, NUM_PAIRS, 50))
def test_simulator_random_pairs_agree(start: int) -> None:
    """Simulator and oracle agree on every number of seeded random pairs of an instance and a legal plan."""
    for seed in range(start, start + 50):
        instance = random_instance(seed)
        assert_agree(instance, random_plan(instance, random.Random(seed)))


def test_simulator_random_pairs_cover_the_cases() -> None:
    """The seeded pairs have stalls, recomputes, several swaps at once and both kinds of link."""
    seen: Counter[str] = Counter()
    for seed in range(NUM_PAIRS):
        instance = random_instance(seed)
        plan = random_plan(instance, random.Random(seed))
        result = replay(instance, plan)
        num_swaps = sum(isinstance(decision, Swap) for decision in plan.activations.values())
        seen["stall"] += result.stall_seconds > 0
        seen["recompute"] += result.recompute_seconds > 0
        seen["stall and recompute"] += result.stall_seconds > 0 and result.recompute_seconds > 0
        seen["several swaps, full duplex"] += num_swaps > 1 and instance.device.duplex == "full"
        seen["several swaps, half duplex"] += num_swaps > 1 and instance.device.duplex == "half"
    assert all(number >= 20 for number in seen.values()), seen
    assert len(seen) == 5


@settings(deadline=None, max_examples=200)
@given(instances_with_plans())
def test_simulator_drawn_pairs_agree(pair: tuple[Instance, Plan]) -> None:
    """Simulator and oracle agree on every number of any pair that Hypothesis can find."""
    assert_agree(*pair)


def test_simulator_broken_plans_are_refused() -> None:
    """A legal plan that is changed to break one rule is refused by oracle and simulator, for every rule."""
    seen: Counter[str] = Counter()
    for seed in range(150):
        instance = random_instance(seed)
        for rule, broken in break_rules(instance, random_plan(instance, random.Random(seed))):
            assert not assert_same_verdict(instance, broken), (seed, rule)
            seen[rule] += 1
    assert len(seen) == 12, seen


def test_simulator_arbitrary_plans_get_the_same_verdict() -> None:
    """Of plans with arbitrary decisions, oracle and simulator refuse the same ones and agree on the others."""
    rng = random.Random(7)
    verdicts: Counter[bool] = Counter()
    for seed in range(NUM_PAIRS):
        instance = random_instance(seed, max_layers=4)
        verdicts[assert_same_verdict(instance, random_decisions(instance, rng))] += 1
    assert min(verdicts[True], verdicts[False]) > 50, verdicts
