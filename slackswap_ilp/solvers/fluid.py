"""The fluid program: transfers as cumulative bytes, any number of layers, a proven lower bound of every plan.

Each function below adds one family of variables or constraints; docs/formulation.md has the same names.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
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
    used_bytes
        By slot, what is in memory before transfers change them.
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


def make_fluid_program(graph: Graph, *, budget_bytes: int | None, window: int | None) -> FluidProgram:
    """Build the fluid program; a budget of None minimises the memory needed instead of the step time."""
    fluid = FluidProgram(graph, budget_bytes, find_triggers(graph, window=window), Program("fluid"), find_scale(graph))
    add_actions(fluid)
    add_reruns(fluid)
    add_availability(fluid)
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
                    f"rebuilt_by_rerun[{activation},R{trigger}]", ((rebuilt[trigger], 1), (stairs[trigger], -1))
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
        for trigger in triggers:
            have = [(keep, 1.0)]
            have += [(stairs[trigger], 1.0) for stairs in (rebuilt, needed) if trigger in stairs]
            if savers and trigger == savers[-1]:
                program.at_least(f"saved[{activation}]", have, 1)
                continue
            for reader in graph.readers[activation]:
                rerun = fluid.rerun.get(reader, {})
                if trigger in rerun:
                    program.at_least(f"available[{activation},L{reader},R{trigger}]", [*have, (rerun[trigger], -1.0)])


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
        rebuilt = fluid.rebuilt.get(activation, {})
        previous = None
        for trigger in triggers:
            if trigger in rebuilt:
                step = [(rebuilt[trigger], size)] + ([(rebuilt[previous], -size)] if previous is not None else [])
                _add_change(fluid, recompute_slot(trigger, n), step, 1)
                previous = trigger
        savers = graph.savers[activation]
        if savers:
            if previous is not None:
                present.append((rebuilt[previous], size))
            _add_change(fluid, backward_slot(savers[0], n) + 1, present, -1)
        _add_extension(fluid, activation)


def _add_extension(fluid: FluidProgram, activation: int) -> None:
    """Keep an activation present through the last recompute that reads it, past the last backward that does."""
    graph, program = fluid.graph, fluid.program
    n = graph.num_layers
    savers = graph.savers[activation]
    readers = {layer: fluid.rerun[layer] for layer in graph.readers[activation] if layer in fluid.rerun}
    own = fluid.triggers.of_activation[activation]
    times = list(own)
    if savers:
        later = {trigger for stairs in readers.values() for trigger in stairs if trigger < savers[0]}
        times = sorted(later, reverse=True)
    size = graph.sizes[activation] / fluid.scale.bytes_per_unit
    sources = [stairs for stairs in (fluid.rebuilt.get(activation), fluid.needed[activation]) if stairs]
    for index, trigger in enumerate(times):
        earlier = times[index - 1] if index else None
        if savers or index:
            held = program.variable(f"held[{activation},R{trigger}]", high=1)
            for layer, stairs in readers.items():
                if trigger not in stairs:
                    continue
                # What the reader does from this trigger on, less what comes back only from this trigger on.
                terms = [(held, 1.0), *_rise(stairs, earlier, -1.0)]
                if not savers:
                    for source in sources:
                        terms += _rise(source, earlier, 1.0)
                program.at_least(f"held_for_rerun[{activation},L{layer},R{trigger}]", terms)
            start = backward_slot(savers[0], n) if index == 0 else recompute_slot(times[index - 1], n)
            _add_change(fluid, start + 1, [(held, size)], 1)
            _add_change(fluid, recompute_slot(trigger, n) + 1, [(held, size)], -1)
        if not savers:
            _hand_over(fluid, activation, trigger, earlier)


def _hand_over(fluid: FluidProgram, activation: int, trigger: int, earlier: int | None) -> None:
    """Let `held` account for an activation that no backward saves, once a recompute slot has needed it."""
    size = fluid.graph.sizes[activation] / fluid.scale.bytes_per_unit
    leaving: list[Term] = [] if earlier is not None else [(fluid.keep[activation], size)]
    for stairs in (fluid.rebuilt.get(activation), fluid.needed[activation]):
        if stairs:
            leaving.append((stairs[trigger], size))
            if earlier is not None:
                leaving.append((stairs[earlier], -size))
    _add_change(fluid, recompute_slot(trigger, fluid.graph.num_layers) + 1, leaving, -1)


def _rise(stairs: Mapping[int, Variable], before: int | None, factor: float) -> list[Term]:
    """Return the terms for what a staircase rises after trigger `before` (None: from the start)."""
    triggers = list(stairs)
    terms = [(stairs[triggers[-1]], factor)]
    past = [trigger for trigger in triggers if before is not None and trigger >= before]
    return [*terms, (stairs[past[-1]], -factor)] if past else terms


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
        cost.append((stairs[last], graph.forward_seconds[layer] / fluid.scale.seconds_per_unit))
    program.minimise(cost)


def _name(fluid: FluidProgram, slot: int) -> str:
    return slot_name(slot, fluid.graph.num_layers)


def _compute_terms(fluid: FluidProgram) -> tuple[list[float], dict[int, list[Term]]]:
    """Return, by slot, the fixed compute time and the terms of the recompute time, in units."""
    graph = fluid.graph
    n = graph.num_layers
    fixed = [0.0] * graph.num_slots
    for layer in range(n):
        fixed[layer] = graph.forward_seconds[layer] / fluid.scale.seconds_per_unit
        fixed[backward_slot(layer, n)] = graph.backward_seconds[layer] / fluid.scale.seconds_per_unit
    reruns: dict[int, list[Term]] = defaultdict(list)
    for layer, stairs in fluid.rerun.items():
        cost = graph.forward_seconds[layer] / fluid.scale.seconds_per_unit
        previous = None
        for trigger, variable in stairs.items():
            reruns[recompute_slot(trigger, n)].append((variable, cost))
            if previous is not None:
                reruns[recompute_slot(trigger, n)].append((previous, -cost))
            previous = variable
    return fixed, reruns


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
    fixed, reruns = _compute_terms(fluid)
    before: list[Term] = []
    releasable: list[Term] = []
    copied: list[Term] = []
    for slot in range(graph.num_slots - 1):
        name = _name(fluid, slot + 1)
        copied_next = program.variable(f"copied_out[{name}]")
        row = [(copied_next, 1.0), *_negative(copied)]
        row += [(variable, -rate * cost) for variable, cost in reruns.get(slot, ())]
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
    fixed, reruns = _compute_terms(fluid)
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
    budget = 0.0
    if fluid.budget_bytes is None:
        least = program.variable("budget")
        limit = [(least, -1.0)]
        program.minimise([(least, 1.0)])
    else:
        budget = fluid.budget_bytes / fluid.scale.bytes_per_unit
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
        program.at_most(f"memory[{name}]", row, budget - graph.fixed_bytes[slot] / fluid.scale.bytes_per_unit)


def _add_workspaces(fluid: FluidProgram) -> dict[int, Variable]:
    """Return, by recompute slot, the largest workspace of the layers that run again there (docs: workspaces)."""
    graph, program = fluid.graph, fluid.program
    workspaces: dict[int, Variable] = {}
    for layer, stairs in fluid.rerun.items():
        size = graph.forward_workspace[layer] / fluid.scale.bytes_per_unit
        previous: list[Term] = []
        for trigger, variable in stairs.items() if size else ():
            slot = recompute_slot(trigger, graph.num_layers)
            if slot not in workspaces:
                workspaces[slot] = program.variable(f"workspace[R{trigger}]")
            row = [(workspaces[slot], 1.0), (variable, -size), *previous]
            program.at_least(f"workspace_of[{layer},R{trigger}]", row)
            previous = [(variable, size)]
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
