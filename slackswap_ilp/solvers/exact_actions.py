"""The exact program's actions and recompute closure: what is kept, swapped or recomputed, and what runs again when.

The closure is pinned from both sides: a layer runs again when, and only when, a recomputed output of it is required.
"""

from slackswap_ilp.slots import backward_slot, recompute_slot
from slackswap_ilp.solvers.exact_model import ExactProgram, Staircase, Term


def add_actions(exact: ExactProgram) -> None:
    """Decide each activation: kept, swapped, or, with neither, recomputed (docs: actions)."""
    program = exact.program
    for activation, needs in enumerate(exact.horizon.need_slots):
        if not needs:
            continue
        exact.keep[activation] = program.binary(f"keep[{activation}]")
        if exact.horizon.fetch_slots[activation]:
            exact.swap[activation] = program.binary(f"swap[{activation}]")
            program.at_most(f"one_action[{activation}]", ((exact.keep[activation], 1), (exact.swap[activation], 1)), 1)


def held_terms(exact: ExactProgram, activation: int, factor: float = 1.0) -> list[Term]:
    """Return the terms for an activation not being recomputed."""
    terms = [(exact.keep[activation], factor)]
    return [*terms, (exact.swap[activation], factor)] if activation in exact.swap else terms


def add_reruns(exact: ExactProgram) -> None:
    """Let layers run again, and their recomputed outputs be rebuilt with them (docs: reruns)."""
    graph, program = exact.graph, exact.program
    for layer, triggers in enumerate(exact.triggers.of_layer):
        if not triggers:
            continue
        slots = [recompute_slot(trigger, graph.num_layers) for trigger in triggers]
        stairs = exact.rerun[layer] = exact.add_staircase(f"rerun[{layer}", slots)
        outputs = [activation for activation in graph.outputs[layer] if activation in exact.keep]
        if len(outputs) == 1:
            exact.rebuilt[outputs[0]] = stairs
            continue
        for activation in outputs:
            names = [f"{activation},{exact.name(slot)}]" for slot in slots]
            rebuilt = tuple(program.variable(f"rebuilt[{name}", high=1) for name in names)
            exact.rebuilt[activation] = Staircase(stairs.slots, rebuilt)
            exact.ascend(f"rebuilt[{activation}", exact.rebuilt[activation])
            held = held_terms(exact, activation)
            program.at_most(f"rebuilt_recomputed[{activation}]", [(rebuilt[-1], 1), *held], 1)
            for name, mine, rerun in zip(names, rebuilt, stairs.variables, strict=True):
                program.at_most(f"rebuilt_by_rerun[{name}", [(mine, 1), (rerun, -1)])
                program.at_least(f"rebuilt_with_rerun[{name}", [(mine, 1), *held, (rerun, -1)])


def add_causes(exact: ExactProgram) -> None:
    """Run a layer again only if a recomputed output of it is required by then (docs: causes)."""
    graph, program = exact.graph, exact.program
    for layer, stairs in exact.rerun.items():
        outputs = [activation for activation in graph.outputs[layer] if activation in exact.keep]
        for slot, rerun in zip(stairs.slots, stairs.variables, strict=True):
            where = f"{layer},{exact.name(slot)}]"
            causes: list[Term] = []
            for activation in outputs:
                cause = rerun if len(outputs) == 1 else program.variable(f"cause[{activation},{where}", high=1)
                causes.append((cause, -1))
                held = held_terms(exact, activation)
                program.at_most(f"cause_recomputed[{activation},{where}", [(cause, 1), *held], 1)
                savers = graph.savers[activation]
                if not savers or slot + 1 < backward_slot(savers[-1], graph.num_layers):
                    readers = exact.reader_stairs(activation).values()
                    required = [term for reader in readers for term in reader.by(slot, -1)]
                    program.at_most(f"cause_required[{activation},{where}", [(cause, 1), *required])
            if len(outputs) > 1:
                program.at_most(f"has_cause[{where}", [(rerun, 1), *causes])


def add_needs(exact: ExactProgram) -> None:
    """Find the slot by which a swapped activation is needed (docs: needs)."""
    program = exact.program
    for activation, swap in exact.swap.items():
        slots = exact.horizon.need_slots[activation]
        names = [f"needed[{activation},{exact.name(slot)}]" for slot in slots]
        variables = (*(program.variable(name, high=1) for name in names[:-1]), swap)
        stairs = exact.needed[activation] = Staircase(slots, variables)
        exact.ascend(f"needed[{activation}", stairs)
        is_saved = bool(exact.graph.savers[activation])
        readers = exact.reader_stairs(activation).values()
        for name, slot, needed in zip(names, slots, variables, strict=True):
            if slot < slots[-1] or not is_saved:
                required = [term for reader in readers for term in reader.by(slot, -1)]
                program.at_most(f"only_{name}", [(needed, 1), *required])


def add_availability(exact: ExactProgram) -> None:
    """Have what backward saves, and what layers read that run again (docs: availability)."""
    graph, program = exact.graph, exact.program
    for activation, keep in exact.keep.items():
        stairs = [family[activation] for family in (exact.needed, exact.rebuilt) if activation in family]
        slots = exact.horizon.need_slots[activation]
        if graph.savers[activation]:
            have = [(keep, 1.0), *(term for stair in stairs for term in stair.by(slots[-1]))]
            program.at_least(f"saved[{activation}]", have, 1)
        for layer, reader in exact.reader_stairs(activation).items():
            for slot, rerun in zip(reader.slots, reader.variables, strict=True):
                if slot <= slots[-1]:
                    have = [(keep, 1.0), *(term for stair in stairs for term in stair.by(slot))]
                    program.at_least(f"available[{activation},L{layer},{exact.name(slot)}]", [*have, (rerun, -1.0)])
