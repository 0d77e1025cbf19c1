"""The oracle itself, against ledgers and timelines worked out by hand.

A step of three layers has the slots F0 F1 F2 R2 B2 R1 B1 R0 B0.
"""

import pytest
from hypothesis import given, settings

from slackswap_ilp.instance import Activation, Device, Instance, Layer
from slackswap_ilp.plan import KEEP, RECOMPUTE, Decision, Plan, Swap
from tests.oracle import (
    Graph,
    best_by_enumeration,
    compute_step_seconds,
    count_plans,
    enumerate_plans,
    enumerate_scheduled,
    read_plan,
    replay,
)
from tests.strategies import find_budget_range, instances_with_budgets, instances_with_plans, random_instance

LINK = Device(name="gpu", memory_bytes=100, swap_out_bytes_per_second=1.0, swap_in_bytes_per_second=1.0)


def build_layer(
    name: str,
    sizes_bytes: dict[str, int],
    *,
    inputs: tuple[str, ...] = (),
    saved: tuple[str, ...] = (),
    forward_seconds: float = 1.0,
    backward_seconds: float = 2.0,
    gradient_bytes: int = 0,
    workspaces_bytes: tuple[int, int] = (0, 0),
) -> Layer:
    """Build a layer from the sizes of what it produces."""
    outputs = [
        Activation(name=output, size_bytes=size, gradient_bytes=gradient_bytes) for output, size in sizes_bytes.items()
    ]
    return Layer(
        name=name,
        forward_seconds=forward_seconds,
        backward_seconds=backward_seconds,
        inputs=inputs,
        outputs=tuple(outputs),
        saved=saved,
        forward_workspace_bytes=workspaces_bytes[0],
        backward_workspace_bytes=workspaces_bytes[1],
    )


def build_instance(*layers: Layer, device: Device = LINK) -> Instance:
    """Build an instance of some layers."""
    return Instance(name="by hand", device=device, layers=layers)


def build_plan(**decisions: Decision) -> Plan:
    """Build a plan from decisions by name."""
    return Plan(instance="by hand", activations=dict(decisions))


def swap(release_slot: str, fetch_slot: str) -> Swap:
    """Build a swap."""
    return Swap(release_slot=release_slot, fetch_slot=fetch_slot)


def test_replay_swap_stalls_at_release_and_at_need() -> None:
    """A swap that is too slow makes compute wait at its release slot and again at its need slot.

    a goes out in 0.5 + 4/1 = 4.5 s from 1 to 5.5, where F2 releases it; it comes in in 0.5 + 4/2 = 2.5 s from the
    start of R1 at 8.5 to 11, where B1 needs it.
    """
    device = Device(
        name="gpu",
        memory_bytes=100,
        swap_out_bytes_per_second=1.0,
        swap_in_bytes_per_second=2.0,
        transfer_latency_seconds=0.5,
    )
    instance = build_instance(
        build_layer("0", {"a": 4}),
        build_layer("1", {"b": 2}, inputs=("a",), saved=("a",)),
        build_layer("2", {"c": 1}, inputs=("b",), saved=("b",)),
        device=device,
    )
    result = replay(instance, build_plan(a=swap("F2", "R1"), b=KEEP, c=KEEP))
    assert result.slot_start_seconds == [0, 1, 5.5, 6.5, 6.5, 8.5, 11, 13, 13]
    assert result.slot_end_seconds == [1, 2, 6.5, 6.5, 8.5, 8.5, 13, 13, 15]
    assert result.slot_bytes == [4, 6, 3, 2, 2, 4, 4, 0, 0]
    assert (result.peak_bytes, result.swapped_bytes) == (6, 4)
    times = (result.step_seconds, result.ideal_seconds, result.recompute_seconds, result.stall_seconds)
    assert times == (15.0, 9.0, 0.0, 3.5 + 2.5)
    assert not result.rerun
    assert result.need_slot == {"a": 6, "b": 4}


def test_replay_recompute_chain_runs_once_at_the_earliest_need() -> None:
    """B2 needs b, so layers 1 and 0 run again in R2 (2 + 1 s), and a stays from there until B1, its last use."""
    instance = build_instance(
        build_layer("0", {"a": 4}, forward_seconds=1.0),
        build_layer("1", {"b": 2}, inputs=("a",), saved=("a",), forward_seconds=2.0),
        build_layer("2", {"c": 1}, inputs=("b",), saved=("b",), forward_seconds=3.0),
    )
    result = replay(instance, build_plan(a=RECOMPUTE, b=RECOMPUTE, c=KEEP))
    assert result.slot_start_seconds == [0, 1, 3, 6, 9, 11, 11, 13, 13]
    assert result.slot_end_seconds == [1, 3, 6, 9, 11, 11, 13, 13, 15]
    assert result.slot_bytes == [4, 6, 3, 6, 6, 4, 4, 0, 0]
    assert (result.ideal_seconds, result.recompute_seconds, result.stall_seconds) == (12, 3, 0)
    assert result.rerun == {0: 3, 1: 3}
    assert result.need_slot == {"a": 3, "b": 4}


def test_replay_recompute_slot_takes_its_largest_workspace() -> None:
    """R2 runs layers 0 and 1 with workspaces of 5 and 1 bytes: it adds 5; empty recompute slots add nothing."""
    instance = build_instance(
        build_layer("0", {"a": 4}, workspaces_bytes=(5, 10)),
        build_layer("1", {"b": 2}, inputs=("a",), saved=("a",), workspaces_bytes=(1, 20)),
        build_layer("2", {"c": 1}, inputs=("b",), saved=("b",), workspaces_bytes=(3, 30)),
    )
    result = replay(instance, build_plan(a=RECOMPUTE, b=RECOMPUTE, c=KEEP))
    assert result.slot_bytes == [4 + 5, 6 + 1, 3 + 3, 6 + 5, 6 + 30, 4, 4 + 20, 0, 0 + 10]
    assert result.peak_bytes == 36


def test_replay_kept_skip_lives_until_a_recompute_reads_it() -> None:
    """Kept a is saved by layer 2 only, but layer 1 reads it when it runs again in R1, so it lives through R1."""
    instance = build_instance(
        build_layer("0", {"a": 4}),
        build_layer("1", {"b": 2}, inputs=("a",), saved=("b",)),
        build_layer("2", {"c": 1}, inputs=("a", "b"), saved=("a",)),
    )
    keep_all = replay(instance, build_plan(a=KEEP, b=KEEP, c=KEEP))
    assert keep_all.slot_bytes == [4, 6, 7, 6, 6, 2, 2, 0, 0]
    result = replay(instance, build_plan(a=KEEP, b=RECOMPUTE, c=KEEP))
    assert result.slot_bytes == [4, 6, 7, 4, 4, 6, 2, 0, 0]
    assert result.rerun == {1: 5}
    assert result.need_slot == {"a": 4, "b": 6}


def test_replay_unsaved_activation_is_kept_for_a_recompute() -> None:
    """What no backward saves is dropped after its last forward read, but kept for a layer that runs again."""
    instance = build_instance(
        build_layer("0", {"a": 4}),
        build_layer("1", {"b": 2}, inputs=("a",), saved=("b",)),
        build_layer("2", {"c": 1}, inputs=("b",)),
    )
    assert replay(instance, build_plan(a=KEEP, b=KEEP, c=KEEP)).slot_bytes == [4, 6, 3, 2, 2, 2, 2, 0, 0]
    result = replay(instance, build_plan(a=KEEP, b=RECOMPUTE, c=KEEP))
    assert result.slot_bytes == [4, 6, 7, 4, 4, 6, 2, 0, 0]
    swapped = replay(instance, build_plan(a=swap("F2", "B2"), b=RECOMPUTE, c=KEEP))
    assert swapped.slot_bytes == [4, 6, 3, 0, 4, 6, 2, 0, 0]
    assert swapped.need_slot == {"a": 5, "b": 6}


def test_replay_second_output_of_a_layer_that_runs_again() -> None:
    """Beside x, the layer rebuilds y: for R1 only if y is recomputed and not needed, never if y is kept.

    The slots are F0 F1 R1 B1 R0 B0.
    """
    first = build_layer("0", {"x": 4, "y": 2})
    instance = build_instance(first, build_layer("1", {"z": 1}, inputs=("x", "y"), saved=("x",)))
    assert replay(instance, build_plan(x=RECOMPUTE, y=RECOMPUTE, z=KEEP)).slot_bytes == [6, 7, 6, 4, 0, 0]
    assert replay(instance, build_plan(x=RECOMPUTE, y=KEEP, z=KEEP)).slot_bytes == [6, 7, 4, 4, 0, 0]

    first = build_layer("0", {"x": 4, "y": 2}, saved=("y",))
    instance = build_instance(first, build_layer("1", {"z": 1}, inputs=("x", "y"), saved=("x",)))
    both = replay(instance, build_plan(x=RECOMPUTE, y=RECOMPUTE, z=KEEP))
    assert both.slot_bytes == [6, 7, 6, 6, 2, 2]
    assert (both.rerun, both.recompute_seconds) == ({0: 2}, 1)
    assert replay(instance, build_plan(x=RECOMPUTE, y=KEEP, z=KEEP)).slot_bytes == [6, 7, 6, 6, 2, 2]
    assert replay(instance, build_plan(x=RECOMPUTE, y=swap("R1", "B1"), z=KEEP)).slot_bytes == [6, 7, 4, 6, 2, 2]


@pytest.mark.parametrize(
    ("duplex", "starts", "stall_seconds"),
    [("full", [0, 1, 3, 5, 5, 6, 8, 9, 9], 1 + 1 + 2), ("half", [0, 1, 3, 5, 7, 8, 10, 11, 11], 1 + 1 + 2 + 2)],
)
def test_replay_half_duplex_shares_the_engine(duplex: str, starts: list[float], stall_seconds: float) -> None:
    """A swap-in waits behind a swap-out that was issued before it if, and only if, the link is half duplex.

    Every copy takes 2 s. Out: a from 1 to 3 (F2 waits for it), b from 3 to 5 (R2 waits for it). a is fetched when F2
    starts at 3: full duplex copies it until 5, half duplex after b, from 5 to 7, and B2 waits for it. R1 fetches b.
    """
    instance = build_instance(
        build_layer("0", {"a": 2}, backward_seconds=1.0),
        build_layer("1", {"b": 2}, inputs=("a",), saved=("b",), backward_seconds=1.0),
        build_layer("2", {"c": 1}, inputs=("b",), saved=("a",), backward_seconds=1.0),
        device=Device.model_validate({**LINK.model_dump(), "duplex": duplex}),
    )
    result = replay(instance, build_plan(a=swap("F2", "F2"), b=swap("R2", "R1"), c=KEEP))
    assert result.slot_start_seconds == starts
    assert (result.step_seconds, result.stall_seconds) == (6 + stall_seconds, stall_seconds)
    assert result.slot_bytes == [2, 4, 2 + 2 + 1, 2, 2, 2, 2, 0, 0]


def test_replay_gradients_live_from_last_reader_to_producer() -> None:
    """Layer 2 is the last to read a, nobody reads c: their gradients live from B2 to B0, and in B2 only."""
    instance = build_instance(
        build_layer("0", {"a": 1}, gradient_bytes=3),
        build_layer("1", {"b": 1}, inputs=("a",), gradient_bytes=5),
        build_layer("2", {"c": 1}, inputs=("a", "b"), gradient_bytes=7),
    )
    result = replay(instance, build_plan(a=KEEP, b=KEEP, c=RECOMPUTE))
    assert result.slot_bytes == [1, 2, 3, 0, 3 + 5 + 7, 3 + 5, 3 + 5, 3, 3]
    assert result.peak_bytes == 15


@pytest.mark.parametrize(
    ("decisions", "message"),
    [
        ({"d": KEEP}, "activations of the instance"),
        ({"c": swap("R2", "R2")}, "nothing requires it"),
        ({"a": swap("F1", "R1")}, "does not hold"),
        ({"a": swap("F2", "B1")}, "does not hold"),
        ({"a": swap("B2", "R2")}, "does not hold"),
        ({"a": swap("F2", "B7")}, "no such slot"),
        ({"a": swap("F2", "F2"), "b": swap("R2", "R2")}, "must not decrease"),
    ],
)
def test_replay_refuses(decisions: dict[str, Decision], message: str) -> None:
    """A plan that breaks a rule is refused, and the message says which rule."""
    instance = build_instance(
        build_layer("0", {"a": 4}),
        build_layer("1", {"b": 2}, inputs=("a",), saved=("a",)),
        build_layer("2", {"c": 1}, inputs=("b",), saved=("b",)),
    )
    everything: dict[str, Decision] = {"a": KEEP, "b": KEEP, "c": KEEP}
    plan = build_plan(**{**everything, **decisions})
    with pytest.raises(ValueError, match=message):
        replay(instance, plan)


def test_count_plans_by_hand() -> None:
    """There are three plans: a is kept, recomputed, or swapped in R1 (after F1, before B1); nothing needs b."""
    instance = build_instance(build_layer("0", {"a": 4}), build_layer("1", {"b": 2}, inputs=("a",), saved=("a",)))
    plans = [build_plan(a=action, b=KEEP) for action in (KEEP, swap("R1", "R1"), RECOMPUTE)]
    assert count_plans(instance) == 3
    assert [plan.activations for plan in enumerate_plans(instance)] == [plan.activations for plan in plans]


@pytest.mark.parametrize("start", [0, 100, 200, 300])
def test_best_by_enumeration_equals_trying_every_plan(start: int) -> None:
    """The plans that the search leaves out are never needed: trying every single one finds the same step time."""
    num_tried = 0
    for seed in range(start, start + 100):
        instance = random_instance(seed, max_layers=3)
        if count_plans(instance) > 300:
            continue
        plans = list(enumerate_plans(instance))
        assert len(plans) == count_plans(instance)
        host_bytes = instance.device.host_memory_bytes
        results = [replay(instance, plan) for plan in plans]
        results = [result for result in results if host_bytes is None or result.swapped_bytes <= host_bytes]
        smallest, keep_all = find_budget_range(instance)
        assert smallest == min(result.peak_bytes for result in results)
        for budget_bytes in {smallest, (smallest + keep_all) // 2, keep_all}:
            fastest = min(result.step_seconds for result in results if result.peak_bytes <= budget_bytes)
            best = best_by_enumeration(instance, budget_bytes, 10_000)
            assert best is not None
            assert best.step_seconds == pytest.approx(fastest, rel=1e-12)
            scheduled = [replay(instance, plan) for plan in enumerate_scheduled(instance, budget_bytes)]
            assert min(result.step_seconds for result in scheduled) == best.step_seconds
            assert all(result.peak_bytes <= budget_bytes for result in scheduled)
        num_tried += 1
    assert num_tried > 60


@settings(deadline=None, max_examples=150)
@given(instances_with_budgets(max_layers=3))
def test_best_by_enumeration_fits(pair: tuple[Instance, int]) -> None:
    """The best plan fits, replays to the time the search found, and there is none below the smallest budget."""
    instance, budget_bytes = pair
    best = best_by_enumeration(instance, budget_bytes, 1_000_000)
    assert best is not None
    result = replay(instance, best.plan)
    assert result.step_seconds == best.step_seconds
    assert result.peak_bytes <= budget_bytes
    assert instance.device.host_memory_bytes is None or result.swapped_bytes <= instance.device.host_memory_bytes
    assert best_by_enumeration(instance, find_budget_range(instance)[0] - 1, 1_000_000) is None


def test_best_by_enumeration_limit() -> None:
    """The search gives up rather than time more plans than the limit."""
    with pytest.raises(ValueError, match="more than 0 plans"):
        best_by_enumeration(random_instance(0), 1000, 0)


@settings(deadline=None, max_examples=150)
@given(instances_with_plans())
def test_replay_and_walk_agree(pair: tuple[Instance, Plan]) -> None:
    """The event by event replay, the walk through the slots and the sum of its parts give the same step time."""
    instance, plan = pair
    graph = Graph(instance)
    _, closure, schedule = read_plan(graph, plan)
    result = replay(instance, plan)
    assert compute_step_seconds(graph, closure, graph.slot_seconds(closure), schedule) == result.step_seconds
    parts = (result.ideal_seconds, result.recompute_seconds, result.stall_seconds)
    assert result.step_seconds == pytest.approx(sum(parts), rel=1e-12)
