"""Random instances, plans and budgets, from a seed or drawn by Hypothesis; ties and corner cases are common."""

import random

from hypothesis import strategies as st

from slackswap_ilp.instance import Activation, Device, Instance, Layer
from slackswap_ilp.plan import KEEP, RECOMPUTE, Decision, Plan, Swap
from slackswap_ilp.slots import num_slots, slot_name
from tests.oracle import Closure, Graph, find_smallest_budget

MAX_ACTIVATIONS = 8
"""Most activations of a random instance, so that every action vector can be tried."""


def random_instance(seed: int, max_layers: int = 6) -> Instance:
    """Return the random instance of a seed."""
    return build_instance(random.Random(seed), max_layers=max_layers)


def instances(*, max_layers: int = 6) -> st.SearchStrategy[Instance]:
    """Return a strategy for instances; all randomness is Hypothesis's, so failures shrink."""
    return st.randoms(use_true_random=False).map(lambda rng: build_instance(rng, max_layers=max_layers))


@st.composite
def instances_with_plans(draw: st.DrawFn, *, max_layers: int = 6) -> tuple[Instance, Plan]:
    """Draw an instance and a legal plan for it."""
    rng = draw(st.randoms(use_true_random=False))
    instance = build_instance(rng, max_layers=max_layers)
    return instance, random_plan(instance, rng)


@st.composite
def instances_with_budgets(draw: st.DrawFn, *, max_layers: int = 6) -> tuple[Instance, int]:
    """Draw an instance and a budget from the smallest feasible one to the keep-all peak."""
    rng = draw(st.randoms(use_true_random=False))
    instance = build_instance(rng, max_layers=max_layers)
    return instance, random_budget_bytes(instance, rng)


def build_instance(rng: random.Random, *, max_layers: int = 6) -> Instance:
    """Build an instance of one to `max_layers` layers and at most `MAX_ACTIVATIONS` activations."""
    is_regular = rng.random() < 0.7
    has_workspaces, has_gradients = rng.random() < 0.5, rng.random() < 0.5
    is_chain = rng.random() < 0.3
    layers: list[Layer] = []
    produced: list[str] = []
    for index in range(max(rng.randint(1, max_layers), rng.randint(1, max_layers))):
        num_outputs = 1 if is_chain else rng.choice((0, 1, 1, 1, 1, 1, 2, 2, 3))
        outputs = [
            Activation(
                name=f"a{index}{'xyz'[position]}",
                size_bytes=rng.randint(1, 8),
                gradient_bytes=rng.randint(0, 4) if has_gradients else 0,
                swappable=rng.random() < 0.85,
            )
            for position in range(min(num_outputs, MAX_ACTIVATIONS - len(produced)))
        ]
        inputs = produced[-1:] if is_chain else _pick_inputs(rng, produced)
        layers.append(
            Layer(
                name=f"layer{index}",
                forward_seconds=_draw_seconds(rng, is_regular=is_regular),
                backward_seconds=_draw_seconds(rng, is_regular=is_regular),
                inputs=tuple(inputs),
                outputs=tuple(outputs),
                saved=_pick_saved(rng, inputs, [output.name for output in outputs], produced),
                forward_workspace_bytes=rng.choice((0, 0, 1, 2, 5)) if has_workspaces else 0,
                backward_workspace_bytes=rng.choice((0, 0, 1, 2, 5)) if has_workspaces else 0,
                recomputable=rng.random() < 0.85,
            )
        )
        produced += [output.name for output in outputs]
    return Instance(name="random", device=_build_device(rng, is_regular=is_regular), layers=tuple(layers))


def _build_device(rng: random.Random, *, is_regular: bool) -> Device:
    """Build a device, some with little host memory, some with a half-duplex link."""
    rates = (2.0, 4.0, 8.0, 16.0, 32.0)
    return Device(
        name="gpu",
        memory_bytes=1000,
        host_memory_bytes=rng.randint(0, 16) if rng.random() < 0.25 else None,
        swap_out_bytes_per_second=rng.choice(rates) if is_regular else rng.uniform(1.0, 40.0),
        swap_in_bytes_per_second=rng.choice(rates) if is_regular else rng.uniform(1.0, 40.0),
        transfer_latency_seconds=rng.choice((0.0, 0.0, 0.125, 0.5)) if is_regular else rng.uniform(0.0, 0.5),
        duplex="half" if rng.random() < 0.3 else "full",
    )


def _draw_seconds(rng: random.Random, *, is_regular: bool) -> float:
    """Draw the time of one forward or backward: often a tie, sometimes zero, sometimes irregular."""
    if rng.random() < 0.15:
        return 0.0
    return rng.randint(1, 16) / 8 if is_regular else rng.uniform(0.01, 3.0)


def _pick_inputs(rng: random.Random, produced: list[str]) -> list[str]:
    """Pick what a layer reads: mostly the latest activation, now and then skips, now and then nothing."""
    inputs = [name for name in produced[-1:] if rng.random() < 0.85]
    inputs += [name for name in produced[:-1] if rng.random() < 0.25]
    return inputs


def _pick_saved(rng: random.Random, inputs: list[str], outputs: list[str], produced: list[str]) -> tuple[str, ...]:
    """Pick what backward reads: inputs and outputs, now and then something else from earlier."""
    saved = [name for name in inputs if rng.random() < 0.7]
    saved += [name for name in outputs if rng.random() < 0.5]
    saved += [name for name in produced if name not in inputs and rng.random() < 0.08]
    return tuple(saved)


def random_plan(instance: Instance, rng: random.Random) -> Plan:
    """Return a random legal plan; whether it fits any budget is left to chance."""
    graph = Graph(instance)
    names = [activation.name for activation in graph.activations]
    recomputed = frozenset(index for index in range(len(names)) if rng.random() < 0.35)
    closure = graph.close(recomputed)
    while banned := [layer for layer in closure.rerun if not graph.layers[layer].recomputable]:
        recomputed = frozenset(index for index in recomputed if graph.producers[index] not in banned)
        closure = graph.close(recomputed)
    decisions: dict[str, Decision] = {
        name: RECOMPUTE if index in recomputed else KEEP for index, name in enumerate(names)
    }
    for index, swap in _pick_swaps(graph, recomputed, closure, rng).items():
        decisions[names[index]] = swap
    return Plan(instance=instance.name, instance_digest=instance.digest, activations=decisions)


def _pick_swaps(graph: Graph, recomputed: frozenset[int], closure: Closure, rng: random.Random) -> dict[int, Swap]:
    """Pick swaps in order of need, half of them as early out and as late in as they can be."""
    needed = [index for index, reads in enumerate(closure.backward_reads) if reads and index not in recomputed]
    needed.sort(key=lambda index: min(closure.backward_reads[index]))
    fetches: list[tuple[int, int]] = []
    swaps: dict[int, Swap] = {}
    for index in needed:
        need = min(closure.backward_reads[index])
        first = graph.last_reads[index] + 1
        floor = max([first, *(fetch for other_need, fetch in fetches if other_need < need)])
        if not graph.activations[index].swappable or floor >= need or rng.random() < 0.4:
            continue
        fetch = need - 1 if rng.random() < 0.5 else rng.randint(floor, need - 1)
        release = first if rng.random() < 0.5 else rng.randint(first, fetch)
        fetches.append((need, fetch))
        swaps[index] = Swap(
            release_slot=slot_name(release, graph.num_layers), fetch_slot=slot_name(fetch, graph.num_layers)
        )
    return swaps


def random_decisions(instance: Instance, rng: random.Random) -> Plan:
    """Return a plan with any decisions at all, legal or (more often) not."""
    num_layers = len(instance.layers)
    decisions: dict[str, Decision] = {}
    for activation in instance.activations:
        release = rng.randrange(num_slots(num_layers))
        fetch = rng.randrange(release, num_slots(num_layers))
        swap = Swap(release_slot=slot_name(release, num_layers), fetch_slot=slot_name(fetch, num_layers))
        decisions[activation.name] = rng.choice((KEEP, KEEP, RECOMPUTE, swap))
    return Plan(instance=instance.name, activations=decisions)


def find_budget_range(instance: Instance) -> tuple[int, int]:
    """Return the smallest budget that any plan fits, and the peak when everything is kept."""
    graph = Graph(instance)
    keep_all = graph.slot_bytes(frozenset(), graph.close(frozenset()), {})
    return find_smallest_budget(instance), max(keep_all)


def random_budget_bytes(instance: Instance, rng: random.Random) -> int:
    """Return a budget from the smallest feasible one (or 1) to the keep-all peak, more often a tight one."""
    smallest, keep_all = find_budget_range(instance)
    return max(1, min(rng.randint(smallest, keep_all), rng.randint(smallest, keep_all)))
