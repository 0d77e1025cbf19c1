"""The second path to every number: a naive replay and exhaustive search, written from docs/semantics.md alone.

Nothing here may import the simulator, the analysis or the solvers. Activations are numbered in order of production.
"""

import heapq
import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Literal

from slackswap_ilp.instance import Instance
from slackswap_ilp.plan import KEEP, RECOMPUTE, Decision, Plan, Swap
from slackswap_ilp.slots import backward_slot, num_slots, parse_slot, recompute_slot, slot_layer, slot_name

Schedule = Mapping[int, tuple[int, int]]
"""Release and fetch slot of every swapped activation."""


@dataclass(frozen=True, slots=True)
class Replay:
    """What a plan does, slot by slot; `need_slot` has every activation that backward requires in any way."""

    slot_start_seconds: list[float]
    slot_end_seconds: list[float]
    slot_bytes: list[int]
    step_seconds: float
    ideal_seconds: float
    recompute_seconds: float
    stall_seconds: float
    peak_bytes: int
    swapped_bytes: int
    rerun: dict[int, int]
    need_slot: dict[str, int]


@dataclass(frozen=True, slots=True)
class BestPlan:
    """The least step time there is, a plan that reaches it, and how many plans were timed to find it."""

    step_seconds: float
    plan: Plan
    num_timed: int


@dataclass(frozen=True, slots=True)
class Closure:
    """What runs again (layer: recompute slot), and in which recompute and backward slots each activation is read."""

    rerun: dict[int, int]
    backward_reads: list[set[int]]


class Graph:
    """An instance with activations as numbers; the ledger and the clock are both read off it."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.layers = instance.layers
        self.num_layers = len(instance.layers)
        self.slots = range(num_slots(self.num_layers))
        self.activations = instance.activations
        number = {activation.name: index for index, activation in enumerate(instance.activations)}
        self.producers = [index for index, layer in enumerate(instance.layers) for _ in layer.outputs]
        self.inputs = [[number[name] for name in layer.inputs] for layer in instance.layers]
        self.saved = [[number[name] for name in layer.saved] for layer in instance.layers]
        self.last_reads = [
            max([producer, *(layer for layer in range(self.num_layers) if activation in self.inputs[layer])])
            for activation, producer in enumerate(self.producers)
        ]

    def close(self, recomputed: frozenset[int]) -> Closure:
        """Derive what runs again and what is read where from the set of activations with the action recompute."""
        rerun: dict[int, int] = {}
        reads: list[set[int]] = [set() for _ in self.producers]

        def require(activation: int, slot: int, layer: int) -> None:
            reads[activation].add(slot)
            producer = self.producers[activation]
            if activation in recomputed and producer not in rerun:
                rerun[producer] = recompute_slot(layer, self.num_layers)
                for read in self.inputs[producer]:
                    require(read, rerun[producer], layer)

        for layer in reversed(range(self.num_layers)):
            for activation in self.saved[layer]:
                require(activation, backward_slot(layer, self.num_layers), layer)
        return Closure(rerun, reads)

    def slot_seconds(self, closure: Closure) -> list[float]:
        """Return how long each slot computes."""
        seconds = []
        for slot in self.slots:
            layer = self.layers[slot_layer(slot, self.num_layers)]
            if slot < self.num_layers:
                seconds.append(layer.forward_seconds)
            elif slot == recompute_slot(slot_layer(slot, self.num_layers), self.num_layers):
                seconds.append(sum(self.layers[run].forward_seconds for run, at in closure.rerun.items() if at == slot))
            else:
                seconds.append(layer.backward_seconds)
        return seconds

    def copy_seconds(self, activation: int, direction: Literal["out", "in"]) -> float:
        """Return what one copy takes."""
        device = self.instance.device
        rates = {"out": device.swap_out_bytes_per_second, "in": device.swap_in_bytes_per_second}
        return device.transfer_latency_seconds + self.activations[activation].size_bytes / rates[direction]

    def resident_slots(
        self, activation: int, recomputed: frozenset[int], closure: Closure, schedule: Schedule
    ) -> set[int]:
        """Return the slots in which an activation occupies its size, straight from the definition."""
        producer, last_read = self.producers[activation], self.last_reads[activation]
        last_use = max([last_read, *closure.backward_reads[activation]])
        resident = set(range(producer, last_read + 1))
        if activation in schedule:
            release, fetch = schedule[activation]
            resident |= set(range(producer, release)) | set(range(fetch, last_use + 1))
        elif activation in recomputed:
            if producer in closure.rerun:
                rebuilt = closure.rerun[producer]
                resident |= {rebuilt} | set(range(rebuilt, last_use + 1))
        else:
            resident |= set(range(producer, last_use + 1))
        return resident

    def gradient_slots(self, activation: int) -> range:
        """Return the slots in which the gradient of an activation lives."""
        first = backward_slot(self.last_reads[activation], self.num_layers)
        return range(first, backward_slot(self.producers[activation], self.num_layers) + 1)

    def workspace_bytes(self, slot: int, closure: Closure) -> int:
        """Return the workspace of one slot."""
        layer = slot_layer(slot, self.num_layers)
        if slot < self.num_layers:
            return self.layers[layer].forward_workspace_bytes
        if slot == backward_slot(layer, self.num_layers):
            return self.layers[layer].backward_workspace_bytes
        runs = [self.layers[run].forward_workspace_bytes for run, at in closure.rerun.items() if at == slot]
        return max(runs, default=0)

    def slot_bytes(self, recomputed: frozenset[int], closure: Closure, schedule: Schedule) -> list[int]:
        """Return the memory ledger."""
        everyone = range(len(self.activations))
        resident = [self.resident_slots(activation, recomputed, closure, schedule) for activation in everyone]
        return [
            sum(self.activations[activation].size_bytes for activation in everyone if slot in resident[activation])
            + sum(self.activations[a].gradient_bytes for a in everyone if slot in self.gradient_slots(a))
            + self.workspace_bytes(slot, closure)
            for slot in self.slots
        ]


def replay(instance: Instance, plan: Plan) -> Replay:
    """Execute a plan event by event; ValueError if the semantics refuse it."""
    graph = Graph(instance)
    recomputed, closure, schedule = read_plan(graph, plan)
    starts, ends = _Execution(graph, closure, schedule).run()
    ledger = graph.slot_bytes(recomputed, closure, schedule)
    names = [activation.name for activation in graph.activations]
    return Replay(
        slot_start_seconds=starts,
        slot_end_seconds=ends,
        slot_bytes=ledger,
        step_seconds=ends[-1],
        ideal_seconds=sum(layer.forward_seconds + layer.backward_seconds for layer in graph.layers),
        recompute_seconds=sum(graph.layers[layer].forward_seconds for layer in closure.rerun),
        stall_seconds=sum(start - end for start, end in zip(starts, [0.0, *ends], strict=False)),
        peak_bytes=max(ledger),
        swapped_bytes=sum(graph.activations[activation].size_bytes for activation in schedule),
        rerun=closure.rerun,
        need_slot={name: min(reads) for name, reads in zip(names, closure.backward_reads, strict=True) if reads},
    )


def read_plan(graph: Graph, plan: Plan) -> tuple[frozenset[int], Closure, Schedule]:
    """Return the recomputed activations, the closure and the schedule of a plan; ValueError if it is refused."""
    digest = plan.instance_digest
    if digest is not None and digest != graph.instance.digest:
        raise ValueError("the plan is for another instance")
    names = [activation.name for activation in graph.activations]
    if set(plan.activations) != set(names):
        raise ValueError("the plan must decide on the activations of the instance and no others")
    recomputed = frozenset(index for index, name in enumerate(names) if plan.activations[name].action == "recompute")
    closure = graph.close(recomputed)
    if not all(graph.layers[layer].recomputable for layer in closure.rerun):
        raise ValueError("a layer runs again that must not")
    schedule: dict[int, tuple[int, int]] = {}
    for index, name in enumerate(names):
        decision = plan.activations[name]
        if isinstance(decision, Swap):
            release = parse_slot(decision.release_slot, graph.num_layers)
            fetch = parse_slot(decision.fetch_slot, graph.num_layers)
            if release is None or fetch is None:
                raise ValueError(f"{name}: no such slot")
            schedule[index] = (release, fetch)
            _check_swap(graph, closure, index, release, fetch)
    needs = [(min(closure.backward_reads[index]), fetch) for index, (_, fetch) in schedule.items()]
    if any(need < other_need and fetch > other_fetch for need, fetch in needs for other_need, other_fetch in needs):
        raise ValueError("in order of need, fetch slots must not decrease")
    return recomputed, closure, schedule


def _check_swap(graph: Graph, closure: Closure, activation: int, release: int, fetch: int) -> None:
    """Refuse a swap that is illegal by itself."""
    name = graph.activations[activation].name
    if not graph.activations[activation].swappable:
        raise ValueError(f"{name}: must not be swapped")
    if not closure.backward_reads[activation]:
        raise ValueError(f"{name}: nothing requires it in backward")
    need = min(closure.backward_reads[activation])
    if not graph.last_reads[activation] < release <= fetch < need:
        raise ValueError(f"{name}: last forward read < release <= fetch < need does not hold")


@dataclass(eq=False, slots=True)
class _Copy:
    """One copy of one activation in one direction; what is issued may start once it is at the head of its queue."""

    activation: int
    seconds: float
    is_issued: bool = False
    is_complete: bool = False


@dataclass(slots=True)
class _Engine:
    """A copy engine: one queue, one copy at a time."""

    queue: deque[_Copy] = field(default_factory=deque)
    is_busy: bool = False


class _Execution:
    """Three streams and one heap of events, ordered by (time, priority, sequence)."""

    def __init__(self, graph: Graph, closure: Closure, schedule: Schedule) -> None:
        self.graph, self.schedule = graph, schedule
        self.seconds = graph.slot_seconds(closure)
        self.need = {activation: min(closure.backward_reads[activation]) for activation in schedule}
        self.out = {a: _Copy(a, graph.copy_seconds(a, "out")) for a in sorted(schedule)}
        in_order = sorted(schedule, key=lambda a: (self.need[a], schedule[a][1], a))
        self.back = {a: _Copy(a, graph.copy_seconds(a, "in")) for a in in_order}
        self.is_shared = graph.instance.device.duplex == "half"
        self.out_engine = _Engine()
        self.in_engine = self.out_engine if self.is_shared else _Engine()
        if not self.is_shared:
            self.out_engine.queue.extend(self.out.values())
            self.in_engine.queue.extend(self.back.values())
        self.events: list[tuple[float, int, int, int | tuple[_Engine, _Copy]]] = []
        self.num_events = 0
        self.starts: list[float] = []
        self.ends: list[float] = []

    def run(self) -> tuple[list[float], list[float]]:
        """Return start and end of every slot."""
        self.advance(0.0)
        while self.events:
            time, _, _, what = heapq.heappop(self.events)
            if isinstance(what, int):
                self.end_slot(what, time)
            else:
                engine, copy = what
                engine.is_busy, copy.is_complete = False, True
            self.advance(time)
        assert len(self.ends) == len(self.graph.slots), "deadlock"
        return self.starts, self.ends

    def push(self, time: float, priority: int, what: int | tuple[_Engine, _Copy]) -> None:
        """Put an event on the heap."""
        heapq.heappush(self.events, (time, priority, self.num_events, what))
        self.num_events += 1

    def issue(self, engine: _Engine, copy: _Copy) -> None:
        """Hand a copy to its engine; on a shared engine this is what gives it its place in the queue."""
        copy.is_issued = True
        if self.is_shared:
            engine.queue.append(copy)

    def advance(self, time: float) -> None:
        """Start whatever can start now: the next slot, then the heads of the copy queues."""
        slot = len(self.starts)
        if slot < len(self.graph.slots) and len(self.ends) == slot and self.is_free(slot):
            self.starts.append(time)
            for activation, copy in self.back.items():
                if self.schedule[activation][1] == slot:
                    self.issue(self.in_engine, copy)
            self.push(time + self.seconds[slot], 1, slot)
        for engine in (self.out_engine, self.in_engine):
            if not engine.is_busy and engine.queue and self.may_start(engine.queue[0]):
                engine.is_busy, copy = True, engine.queue.popleft()
                self.push(time + copy.seconds, 0, (engine, copy))

    def is_free(self, slot: int) -> bool:
        """Whether every copy that a slot waits for is complete."""
        return all(
            (self.out[activation].is_complete or slot != release)
            and (self.back[activation].is_complete or slot != self.need[activation])
            for activation, (release, _) in self.schedule.items()
        )

    def may_start(self, copy: _Copy) -> bool:
        """Whether the copy is issued and, for one on its way back, its swap-out is complete."""
        is_out = copy is self.out[copy.activation]
        return copy.is_issued and (is_out or self.out[copy.activation].is_complete)

    def end_slot(self, slot: int, time: float) -> None:
        """Note the end of a slot and issue the swap-outs of what it produced."""
        self.ends.append(time)
        for activation, copy in self.out.items():
            if self.graph.producers[activation] == slot:
                self.issue(self.out_engine, copy)


# --- Search ---------------------------------------------------------------------------------------------------------


def count_plans(instance: Instance) -> int:
    """Return how many plans `enumerate_plans` yields, without going through them."""
    graph = Graph(instance)
    return sum(
        _count_schedules(graph, closure, swaps)
        for recomputed, closure in _recompute_sets(graph)
        for swaps in _subsets(_swap_candidates(graph, recomputed, closure))
    )


def enumerate_plans(instance: Instance) -> Iterator[Plan]:
    """Yield every legal plan, but for actions without effect: what backward does not require is only ever kept."""
    graph = Graph(instance)
    for recomputed, closure in _recompute_sets(graph):
        windows = {a: _window(graph, closure, a) for a in _swap_candidates(graph, recomputed, closure)}
        options = {a: [(r, f) for r in slots for f in slots if r <= f] for a, slots in windows.items()}
        for schedule in _schedules(graph, closure, options, {}, math.inf):
            yield _to_plan(graph, recomputed, schedule)


def enumerate_scheduled(instance: Instance, budget_bytes: int) -> Iterator[Plan]:
    """Yield plans which fit the budget and host memory, a fastest one among them: the schedules that can be best.

    Hot slots are those above the budget if all that is swapped were kept. Only these schedules are left out, each no
    faster than one that is not:

    - a swap that spares no byte which is still too many in a hot slot: keeping the activation is no slower;
    - a release slot which is not hot: waiting for the same copy one slot later is no slower;
    - with full duplex, a fetch slot which does not follow a hot one: of the swaps fetched there, the first in order of
      need may be fetched one slot earlier and is no slower. With half duplex an early swap-in can delay a swap-out,
      so there every fetch slot is tried.
    """
    graph = Graph(instance)
    for recomputed, closure in _recompute_sets(graph):
        for schedule in _promising_schedules(graph, recomputed, closure, budget_bytes):
            yield _to_plan(graph, recomputed, schedule)


def best_by_enumeration(instance: Instance, budget_bytes: int, limit: int) -> BestPlan | None:
    """Return a fastest plan that fits the budget and host memory, None if no plan fits.

    Recompute sets go by what they cost, and the search ends when that alone is more than the best step so far.
    ValueError if more than `limit` plans would have to be timed.
    """
    graph = Graph(instance)
    best: tuple[float, frozenset[int], Schedule] | None = None
    num_timed = 0
    by_cost = sorted(_recompute_sets(graph), key=lambda item: sum(graph.slot_seconds(item[1])))
    for recomputed, closure in by_cost:
        seconds = graph.slot_seconds(closure)
        if best is not None and sum(seconds) >= best[0]:
            break
        for schedule in _promising_schedules(graph, recomputed, closure, budget_bytes):
            num_timed += 1
            if num_timed > limit:
                raise ValueError(f"limit: more than {limit} plans to time")
            step_seconds = compute_step_seconds(graph, closure, seconds, schedule)
            if best is None or step_seconds < best[0]:
                best = (step_seconds, recomputed, schedule)
    if best is None:
        return None
    return BestPlan(best[0], _to_plan(graph, best[1], best[2]), num_timed)


def find_smallest_budget(instance: Instance) -> int:
    """Return the least peak of all plans within host memory, from the tightest schedule of every action vector."""
    graph = Graph(instance)
    host_bytes = instance.device.host_memory_bytes
    peaks = [
        max(graph.slot_bytes(recomputed, closure, schedule))
        for recomputed, closure in _recompute_sets(graph)
        for schedule in _tightest_schedules(graph, recomputed, closure, host_bytes)
    ]
    return min(peaks)


def compute_step_seconds(graph: Graph, closure: Closure, seconds: Sequence[float], schedule: Schedule) -> float:
    """Return the step time by walking through the slots once, which is faster than events and as plain."""
    need = {activation: min(closure.backward_reads[activation]) for activation in schedule}
    in_order = sorted(schedule, key=lambda a: (need[a], schedule[a][1], a))
    out_order = sorted(schedule)
    out_end: dict[int, float] = {}
    in_end: dict[int, float] = {}
    out_engine, in_engine = (0, 0) if graph.instance.device.duplex == "half" else (0, 1)
    engine_end = [0.0, 0.0]
    now = 0.0
    for slot, duration in enumerate(seconds):
        now = max([now, *(out_end[a] for a in out_order if schedule[a][0] == slot)])
        now = max([now, *(in_end[a] for a in in_order if need[a] == slot)])
        for activation in in_order:
            if schedule[activation][1] == slot:
                start = max(engine_end[in_engine], now, out_end[activation])
                in_end[activation] = engine_end[in_engine] = start + graph.copy_seconds(activation, "in")
        now += duration
        for activation in out_order:
            if graph.producers[activation] == slot:
                start = max(engine_end[out_engine], now)
                out_end[activation] = engine_end[out_engine] = start + graph.copy_seconds(activation, "out")
    return now


def _recompute_sets(graph: Graph) -> Iterator[tuple[frozenset[int], Closure]]:
    """Yield every set of recomputed activations that is legal and in which backward requires every one."""
    candidates = [a for a, producer in enumerate(graph.producers) if graph.layers[producer].recomputable]
    for subset in _subsets(candidates):
        recomputed = frozenset(subset)
        closure = graph.close(recomputed)
        if all(closure.backward_reads[a] for a in recomputed):
            yield recomputed, closure


def _subsets(items: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield every subset, small ones first."""
    for size in range(len(items) + 1):
        yield from combinations(items, size)


def _window(graph: Graph, closure: Closure, activation: int) -> range:
    """Return the slots in which a swapped activation may be released and fetched."""
    return range(graph.last_reads[activation] + 1, min(closure.backward_reads[activation]))


def _swap_candidates(graph: Graph, recomputed: frozenset[int], closure: Closure) -> list[int]:
    """Return what may be swapped, in order of need."""
    candidates = [
        a
        for a, activation in enumerate(graph.activations)
        if activation.swappable and a not in recomputed and closure.backward_reads[a] and _window(graph, closure, a)
    ]
    return sorted(candidates, key=lambda a: (min(closure.backward_reads[a]), a))


def _promising_schedules(
    graph: Graph, recomputed: frozenset[int], closure: Closure, budget_bytes: int
) -> Iterator[Schedule]:
    """Yield the schedules of `enumerate_scheduled` for one set of recomputed activations."""
    kept = graph.slot_bytes(recomputed, closure, {})
    excess = {slot: num_bytes - budget_bytes for slot, num_bytes in enumerate(kept) if num_bytes > budget_bytes}
    is_shared = graph.instance.device.duplex == "half"
    options = {}
    for activation in _swap_candidates(graph, recomputed, closure):
        window = _window(graph, closure, activation)
        releases = [slot for slot in window if slot in excess]
        options[activation] = [(r, f) for r in releases for f in window if r < f and (is_shared or f - 1 in excess)]
    host_bytes = graph.instance.device.host_memory_bytes
    return _schedules(graph, closure, options, excess, math.inf if host_bytes is None else host_bytes)


def _schedules(
    graph: Graph,
    closure: Closure,
    options: Mapping[int, Sequence[tuple[int, int]]],
    excess: Mapping[int, int],
    host_bytes: float,
) -> Iterator[Schedule]:
    """Yield every choice, for each activation, of keep or one of its options that removes the excess of all slots.

    With an excess, an option has to remove some of what is left of it. Memory that even the tightest options of the
    activations still to be chosen cannot free cuts the branch.
    """
    order = list(options)
    sizes = {a: graph.activations[a].size_bytes for a in order}
    need = {a: min(closure.backward_reads[a]) for a in order}
    spare = [
        {slot: sum(sizes[a] for a in order[index:] if slot in _window(graph, closure, a)) for slot in excess}
        for index in range(len(order) + 1)
    ]

    def choose(
        index: int, chosen: dict[int, tuple[int, int]], left: Mapping[int, int], host: float
    ) -> Iterator[Schedule]:
        if any(left[slot] > spare[index][slot] for slot in left):
            return
        if index == len(order):
            yield dict(chosen)
            return
        yield from choose(index + 1, chosen, left, host)
        activation = order[index]
        floor = max([f for a, (_, f) in chosen.items() if need[a] < need[activation]], default=0)
        for release, fetch in options[activation] if sizes[activation] <= host else ():
            if fetch < floor or (excess and not any(left[q] > 0 for q in range(release, fetch) if q in left)):
                continue
            rest = {q: b - sizes[activation] if release <= q < fetch else b for q, b in left.items()}
            yield from choose(index + 1, {**chosen, activation: (release, fetch)}, rest, host - sizes[activation])

    return choose(0, {}, excess, host_bytes)


def _tightest_schedules(
    graph: Graph, recomputed: frozenset[int], closure: Closure, host_bytes: int | None
) -> Iterator[Schedule]:
    """Yield, for every set of activations that host memory can hold, the schedule that needs the least memory."""
    candidates = _swap_candidates(graph, recomputed, closure)
    windows = {a: _window(graph, closure, a) for a in candidates}
    for subset in [candidates] if host_bytes is None else _subsets(candidates):
        if host_bytes is None or sum(graph.activations[a].size_bytes for a in subset) <= host_bytes:
            yield {a: (windows[a][0], windows[a][-1]) for a in subset}


def _count_schedules(graph: Graph, closure: Closure, swaps: Sequence[int]) -> int:
    """Return the number of legal schedules of a set of swapped activations."""
    need = {a: min(closure.backward_reads[a]) for a in swaps}
    ways = {0: 1}  # the latest fetch slot so far: number of schedules
    for slot in sorted(set(need.values())):
        group = [a for a in swaps if need[a] == slot]
        after: dict[int, int] = {}
        for floor, number in ways.items():
            within = [
                math.prod(
                    sum(f - graph.last_reads[a] for f in _window(graph, closure, a) if floor <= f <= latest)
                    for a in group
                )
                for latest in range(-1, slot)
            ]
            for latest in range(slot):
                after[latest] = after.get(latest, 0) + number * (within[latest + 1] - within[latest])
        ways = after
    return sum(ways.values())


def _to_plan(graph: Graph, recomputed: frozenset[int], schedule: Schedule) -> Plan:
    """Write a choice down as a plan."""
    decisions: dict[str, Decision] = {}
    for index, activation in enumerate(graph.activations):
        if index in schedule:
            release, fetch = (slot_name(slot, graph.num_layers) for slot in schedule[index])
            decisions[activation.name] = Swap(release_slot=release, fetch_slot=fetch)
        else:
            decisions[activation.name] = RECOMPUTE if index in recomputed else KEEP
    instance = graph.instance
    return Plan(instance=instance.name, instance_digest=instance.digest, activations=decisions)
