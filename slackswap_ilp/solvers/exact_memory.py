"""The exact program's memory ledger: what every slot holds, within the budget."""

from collections import defaultdict

from slackswap_ilp.slots import backward_slot
from slackswap_ilp.solvers.exact_model import ExactProgram, Term
from slackswap_ilp.solvers.program import Variable

Shared = dict[tuple[tuple[tuple[str, float], ...], ...], Variable]


def add_memory(exact: ExactProgram) -> None:
    """Keep every slot within the budget; slots that can never exceed it need no row (docs: memory)."""
    graph, program = exact.graph, exact.program
    workspaces = _add_workspaces(exact)
    rows: dict[int, list[Term]] = defaultdict(list)
    for activation in exact.keep:
        size = graph.sizes[activation] / exact.unit_bytes
        first, last = graph.last_forward_read[activation] + 1, exact.horizon.last_uses[activation]
        shared: Shared = {}
        for slot in range(first, last + 1):
            if exact.horizon.is_hot[slot]:
                rows[slot] += [(term, size * factor) for term, factor in _present(exact, activation, slot, shared)]
    for slot, is_hot in enumerate(exact.horizon.is_hot):
        if is_hot:
            row = [*rows[slot], *workspaces.get(slot, ())]
            limit = (exact.budget_bytes - graph.fixed_bytes[slot]) / exact.unit_bytes
            program.at_most(f"memory[{exact.name(slot)}]", row, limit)


def _present(exact: ExactProgram, activation: int, slot: int, shared: Shared) -> list[Term]:
    """Return the terms for an activation occupying memory in a slot after its last forward read.

    `shared` has the variables of earlier slots, which serve again while nothing changes.
    """
    graph = exact.graph
    savers = graph.savers[activation]
    have: list[Term] = [(exact.keep[activation], 1.0)]
    unreleased: list[Term] = []
    coming: list[Term] = []
    if activation in exact.swap:
        swap = exact.swap[activation]
        unreleased = [(swap, 1.0), *exact.complete[activation].by(slot, -1.0)]
        have += exact.issued[activation].by(slot)
        coming = exact.issued[activation].since(slot + 1)
    if activation in exact.rebuilt:
        have += exact.rebuilt[activation].by(slot)
        coming = [*coming, *exact.rebuilt[activation].since(slot + 1)]
    if savers and slot <= backward_slot(savers[0], graph.num_layers):
        return [*have, *unreleased]
    # Past the last backward that saves it, an activation stays while a layer that reads it is still to run again.
    return [*unreleased, *_present_for_reruns(exact, activation, slot, coming if not savers else [], shared)]


def _present_for_reruns(
    exact: ExactProgram, activation: int, slot: int, coming: list[Term], shared: Shared
) -> list[Term]:
    """Return the term for being there and read by a layer that runs again from `slot` on (docs: presence).

    Layers that read it find it there, so it is there already unless it is still `coming`. What is rebuilt without
    being read occupies its recompute slot.
    """
    rows: list[list[Term]] = []
    for reader in exact.reader_stairs(activation).values():
        later = reader.since(slot)
        if later:
            rows.append([*later, *((variable, -factor) for variable, factor in coming)])
    rebuilt = exact.rebuilt.get(activation)
    if rebuilt is not None and slot in rebuilt.slots and not exact.graph.savers[activation]:
        rows.append([*rebuilt.by(slot), *rebuilt.by(slot - 1, -1.0)])
    if not rows:
        return []
    key = tuple(tuple((variable.name, factor) for variable, factor in row) for row in rows)
    if key not in shared:
        where = f"{activation},{exact.name(slot)}]"
        present = shared[key] = exact.program.variable(f"present[{where}", high=1)
        for number, row in enumerate(rows):
            terms = [(present, 1.0), *((variable, -factor) for variable, factor in row)]
            exact.program.at_least(f"present_for[{number},{where}", terms)
    return [(shared[key], 1.0)]


def _add_workspaces(exact: ExactProgram) -> dict[int, list[Term]]:
    """Return, by recompute slot, the largest workspace of the layers that run again there (docs: workspaces)."""
    program = exact.program
    workspaces: dict[int, list[Term]] = {}
    for layer, stairs in exact.rerun.items():
        size = exact.graph.forward_workspace[layer] / exact.unit_bytes
        for slot in stairs.slots if size else ():
            if not exact.horizon.is_hot[slot]:
                continue
            if slot not in workspaces:
                workspaces[slot] = [(program.variable(f"workspace[{exact.name(slot)}]"), 1.0)]
            row = [*workspaces[slot], *stairs.by(slot, -size), *stairs.by(slot - 1, size)]
            program.at_least(f"workspace_of[{layer},{exact.name(slot)}]", row)
    return workspaces


def add_host_memory(exact: ExactProgram, *, margin_bytes: int) -> None:
    """Swap no more than the host can take, less a margin (docs: host memory)."""
    graph = exact.graph
    host = graph.instance.device.host_memory_bytes
    if host is not None and exact.swap:
        unit = exact.unit_bytes
        terms = [(swap, graph.sizes[activation] / unit) for activation, swap in exact.swap.items()]
        exact.program.at_most("host_memory", terms, (host - margin_bytes) / unit)
