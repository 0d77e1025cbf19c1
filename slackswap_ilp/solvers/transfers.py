"""The transfer schedule: when to release and fetch, for given actions, so that compute waits little.

Forward: walk the slots; when the next slot does not fit, wait for the oldest swap-out that may be released; release
for free what is already complete. Backward is the same walk in reversed time: a swap-in that must end before its need
slot is, read backwards, a swap-out that may start after it. `_walk` serves both.
"""

import heapq
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from slackswap_ilp.analysis import Closure, Graph, Schedule, slot_seconds, unswapped_ledger
from slackswap_ilp.plan import Action


@dataclass(frozen=True, slots=True)
class _Copy:
    """A copy in the direction of a walk; positions count along the walk.

    Attributes
    ----------
    ready
        Position at whose end it may start.
    held
        Last position that holds its memory in any case; copies are walked in order of `ready`.
    last
        Last position at which its memory may still be held for it; beyond, others account for it.
    """

    activation: int
    size_bytes: int
    seconds: float
    ready: int
    held: int
    last: int


def schedule_transfers(
    graph: Graph, actions: Sequence[Action], closure: Closure, *, budget_bytes: int
) -> Schedule | None:
    """Choose release and fetch slots for every swapped activation, or return None if the actions never fit."""
    swapped = [number for number, action in enumerate(actions) if action is Action.SWAP]
    ledger = unswapped_ledger(graph, actions, closure)
    if not swapped:
        return Schedule({}, {}) if max(ledger) <= budget_bytes else None
    needs = {number: closure.need_slots[number] or 0 for number in swapped}
    seconds = slot_seconds(graph, closure)
    num_slots = graph.num_slots
    last_slot = num_slots - 1
    held = list(ledger)
    occupy(held, ((graph.sizes[number], needs[number] - 1, closure.last_uses[number]) for number in swapped))
    if max(held) > budget_bytes or any(needs[number] - 1 <= graph.last_forward_read[number] for number in swapped):
        return None
    swap_ins = [
        _Copy(
            activation=number,
            size_bytes=graph.sizes[number],
            seconds=graph.swap_in_seconds(number),
            ready=last_slot - needs[number],
            held=last_slot - (needs[number] - 1),
            last=last_slot - (graph.last_forward_read[number] + 1),
        )
        for number in sorted(swapped, key=lambda number: (-needs[number], -number))
    ]
    freed = _walk(held[::-1], seconds[::-1], swap_ins, budget_bytes)
    fetch_slots = {number: last_slot - position + 1 for number, position in freed.items()}
    latest = 0
    for number in sorted(swapped, key=lambda number: (needs[number], fetch_slots[number], number)):
        latest = fetch_slots[number] = max(fetch_slots[number], latest)
    held = list(ledger)
    occupy(held, ((graph.sizes[number], fetch_slots[number], closure.last_uses[number]) for number in swapped))
    swap_outs = [
        _Copy(
            activation=number,
            size_bytes=graph.sizes[number],
            seconds=graph.swap_out_seconds(number),
            ready=graph.producers[number],
            held=graph.last_forward_read[number],
            last=fetch_slots[number] - 1,
        )
        for number in swapped
    ]
    return Schedule(_walk(held, seconds, swap_outs, budget_bytes), fetch_slots)


def scheduled_ledger(graph: Graph, actions: Sequence[Action], closure: Closure, schedule: Schedule) -> list[int]:
    """Return the bytes by slot under a schedule."""
    ledger = unswapped_ledger(graph, actions, closure)
    spans: list[tuple[int, int, int]] = []
    for number, fetch in schedule.fetch_slots.items():
        size = graph.sizes[number]
        spans.append((size, graph.last_forward_read[number] + 1, schedule.release_slots[number] - 1))
        spans.append((size, fetch, closure.last_uses[number]))
    occupy(ledger, spans)
    return ledger


def occupy(ledger: list[int], spans: Iterable[tuple[int, int, int]]) -> None:
    """Add (bytes, first slot, last slot) to a ledger in place."""
    change = [0] * (len(ledger) + 1)
    for size, first, last in spans:
        change[first] += size
        change[last + 1] -= size
    for slot, total in enumerate(accumulate(change[:-1])):
        ledger[slot] += total


def _walk(
    held_bytes: Sequence[int], seconds: Sequence[float], copies: Sequence[_Copy], budget_bytes: int
) -> dict[int, int]:
    """Return, by activation, the first position that no longer holds it.

    `held_bytes` has what each position holds in any case. Copies run first in first out. Where a position does not
    fit, the walk waits for the copy that completes first among those that may be released. A position that does not
    fit although everything is released is walked over: the caller judges the outcome.
    """
    ready: dict[int, list[_Copy]] = defaultdict(list)
    released: dict[int, list[tuple[float, int, _Copy]]] = defaultdict(list)
    expired: dict[int, list[_Copy]] = defaultdict(list)
    freed: dict[int, int] = {}
    releasable: list[tuple[float, int, _Copy]] = []
    for copy in copies:
        ready[copy.ready].append(copy)
        expired[copy.last + 1].append(copy)
    clock = engine_free = 0.0
    extra = order = 0
    for position, duration in enumerate(seconds):
        for entry in released.pop(position, ()):
            heapq.heappush(releasable, entry)
            extra += entry[2].size_bytes
        for copy in expired.pop(position, ()):
            if copy.activation not in freed:
                freed[copy.activation] = position
                extra -= copy.size_bytes
        while releasable and (releasable[0][0] <= clock or held_bytes[position] + extra > budget_bytes):
            done, _, copy = heapq.heappop(releasable)
            if copy.activation not in freed:
                clock = max(clock, done)
                freed[copy.activation] = position
                extra -= copy.size_bytes
        clock += duration
        for copy in ready.pop(position, ()):
            engine_free = max(engine_free, clock) + copy.seconds
            order += 1
            released[copy.held + 1].append((engine_free, order, copy))
    return freed


def time_schedule(graph: Graph, closure: Closure, schedule: Schedule) -> float:
    """Return what the solvers expect the step to take; the simulator has the last word."""
    device = graph.instance.device
    is_half = device.duplex == "half"
    produced, released, fetched, needed = (defaultdict[int, list[int]](list) for _ in range(4))
    in_order = sorted(
        schedule.fetch_slots, key=lambda number: (closure.need_slots[number], schedule.fetch_slots[number], number)
    )
    for number in sorted(schedule.release_slots):
        produced[graph.producers[number]].append(number)
        released[schedule.release_slots[number]].append(number)
    for number in in_order:
        fetched[schedule.fetch_slots[number]].append(number)
        needed[closure.need_slots[number] or 0].append(number)
    out_done: dict[int, float] = {}
    in_done: dict[int, float] = {}
    clock = out_free = in_free = 0.0
    for slot, duration in enumerate(slot_seconds(graph, closure)):
        if slot in released:
            clock = max(clock, max(out_done[number] for number in released[slot]))
        if slot in needed:
            clock = max(clock, max(in_done[number] for number in needed[slot]))
        for number in fetched.get(slot, ()):
            start = max(clock, out_done[number], out_free if is_half else in_free)
            in_done[number] = in_free = start + graph.swap_in_seconds(number)
            out_free = in_free if is_half else out_free
        clock += duration
        for number in produced.get(slot, ()):
            out_done[number] = out_free = max(clock, out_free) + graph.swap_out_seconds(number)
    return clock
