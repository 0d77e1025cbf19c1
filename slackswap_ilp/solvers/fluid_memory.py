"""The families of the fluid program that say what is in memory, slot by slot."""

from collections.abc import Mapping, Sequence

from slackswap_ilp.slots import backward_slot, recompute_slot
from slackswap_ilp.solvers.fluid_model import FluidProgram, Term, accumulate_terms, list_steps, name_slot
from slackswap_ilp.solvers.program import Variable


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
            for trigger, step in list_steps(rebuilt, size):
                _add_change(fluid, recompute_slot(trigger, n), step, 1)
            if rebuilt:
                present.append((rebuilt[triggers[-1]], size))
            _add_change(fluid, backward_slot(savers[0], n) + 1, present, -1)
        _hold_for_reruns(fluid, activation)


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
        held = program.variable(f"held[{activation},{name_slot(fluid, end)}]", high=1)
        for layer, stairs in readers.items():
            # What the reader certainly does from here on, less what may come back only from here on.
            terms = [(held, 1.0), *_rise(stairs, [t for t, slot in reads[layer].items() if slot < end], -1.0)]
            for source in (fluid.rebuilt.get(activation), fluid.needed[activation]) if not savers else ():
                if source:
                    terms += _rise(source, [t for t in source if recompute_slot(t, n) <= start], 1.0)
            program.at_least(f"held_for_rerun[{activation},L{layer},{name_slot(fluid, end)}]", terms)
        _add_change(fluid, start + 1, [(held, size)], 1)
        _add_change(fluid, end + 1, [(held, size)], -1)
    if not savers:
        _pass_through(fluid, activation)


def _pass_through(fluid: FluidProgram, activation: int) -> None:
    """Let what was rebuilt or swapped in for a recompute only be present in that very slot."""
    n = fluid.graph.num_layers
    size = fluid.graph.sizes[activation] / fluid.scale.bytes_per_unit
    starts = fluid.triggers.starts_of_activation[activation]
    for trigger, step in list_steps(fluid.rebuilt.get(activation, {}), size):
        if starts[trigger] == trigger:
            _add_change(fluid, recompute_slot(trigger, n), step, 1)
            _add_change(fluid, recompute_slot(trigger, n) + 1, step, -1)
    for trigger, step in list_steps(fluid.needed[activation], size):
        _add_change(fluid, recompute_slot(starts[trigger], n) + 1, step, -1)


def _rise(stairs: Mapping[int, Variable], past: Sequence[int], factor: float) -> list[Term]:
    """Return the terms for what a staircase rises after the triggers in `past`, the first ones of it."""
    top = list(stairs.values())[-1]
    return [(top, factor), (stairs[past[-1]], -factor)] if past else [(top, factor)]


def _add_change(fluid: FluidProgram, slot: int, terms: Sequence[Term], sign: int) -> None:
    if slot < fluid.graph.num_slots:
        fluid.change[slot].extend((variable, sign * coefficient) for variable, coefficient in terms)


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
        name = name_slot(fluid, slot)
        used = accumulate_terms(program, f"used[{name}]", used, fluid.change.get(slot, ()))
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
        for trigger, step in list_steps(stairs, -size) if size else ():
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
