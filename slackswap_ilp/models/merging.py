"""Merges the operators of each part of a model into one, for plans at the granularity of blocks."""

from collections.abc import Iterable, Sequence
from itertools import groupby

from slackswap_ilp.models.graph import Operator, Tensor


def merge_parts(operators: Sequence[Operator]) -> list[Operator]:
    """Return one operator per part, in order.

    What other parts read stays an activation (``block3.out``); all else that a part's backward reads becomes one
    (``block3.saved``), which only this part saves. Workspaces cover what is alive inside beside these: with them a
    merged operator takes as much memory as the largest moment of its operators, or more where backward frees some of
    what it saved before it ends.
    """
    groups = [tuple(group) for _, group in groupby(operators, key=lambda operator: operator.part)]
    shared = _find_shared(groups)
    renamed: dict[Tensor, Tensor] = {}
    return [_merge(group, shared, renamed) for group in groups]


def _find_shared(groups: Iterable[Sequence[Operator]]) -> set[Tensor]:
    """Return the tensors that an operator of another part than their own reads in forward or backward."""
    shared: set[Tensor] = set()
    for group in groups:
        produced = {tensor for operator in group for tensor in operator.outputs}
        read = {tensor for operator in group for tensor in (*operator.inputs, *operator.saved)}
        shared |= read - produced
    return shared


def _merge(group: Sequence[Operator], shared: set[Tensor], renamed: dict[Tensor, Tensor]) -> Operator:
    """Merge one part; `renamed` maps what parts share to its new name, and this part's share is added to it."""
    part = group[0].part
    produced = [tensor for operator in group for tensor in operator.outputs]
    outs = [tensor for tensor in produced if tensor in shared]
    assert len(outs) <= 1, f"{part} must hand on one activation, got {outs}"
    renamed.update({tensor: Tensor(f"{part}.out", tensor.size_bytes, tensor.gradient_bytes) for tensor in outs})
    saved = _unique(tensor for operator in group for tensor in operator.saved)
    kept = [tensor for tensor in saved if tensor in produced and tensor not in outs]
    inside = tuple([Tensor(f"{part}.saved", sum(tensor.size_bytes for tensor in kept))] if kept else [])
    inputs = _unique(tensor for operator in group for tensor in operator.inputs if tensor not in produced)
    return Operator(
        name=part,
        kind=part.rstrip("0123456789"),
        inputs=tuple(renamed[tensor] for tensor in inputs),
        outputs=(*(renamed[tensor] for tensor in outs), *inside),
        saved=(*(renamed[tensor] for tensor in saved if tensor in renamed), *inside),
        forward=tuple(kernel for operator in group for kernel in operator.forward),
        backward=tuple(kernel for operator in reversed(group) for kernel in operator.backward),
        forward_workspace_bytes=_find_forward_workspace_bytes(group, {*kept, *outs}),
        backward_workspace_bytes=_find_backward_workspace_bytes(group, set(outs), inputs),
        num_parameters=sum(operator.num_parameters for operator in group),
    )


def _unique(tensors: Iterable[Tensor]) -> tuple[Tensor, ...]:
    """Return the tensors without repetitions, in order of their first."""
    return tuple(dict.fromkeys(tensors))


def _find_last_readers(group: Sequence[Operator]) -> dict[Tensor, int]:
    """Return the index of the last operator that reads a tensor in forward; its producer's if none does."""
    last: dict[Tensor, int] = {}
    for index, operator in enumerate(group):
        last.update(dict.fromkeys((*operator.outputs, *operator.inputs), index))
    return last


def _find_forward_workspace_bytes(group: Sequence[Operator], remaining: set[Tensor]) -> int:
    """Return what forward takes at its largest moment beyond the tensors that remain after it."""
    last = _find_last_readers(group)
    peak_bytes = 0
    alive: set[Tensor] = set()
    for index, operator in enumerate(group):
        alive = {tensor for tensor in alive if tensor in remaining or last[tensor] >= index} | set(operator.outputs)
        alive_bytes = sum(tensor.size_bytes for tensor in alive)
        peak_bytes = max(peak_bytes, alive_bytes + operator.forward_workspace_bytes)
    return max(0, peak_bytes - sum(tensor.size_bytes for tensor in remaining))


def _find_backward_workspace_bytes(group: Sequence[Operator], outs: set[Tensor], inputs: Sequence[Tensor]) -> int:
    """Return what backward takes at its largest moment beside saved activations and the gradients at its edges."""
    last = _find_last_readers(group)
    outer_bytes = sum(tensor.gradient_bytes for tensor in (*outs, *inputs))
    peak_bytes = 0
    alive: set[Tensor] = set(outs)
    for index in range(len(group) - 1, -1, -1):
        operator = group[index]
        alive |= {tensor for tensor in (*operator.inputs, *operator.outputs) if last[tensor] == index}
        alive_bytes = sum(tensor.gradient_bytes for tensor in alive)
        peak_bytes = max(peak_bytes, alive_bytes + operator.backward_workspace_bytes)
        alive -= set(operator.outputs)
    return max(0, peak_bytes - outer_bytes)
