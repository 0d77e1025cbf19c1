"""The exact program's clock and copy engines.

A first in first out engine meets its deadlines exactly if every window, from a slot at which copies may start to a slot
that waits for copies, can hold the work that falls into it. So no row needs to know how long the engine idles.

With half duplex both directions share one queue, in order of issue. A window then holds work of both, and the wait
for one copy makes all that is queued before it due as well.
"""

from dataclasses import dataclass, field
from itertools import pairwise

from slackswap_ilp.solvers.exact_model import ExactProgram, Term
from slackswap_ilp.solvers.program import Variable


def add_clock(exact: ExactProgram) -> None:
    """Start no slot before the one before it has ended; minimise the end of the last (docs: clock)."""
    graph, program = exact.graph, exact.program
    exact.delay = [program.variable(f"delay[{exact.name(slot)}]") for slot in range(graph.num_slots)]
    for slot, (earlier, later) in enumerate(pairwise(exact.delay)):
        row: list[Term] = [(later, 1.0), (earlier, -1.0)]
        for layer, stairs in exact.rerun.items() if slot >= graph.num_layers else ():
            if slot in stairs.slots:
                seconds = graph.forward_seconds[layer] / exact.unit_seconds
                row += [*stairs.by(slot, -seconds), *stairs.by(slot - 1, seconds)]
        program.at_least(f"clock[{exact.name(slot + 1)}]", row)
    program.minimise([(exact.delay[-1], 1.0)])


def add_transfer_stairs(exact: ExactProgram) -> None:
    """Release, then fetch, then need: each swapped activation passes them in this order (docs: transfers)."""
    program, horizon = exact.program, exact.horizon
    for activation, swap in exact.swap.items():
        stops = (*horizon.release_slots[activation], horizon.need_slots[activation][-1])
        complete = exact.complete[activation] = exact.add_staircase(f"complete[{activation}", stops, swap)
        fetches = horizon.fetch_slots[activation]
        issued = exact.issued[activation] = exact.add_staircase(f"issued[{activation}", fetches, swap)
        for slot, variable in zip(fetches, issued.variables, strict=True):
            row = [(variable, 1.0), *complete.by(slot, -1.0)]
            program.at_most(f"release_before_fetch[{activation},{exact.name(slot)}]", row)
        needed = exact.needed[activation]
        for slot, variable in zip(needed.slots, needed.variables, strict=True):
            row = [(variable, 1.0), *issued.by(slot - 1, -1.0)]
            program.at_most(f"fetch_before_need[{activation},{exact.name(slot)}]", row)


@dataclass(slots=True)
class _Link:
    """What the families below share.

    Attributes
    ----------
    release_slots, need_slots, fetch_slots
        All slots at which compute may wait for a swap-out, for a swap-in, and at which a swap-in may be issued.
    late
        By need slot and an earlier slot, whether something needed by the one is not issued by the other.
    copied
        By activation and release slot, whether it, or something produced after it, is swapped and complete.
    due
        By activation and slot, whether it is swapped and its swap-in must be complete: half duplex only.
    inside
        By activation and two slots, whether it is fetched from the one on and must be complete by the other.
    """

    is_half: bool
    release_slots: list[int]
    need_slots: list[int]
    fetch_slots: list[int]
    late: dict[tuple[int, int], Variable] = field(default_factory=dict)
    copied: dict[tuple[int, int], Variable] = field(default_factory=dict)
    due: dict[tuple[int, int], Variable] = field(default_factory=dict)
    inside: dict[tuple[int, int, int], Variable] = field(default_factory=dict)


def add_link(exact: ExactProgram) -> None:
    """Copy in the order of each queue, no faster than the link (docs: link)."""
    if not exact.swap:
        return
    horizon = exact.horizon
    is_half = exact.graph.instance.device.duplex == "half"
    link = _Link(
        is_half,
        sorted({slot for activation in exact.swap for slot in horizon.release_slots[activation]}),
        sorted({slot for activation in exact.swap for slot in horizon.need_slots[activation]}),
        sorted({slot for activation in exact.swap for slot in horizon.fetch_slots[activation]}),
    )
    add_fetch_order(exact, link)
    add_release_order(exact, link)
    if is_half:
        add_issue_order(exact, link)
        add_shared_windows(exact, link)
    else:
        add_swap_out_windows(exact, link)
        add_swap_in_windows(exact, link)


def add_fetch_order(exact: ExactProgram, link: _Link) -> None:
    """Fetch nothing before something that is needed earlier (docs: fetch order)."""
    program = exact.program
    forward = range(exact.graph.num_layers) if link.is_half else ()
    for fetch in sorted({*link.fetch_slots, *forward}):
        previous: Variable | None = None
        for need in link.need_slots:
            if need <= fetch:
                continue
            where = f"{exact.name(need)},{exact.name(fetch)}]"
            late = link.late[need, fetch] = program.variable(f"late[{where}", high=1)
            if previous is not None:
                program.at_least(f"late_stays[{where}", ((late, 1), (previous, -1)))
            previous = late
            for activation, needed in exact.needed.items():
                if need in needed.slots:
                    row = [(late, 1.0), *needed.by(need, -1.0), *exact.issued[activation].by(fetch)]
                    program.at_least(f"late_if[{activation},{where}", row)
    for activation, needed in exact.needed.items():
        issued = exact.issued[activation]
        for own in needed.slots:
            before = max((need for need in link.need_slots if need < own), default=0)
            for fetch in issued.slots:
                if fetch < before:
                    row = [(link.late[before, fetch], 1.0), *issued.by(fetch), *needed.by(before, -1.0)]
                    where = f"{activation},{exact.name(own)},{exact.name(fetch)}]"
                    program.at_most(f"fetch_order[{where}", row, 1)


def add_release_order(exact: ExactProgram, link: _Link) -> None:
    """Complete no swap-out before those of what is produced earlier (docs: release order)."""
    program = exact.program
    for slot in link.release_slots:
        following: Variable | None = None
        for activation in sorted(exact.swap, reverse=True):
            if exact.graph.producers[activation] >= slot:
                continue
            complete = exact.complete[activation].by(slot)
            where = f"{activation},{exact.name(slot)}]"
            copied = link.copied[activation, slot] = program.variable(f"copied[{where}", high=1)
            if complete:
                program.at_least(f"copied_if[{where}", [(copied, 1.0), *((term, -1.0) for term, _ in complete)])
            if following is not None:
                program.at_least(f"copied_stays[{where}", ((copied, 1), (following, -1)))
            following = copied
            row = [(exact.swap[activation], 1.0), (copied, 1.0), *((term, -1.0) for term, _ in complete)]
            program.at_most(f"release_order[{where}", row, 1)


def add_swap_out_windows(exact: ExactProgram, link: _Link) -> None:
    """Fit what is produced from a slot on and complete by another between the two (docs: swap-out windows)."""
    producers = sorted({exact.graph.producers[activation] for activation in exact.swap})
    for producer in producers:
        for slot in link.release_slots:
            if slot > producer:
                _add_window(exact, producer, slot, _swap_out_work(exact, producer, slot), is_after=True)


def add_swap_in_windows(exact: ExactProgram, link: _Link) -> None:
    """Fit what is fetched from a slot on and needed by another between the two (docs: swap-in windows)."""
    for fetch in link.fetch_slots:
        for need in link.need_slots:
            if fetch < need:
                _add_window(exact, fetch, need, _swap_in_work(exact, link, fetch, need), is_after=False)


def add_issue_order(exact: ExactProgram, link: _Link) -> None:
    """Have copies due that are queued before a copy that compute waits for (docs: issue order)."""
    program, n = exact.program, exact.graph.num_layers
    for activation in exact.swap:
        producer = exact.graph.producers[activation]
        for need in link.need_slots:
            if (need, producer) in link.late and (activation, need) in link.copied:
                order = ((link.copied[activation, need], 1), (link.late[need, producer], -1))
                program.at_least(f"copied_before_needed[{activation},{exact.name(need)}]", order)
    for activation, issued in exact.issued.items():
        if issued.slots[0] >= n:
            continue
        needed = exact.needed[activation]
        for slot in _deadlines(link):
            if slot <= issued.slots[0] or slot >= needed.slots[-1]:
                continue
            where = f"{activation},{exact.name(slot)}]"
            due = link.due[activation, slot] = program.variable(f"due[{where}", high=1)
            if needed.by(slot):
                program.at_least(f"due_if_needed[{where}", [(due, 1.0), *needed.by(slot, -1.0)])
            for (later, stop), copied in link.copied.items():
                producer = exact.graph.producers[later]
                if stop == slot and producer >= issued.slots[0]:
                    row = [(due, 1.0), *issued.by(producer, -1.0), (copied, -1.0)]
                    program.at_least(f"due_before_copied[{later},{where}", row, -1)


def add_shared_windows(exact: ExactProgram, link: _Link) -> None:
    """Fit what both directions issue from a slot on and must complete by another between the two.

    (docs: shared windows)
    """
    n = exact.graph.num_layers
    producers = sorted({exact.graph.producers[activation] for activation in exact.swap})
    for stop in _deadlines(link):
        for start in range(stop):
            out = _swap_out_work(exact, start, stop) if start < n else []
            if start in link.fetch_slots:
                _add_window(exact, start, stop, [*out, *_swap_in_work(exact, link, start, stop)], is_after=False)
            if start in producers:
                _add_window(exact, start, stop, [*out, *_swap_in_work(exact, link, start + 1, stop)], is_after=True)


def _deadlines(link: _Link) -> list[int]:
    return sorted({*link.release_slots, *link.need_slots})


def _swap_out_work(exact: ExactProgram, start: int, stop: int) -> list[Term]:
    """Return the time that swap-outs take which are produced in `start` or later and complete by `stop`."""
    graph = exact.graph
    return [
        term
        for activation, complete in exact.complete.items()
        if graph.producers[activation] >= start
        for term in complete.by(stop, graph.swap_out_seconds(activation) / exact.unit_seconds)
    ]


def _swap_in_work(exact: ExactProgram, link: _Link, start: int, stop: int) -> list[Term]:
    """Return the time that swap-ins take which are fetched in `start` or later and must be complete by `stop`."""
    graph, program = exact.graph, exact.program
    work: list[Term] = []
    for activation, issued in exact.issued.items():
        needed = exact.needed[activation]
        due: list[Term] = needed.by(stop)
        if (activation, stop) in link.due and start < graph.num_layers:
            due = [(link.due[activation, stop], 1.0)]
        before = issued.by(start - 1, -1.0)
        if not due or (before and before[0][0] is due[0][0]):
            continue
        seconds = graph.swap_in_seconds(activation) / exact.unit_seconds
        if not before or stop >= needed.slots[-1]:
            work += [(variable, seconds * factor) for variable, factor in (*due, *before)]
            continue
        # It may be issued before the window and needed after it: no less than no work.
        key = (activation, start, stop)
        if key not in link.inside:
            where = f"{activation},{exact.name(start)},{exact.name(stop)}]"
            inside = link.inside[key] = program.variable(f"inside[{where}", high=1)
            opposite = [(variable, -factor) for variable, factor in (*due, *before)]
            program.at_least(f"inside_if[{where}", [(inside, 1.0), *opposite])
        work.append((link.inside[key], seconds))
    return work


def _add_window(exact: ExactProgram, start: int, stop: int, work: list[Term], *, is_after: bool) -> None:
    """Let `work` fit between the start of slot `start` (its end if `is_after`) and the start of slot `stop`."""
    if not work:
        return
    length = exact.ideal_starts[stop] - exact.ideal_starts[start]
    if is_after:
        length -= exact.graph.forward_seconds[start] / exact.unit_seconds
    row = [*work, (exact.delay[stop], -1.0), (exact.delay[start], 1.0)]
    name = f"window[{exact.name(start)}{'+' if is_after else ''},{exact.name(stop)}]"
    exact.program.at_most(name, row, length)
