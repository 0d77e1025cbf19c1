"""The fluid program: transfers as cumulative bytes, any number of layers, a proven lower bound of every plan.

Each function below adds one family of variables or constraints; docs/formulation.md has the same names.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from slackswap_ilp.analysis import Graph
from slackswap_ilp.plan import Action
from slackswap_ilp.slots import backward_slot, recompute_slot, slot_name
from slackswap_ilp.solvers.program import Program, Variable
from slackswap_ilp.solvers.scale import Scale, find_scale
from slackswap_ilp.solvers.triggers import Triggers, find_triggers

Term = tuple[Variable, float]


@dataclass(slots=True)
class FluidProgram:
    """The fluid program of a graph and a budget, and the variables that decide a plan.

    Attributes
    ----------
    keep, swap
        By activation, whether it is kept or swapped; activations that backward needs in no way have neither.
    rerun
        By layer, a staircase: whether it ran again by Ri, for its triggers i in order of time.
    rebuilt
        By activation, a staircase over its triggers: whether it was rebuilt by Ri. The producer's `rerun` itself
        where that has one output that matters.
    needed
        By activation, a staircase over its triggers: whether it is swapped and needed by then.
    stall, copied_out, freed, copied_in
        By slot: waiting before it; bytes copied out, freed and copied in by its start.
    change
        By slot, the terms by which memory in use differs from the slot before, transfers apart.
    """

    graph: Graph
    budget_bytes: int | None
    triggers: Triggers
    program: Program
    scale: Scale
    keep: dict[int, Variable] = field(default_factory=dict)
    swap: dict[int, Variable] = field(default_factory=dict)
    rerun: dict[int, dict[int, Variable]] = field(default_factory=dict)
    rebuilt: dict[int, dict[int, Variable]] = field(default_factory=dict)
    needed: dict[int, dict[int, Variable]] = field(default_factory=dict)
    stall: list[Variable] = field(default_factory=list)
    copied_out: dict[int, Variable] = field(default_factory=dict)
    freed: dict[int, Variable] = field(default_factory=dict)
    copied_in: dict[int, Variable] = field(default_factory=dict)
    change: dict[int, list[Term]] = field(default_factory=lambda: defaultdict(list))


def make_fluid_program(
    graph: Graph,
    *,
    budget_bytes: int | None,
    window: int | None,
    is_closed: bool = False,
) -> FluidProgram:
    """Build the fluid program; a budget of None minimises the memory needed instead of the step time.

    Parameters
    ----------
    window
        How far chains of layers that run again are followed, see `find_triggers`; None for as far as they go.
    is_closed
        What holds beyond the window. If false, anything: a relaxation, whose optimum no plan is below. If true, chains
        must end within it: a restriction, whose solutions stand for plans.
    """
    fluid = FluidProgram(
        graph, budget_bytes, find_triggers(graph, window=window, is_cut=is_closed), Program("fluid"), find_scale(graph)
    )
    add_actions(fluid)
    add_reruns(fluid)
    add_availability(fluid)
    if is_closed:
        close_window(fluid)
    add_presence(fluid)
    add_time(fluid)
    add_swap_out(fluid)
    add_swap_in(fluid)
    add_memory(fluid)
    return fluid


def add_actions(fluid: FluidProgram) -> None:
    """Decide each activation: kept, swapped, or neither (docs: actions)."""
    graph, program = fluid.graph, fluid.program
    for activation, triggers in enumerate(fluid.triggers.of_activation):
        if not triggers:
            continue
        fluid.keep[activation] = program.binary(f"keep[{activation}]")
        if graph.swappable[activation]:
            fluid.swap[activation] = program.binary(f"swap[{activation}]")
            program.at_most(f"one_action[{activation}]", ((fluid.keep[activation], 1), (fluid.swap[activation], 1)), 1)


def add_reruns(fluid: FluidProgram) -> None:
    """Let layers run again, and their results be rebuilt by then (docs: reruns)."""
    graph, program = fluid.graph, fluid.program
    for layer, triggers in enumerate(fluid.triggers.of_layer):
        if not triggers:
            continue
        stairs = {trigger: program.binary(f"rerun[{layer},R{trigger}]") for trigger in triggers}
        fluid.rerun[layer] = stairs
        _add_staircase(program, f"rerun_stays[{layer}", stairs, triggers)
        outputs = [activation for activation in graph.outputs[layer] if activation in fluid.keep]
        for activation in outputs:
            own = fluid.triggers.of_activation[activation]
            if len(outputs) == 1:
                fluid.rebuilt[activation] = stairs
                continue
            rebuilt = {trigger: program.variable(f"rebuilt[{activation},R{trigger}]", high=1) for trigger in own}
            fluid.rebuilt[activation] = rebuilt
            _add_staircase(program, f"rebuilt_stays[{activation}", rebuilt, own)
            for trigger in own:
                program.at_most(
                    f"rebuilt_by_rerun[{activation},R{trigger}]",
                    [(rebuilt[trigger], 1.0), (stairs[trigger], -1.0)],
                )


def _add_staircase(program: Program, name: str, stairs: Mapping[int, Variable], triggers: Sequence[int]) -> None:
    """Let what has happened by one trigger have happened by the next."""
    for earlier, later in pairwise(triggers):
        program.at_most(f"{name},R{later}]", ((stairs[earlier], 1), (stairs[later], -1)))


def add_availability(fluid: FluidProgram) -> None:
    """Have what backward saves, and what layers read that run again (docs: availability)."""
    graph, program = fluid.graph, fluid.program
    for activation, triggers in enumerate(fluid.triggers.of_activation):
        if not triggers:
            continue
        keep, swap = fluid.keep[activation], fluid.swap.get(activation)
        rebuilt = fluid.rebuilt.get(activation, {})
        savers = graph.savers[activation]
        needed: dict[int, Variable] = {}
        if swap is not None:
            # The last stair is the swap itself: a swapped activation that is never needed helps nobody.
            needed = {
                trigger: program.variable(f"needed[{activation},R{trigger}]", high=1) for trigger in triggers[:-1]
            }
            needed[triggers[-1]] = swap
            _add_staircase(program, f"needed_stays[{activation}", needed, triggers)
        fluid.needed[activation] = needed
        covered: dict[int, int] = {}
        for trigger in triggers:
            have = [(keep, 1.0)]
            have += [(stairs[trigger], 1.0) for stairs in (rebuilt, needed) if trigger in stairs]
            if savers and trigger == savers[-1]:
                program.at_least(f"saved[{activation}]", have, 1)
                continue
            for reader, at in _find_reruns_by(fluid, activation, trigger):
                if covered.get(reader) != at:
                    covered[reader] = at
                    row = [*have, (fluid.rerun[reader][at], -1.0)]
                    program.at_least(f"available[{activation},L{reader},R{trigger}]", row)


def _find_reruns_by(fluid: FluidProgram, activation: int, trigger: int) -> Iterator[tuple[int, int]]:
    """Yield, for every reader that may run again, its last trigger whose stretch ends by `trigger`, if it has one."""
    for reader in fluid.graph.readers[activation]:
        by = [at for at in fluid.rerun.get(reader, ()) if at >= trigger]
        if by:
            yield reader, by[-1]


def close_window(fluid: FluidProgram) -> None:
    """Let nothing be rebuilt before its window: a reader that runs again then finds it kept or swapped.

    (docs: closed window)
    """
    graph, program = fluid.graph, fluid.program
    for activation, keep in fluid.keep.items():
        own = set(fluid.triggers.of_activation[activation])
        savers = graph.savers[activation]
        first_save = savers[-1] if savers else -1
        there = [(keep, 1.0)]
        if activation in fluid.swap:
            there.append((fluid.swap[activation], 1.0))
        for reader in graph.readers[activation]:
            for trigger, rerun in fluid.rerun.get(reader, {}).items():
                if trigger > first_save and trigger not in own:
                    program.at_least(f"closed[{activation},L{reader},R{trigger}]", [*there, (rerun, -1.0)])


def add_presence(fluid: FluidProgram) -> None:
    """Gather how kept, swapped and rebuilt activations change the memory in use, slot by slot (docs: presence).

    Swapped ones count as present until their last use; `add_memory` takes off what transfers have freed.
    """
    graph = fluid.graph
    n = graph.num_layers
    for activation, triggers in enumerate(fluid.triggers.of_activation):
        if not triggers:
            continue
        size = graph.sizes[activation] / fluid.scale.bytes_per_unit
        present: list[Term] = [(fluid.keep[activation], size)]
        if activation in fluid.swap:
            present.append((fluid.swap[activation], size))
        _add_change(fluid, graph.last_forward_read[activation] + 1, present, 1)
        savers = graph.savers[activation]
        if savers:
            rebuilt = fluid.rebuilt.get(activation, {})
            for trigger, step in _steps(rebuilt, size):
                _add_change(fluid, recompute_slot(trigger, n), step, 1)
            if rebuilt:
                present.append((rebuilt[triggers[-1]], size))
            _add_change(fluid, backward_slot(savers[0], n) + 1, present, -1)
        _hold_for_reruns(fluid, activation)


def _steps(stairs: Mapping[int, Variable], factor: float) -> Iterator[tuple[int, list[Term]]]:
    """Yield, by trigger, the terms for what a staircase rises there."""
    previous: list[Term] = []
    for trigger, variable in stairs.items():
        yield trigger, [(variable, factor), *previous]
        previous = [(variable, -factor)]


def _hold_for_reruns(fluid: FluidProgram, activation: int) -> None:
    """Keep an activation present through the last recompute that reads it, past the last backward that does.

    One that no backward saves hands over to what is held here after the recompute slot that first needs it.
    """
    graph, program = fluid.graph, fluid.program
    n = graph.num_layers
    savers = graph.savers[activation]
    readers = {layer: fluid.rerun[layer] for layer in graph.readers[activation] if layer in fluid.rerun}
    size = graph.sizes[activation] / fluid.scale.bytes_per_unit
    end = backward_slot(savers[0], n) if savers else graph.last_forward_read[activation]
    reads = {
        layer: {trigger: recompute_slot(fluid.triggers.starts_of_layer[layer][trigger], n) for trigger in stairs}
        for layer, stairs in readers.items()
    }
    is_kept = not savers
    for first_read in sorted({slot for slots in reads.values() for slot in slots.values() if slot > end}):
        start, end = end, first_read
        if is_kept:
            _add_change(fluid, end + 1, [(fluid.keep[activation], size)], -1)
            is_kept = False
            continue
        held = program.variable(f"held[{activation},{_name(fluid, end)}]", high=1)
        for layer, stairs in readers.items():
            # What the reader certainly does from here on, less what may come back only from here on.
            terms = [(held, 1.0), *_rise(stairs, [t for t, slot in reads[layer].items() if slot < end], -1.0)]
            for source in (fluid.rebuilt.get(activation), fluid.needed[activation]) if not savers else ():
                if source:
                    terms += _rise(source, [t for t in source if recompute_slot(t, n) <= start], 1.0)
            program.at_least(f"held_for_rerun[{activation},L{layer},{_name(fluid, end)}]", terms)
        _add_change(fluid, start + 1, [(held, size)], 1)
        _add_change(fluid, end + 1, [(held, size)], -1)
    if not savers:
        _pass_through(fluid, activation)


def _pass_through(fluid: FluidProgram, activation: int) -> None:
    """Let what was rebuilt or swapped in for a recompute only be present in that very slot."""
    n = fluid.graph.num_layers
    size = fluid.graph.sizes[activation] / fluid.scale.bytes_per_unit
    starts = fluid.triggers.starts_of_activation[activation]
    for trigger, step in _steps(fluid.rebuilt.get(activation, {}), size):
        if starts[trigger] == trigger:
            _add_change(fluid, recompute_slot(trigger, n), step, 1)
            _add_change(fluid, recompute_slot(trigger, n) + 1, step, -1)
    for trigger, step in _steps(fluid.needed[activation], size):
        _add_change(fluid, recompute_slot(starts[trigger], n) + 1, step, -1)


def _rise(stairs: Mapping[int, Variable], past: Sequence[int], factor: float) -> list[Term]:
    """Return the terms for what a staircase rises after the triggers in `past`, the first ones of it."""
    top = list(stairs.values())[-1]
    return [(top, factor), (stairs[past[-1]], -factor)] if past else [(top, factor)]


def _add_change(fluid: FluidProgram, slot: int, terms: Sequence[Term], sign: int) -> None:
    if slot < fluid.graph.num_slots:
        fluid.change[slot].extend((variable, sign * coefficient) for variable, coefficient in terms)


def add_time(fluid: FluidProgram) -> None:
    """Minimise the waiting before each slot and the time of running layers again (docs: time)."""
    graph, program = fluid.graph, fluid.program
    fluid.stall = [program.variable(f"stall[{_name(fluid, slot)}]") for slot in range(graph.num_slots)]
    if fluid.budget_bytes is None:
        return
    cost: list[Term] = [(stall, 1.0) for stall in fluid.stall]
    for layer, stairs in fluid.rerun.items():
        last = fluid.triggers.of_layer[layer][-1]
        seconds = graph.forward_seconds[layer] / fluid.scale.seconds_per_unit
        cost.append((stairs[last], seconds))
    program.minimise(cost)


def _name(fluid: FluidProgram, slot: int) -> str:
    return slot_name(slot, fluid.graph.num_layers)


def _compute_terms(fluid: FluidProgram) -> tuple[list[float], dict[int, list[Term]], dict[int, list[Term]]]:
    """Return, by slot, the fixed compute time and the terms of the recompute time, in units.

    Those of stretches stand apart, at the slot where their stretch starts: they may be spent there or later.
    """
    graph = fluid.graph
    n = graph.num_layers
    fixed = [0.0] * graph.num_slots
    for layer in range(n):
        fixed[layer] = graph.forward_seconds[layer] / fluid.scale.seconds_per_unit
        fixed[backward_slot(layer, n)] = graph.backward_seconds[layer] / fluid.scale.seconds_per_unit
    reruns: dict[int, list[Term]] = defaultdict(list)
    stretched: dict[int, list[Term]] = defaultdict(list)
    for layer, stairs in fluid.rerun.items():
        cost = graph.forward_seconds[layer] / fluid.scale.seconds_per_unit
        for trigger, step in _steps(stairs, cost):
            start = fluid.triggers.starts_of_layer[layer][trigger]
            (reruns if start == trigger else stretched)[recompute_slot(start, n)].extend(step)
    return fixed, reruns, stretched


def add_swap_out(fluid: FluidProgram) -> None:
    """Copy out no faster than the link, nothing before it is produced, free nothing before it is copied and read.

    (docs: swap-out)
    """
    graph, program = fluid.graph, fluid.program
    produced: dict[int, list[Term]] = defaultdict(list)
    released: dict[int, list[Term]] = defaultdict(list)
    for activation, swap in fluid.swap.items():
        size = graph.sizes[activation] / fluid.scale.bytes_per_unit
        produced[graph.producers[activation]].append((swap, size))
        released[graph.last_forward_read[activation]].append((swap, size))
    rate = graph.instance.device.swap_out_bytes_per_second * fluid.scale.seconds_per_unit / fluid.scale.bytes_per_unit
    fixed, reruns, stretched = _compute_terms(fluid)
    before: list[Term] = []
    releasable: list[Term] = []
    copied: list[Term] = []
    for slot in range(graph.num_slots - 1):
        name = _name(fluid, slot + 1)
        copied_next = program.variable(f"copied_out[{name}]")
        row = [(copied_next, 1.0), *_negative(copied)]
        terms = (*reruns.get(slot, ()), *stretched.get(slot, ()))
        row += [(variable, -rate * cost) for variable, cost in terms]
        program.at_most(f"swap_out_rate[{name}]", [*row, (fluid.stall[slot + 1], -rate)], rate * fixed[slot])
        if slot < graph.num_layers:
            # What this slot produces can be copied only while compute waits at its end.
            program.at_most(
                f"swap_out_order[{name}]", [(copied_next, 1.0), *_negative(before), (fluid.stall[slot + 1], -rate)]
            )
            before = _accumulate(program, f"swapped[{name}]", before, produced.get(slot, ()))
            releasable = _accumulate(program, f"releasable[{name}]", releasable, released.get(slot, ()))
        program.at_most(f"swap_out_produced[{name}]", [(copied_next, 1.0), *_negative(before)])
        freed = program.variable(f"freed[{name}]")
        program.at_most(f"freed_copied[{name}]", [(freed, 1.0), (copied_next, -1.0)])
        program.at_most(f"freed_read[{name}]", [(freed, 1.0), *_negative(releasable)])
        fluid.copied_out[slot + 1] = copied_next
        fluid.freed[slot + 1] = freed
        copied = [(copied_next, 1.0)]


def _negative(terms: Sequence[Term]) -> list[Term]:
    return [(variable, -coefficient) for variable, coefficient in terms]


def _accumulate(program: Program, name: str, total: Sequence[Term], terms: Sequence[Term]) -> list[Term]:
    """Return terms for a running total, through a variable of its own so that rows stay short."""
    if not terms:
        return list(total)
    variable = program.variable(name)
    program.equal(f"sum_{name}", [(variable, 1.0), *_negative(total), *_negative(terms)])
    return [(variable, 1.0)]


def add_swap_in(fluid: FluidProgram) -> None:
    """Copy in no faster than the link, nothing that is not freed, everything before it is needed (docs: swap-in).

    What is copied in during forward is not accounted for: that relaxes.
    """
    graph, program = fluid.graph, fluid.program
    n = graph.num_layers
    needed: dict[int, list[Term]] = defaultdict(list)
    for activation, stairs in fluid.needed.items():
        size = graph.sizes[activation] / fluid.scale.bytes_per_unit
        savers = graph.savers[activation]
        previous = None
        for trigger, variable in stairs.items():
            is_save = bool(savers) and trigger == savers[-1]
            slot = backward_slot(trigger, n) if is_save else recompute_slot(trigger, n)
            needed[slot].append((variable, size))
            if previous is not None:
                needed[slot].append((previous, -size))
            previous = variable
    device = graph.instance.device
    rate = device.swap_in_bytes_per_second * fluid.scale.seconds_per_unit / fluid.scale.bytes_per_unit
    fixed, reruns, stretched = _compute_terms(fluid)
    unspent: list[Term] = []
    first = fluid.copied_in[n] = program.variable(f"copied_in[{_name(fluid, n)}]")
    if n - 1 in fluid.freed:
        program.at_most("swap_in_freed_before", [(first, 1.0), (fluid.freed[n - 1], -1.0)])
    due = _accumulate(program, f"due[{_name(fluid, n)}]", [], needed.get(n, ()))
    if due:
        program.at_least(f"swap_in_due[{_name(fluid, n)}]", [(first, 1.0), *_negative(due)])
    for slot in range(n, graph.num_slots - 1):
        name = _name(fluid, slot + 1)
        copied, copied_next = fluid.copied_in[slot], program.variable(f"copied_in[{name}]")
        fluid.copied_in[slot + 1] = copied_next
        row = [(copied_next, 1.0), (copied, -1.0), (fluid.stall[slot + 1], -rate)]
        row += [(variable, -rate * cost) for variable, cost in reruns.get(slot, ())]
        available = [*unspent, *stretched.get(slot, ())]
        if available:
            left = program.variable(f"unspent[{name}]")
            program.at_most(f"unspent_earned[{name}]", [(left, 1.0), *_negative(available)])
            row += [(variable, -rate * cost) for variable, cost in available]
            row.append((left, rate))
            unspent = [(left, 1.0)]
        if device.duplex == "half":
            share = device.swap_in_bytes_per_second / device.swap_out_bytes_per_second
            row += [(fluid.copied_out[slot + 1], share), (fluid.copied_out[slot], -share)]
            program.at_least(
                f"copied_out_stays[{name}]", [(fluid.copied_out[slot + 1], 1), (fluid.copied_out[slot], -1)]
            )
            program.at_least(f"copied_in_stays[{name}]", [(copied_next, 1), (copied, -1)])
        program.at_most(f"swap_in_rate[{name}]", row, rate * fixed[slot])
        program.at_most(f"swap_in_freed[{name}]", [(copied_next, 1.0), (fluid.freed[slot], -1.0)])
        due = _accumulate(program, f"due[{name}]", due, needed.get(slot + 1, ()))
        if due:
            program.at_least(f"swap_in_due[{name}]", [(copied_next, 1.0), *_negative(due)])


def add_memory(fluid: FluidProgram) -> None:
    """Keep every slot within the budget (docs: memory)."""
    graph, program = fluid.graph, fluid.program
    n = graph.num_layers
    limit: list[Term] = []
    budget_bytes = fluid.budget_bytes
    if budget_bytes is None:
        # What is minimised is the budget beyond what no plan does without.
        budget_bytes = max(graph.fixed_bytes)
        least = program.variable("budget")
        limit = [(least, -1.0)]
        program.minimise([(least, 1.0)])
    most_bytes = sum(graph.sizes) + max(graph.forward_workspace)
    _add_host_memory(fluid)
    workspaces = _add_workspaces(fluid)
    used: list[Term] = []
    for slot in range(graph.num_slots):
        name = _name(fluid, slot)
        used = _accumulate(program, f"used[{name}]", used, fluid.change.get(slot, ()))
        row = [*used, *limit]
        if slot in workspaces:
            row.append((workspaces[slot], 1.0))
        if slot in fluid.freed:
            row.append((fluid.freed[slot], -1.0))
        if slot + 1 in fluid.copied_in and slot >= n - 1:
            row.append((fluid.copied_in[slot + 1], 1.0))
        room_bytes = budget_bytes - graph.fixed_bytes[slot]
        if room_bytes < most_bytes:
            program.at_most(f"memory[{name}]", row, room_bytes / fluid.scale.bytes_per_unit)


def _add_workspaces(fluid: FluidProgram) -> dict[int, Variable]:
    """Return, by recompute slot, the largest workspace of the layers that run again there (docs: workspaces)."""
    graph, program = fluid.graph, fluid.program
    workspaces: dict[int, Variable] = {}
    for layer, stairs in fluid.rerun.items():
        size = graph.forward_workspace[layer] / fluid.scale.bytes_per_unit
        starts = fluid.triggers.starts_of_layer[layer]
        for trigger, step in _steps(stairs, -size) if size else ():
            if starts[trigger] == trigger:
                slot = recompute_slot(trigger, graph.num_layers)
                if slot not in workspaces:
                    workspaces[slot] = program.variable(f"workspace[R{trigger}]")
                program.at_least(f"workspace_of[{layer},R{trigger}]", [(workspaces[slot], 1.0), *step])
    return workspaces


def _add_host_memory(fluid: FluidProgram) -> None:
    """Swap no more than the host can take (docs: host memory)."""
    graph = fluid.graph
    host = graph.instance.device.host_memory_bytes
    if host is not None and fluid.swap:
        fluid.program.at_most(
            "host_memory",
            [(swap, graph.sizes[number] / fluid.scale.bytes_per_unit) for number, swap in fluid.swap.items()],
            host / fluid.scale.bytes_per_unit,
        )


def read_actions(fluid: FluidProgram, values: Mapping[Variable, float], threshold: float = 0.5) -> list[Action]:
    """Return the actions that a solution of the program stands for.

    An activation is recomputed if keeping and swapping together have less than `threshold`, else the larger of these
    two decides. The lower the threshold, the fewer chains rounding breaks.
    """
    actions = []
    for activation in range(fluid.graph.num_activations):
        if activation not in fluid.keep:
            actions.append(Action.KEEP)
            continue
        keep = values.get(fluid.keep[activation], 0.0)
        swap = values.get(fluid.swap[activation], 0.0) if activation in fluid.swap else 0.0
        if keep + swap < threshold:
            actions.append(Action.RECOMPUTE)
        else:
            actions.append(Action.KEEP if keep >= swap else Action.SWAP)
    return actions
