"""The families of the fluid program that say what time takes and what transfers can do in it."""

from collections import defaultdict

from slackswap_ilp.slots import backward_slot, recompute_slot
from slackswap_ilp.solvers.fluid_model import FluidProgram, Term, accumulate_terms, list_steps, name_slot, negate


def add_time(fluid: FluidProgram) -> None:
    """Minimise the waiting before each slot and the time of running layers again (docs: time)."""
    graph, program = fluid.graph, fluid.program
    fluid.stall = [program.variable(f"stall[{name_slot(fluid, slot)}]") for slot in range(graph.num_slots)]
    if fluid.budget_bytes is None:
        return
    cost: list[Term] = [(stall, 1.0) for stall in fluid.stall]
    for layer, stairs in fluid.rerun.items():
        last = fluid.triggers.of_layer[layer][-1]
        seconds = graph.forward_seconds[layer] / fluid.scale.seconds_per_unit
        cost.append((stairs[last], seconds))
    program.minimise(cost)


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
        for trigger, step in list_steps(stairs, cost):
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
        name = name_slot(fluid, slot + 1)
        copied_next = program.variable(f"copied_out[{name}]")
        row = [(copied_next, 1.0), *negate(copied)]
        terms = (*reruns.get(slot, ()), *stretched.get(slot, ()))
        row += [(variable, -rate * cost) for variable, cost in terms]
        program.at_most(f"swap_out_rate[{name}]", [*row, (fluid.stall[slot + 1], -rate)], rate * fixed[slot])
        if slot < graph.num_layers:
            # What this slot produces can be copied only while compute waits at its end.
            program.at_most(
                f"swap_out_order[{name}]", [(copied_next, 1.0), *negate(before), (fluid.stall[slot + 1], -rate)]
            )
            before = accumulate_terms(program, f"swapped[{name}]", before, produced.get(slot, ()))
            releasable = accumulate_terms(program, f"releasable[{name}]", releasable, released.get(slot, ()))
        program.at_most(f"swap_out_produced[{name}]", [(copied_next, 1.0), *negate(before)])
        freed = program.variable(f"freed[{name}]")
        program.at_most(f"freed_copied[{name}]", [(freed, 1.0), (copied_next, -1.0)])
        program.at_most(f"freed_read[{name}]", [(freed, 1.0), *negate(releasable)])
        fluid.copied_out[slot + 1] = copied_next
        fluid.freed[slot + 1] = freed
        copied = [(copied_next, 1.0)]


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
    first = fluid.copied_in[n] = program.variable(f"copied_in[{name_slot(fluid, n)}]")
    if n - 1 in fluid.freed:
        program.at_most("swap_in_freed_before", [(first, 1.0), (fluid.freed[n - 1], -1.0)])
    due = accumulate_terms(program, f"due[{name_slot(fluid, n)}]", [], needed.get(n, ()))
    if due:
        program.at_least(f"swap_in_due[{name_slot(fluid, n)}]", [(first, 1.0), *negate(due)])
    for slot in range(n, graph.num_slots - 1):
        name = name_slot(fluid, slot + 1)
        copied, copied_next = fluid.copied_in[slot], program.variable(f"copied_in[{name}]")
        fluid.copied_in[slot + 1] = copied_next
        row = [(copied_next, 1.0), (copied, -1.0), (fluid.stall[slot + 1], -rate)]
        row += [(variable, -rate * cost) for variable, cost in reruns.get(slot, ())]
        available = [*unspent, *stretched.get(slot, ())]
        if available:
            left = program.variable(f"unspent[{name}]")
            program.at_most(f"unspent_earned[{name}]", [(left, 1.0), *negate(available)])
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
        due = accumulate_terms(program, f"due[{name}]", due, needed.get(slot + 1, ()))
        if due:
            program.at_least(f"swap_in_due[{name}]", [(copied_next, 1.0), *negate(due)])
