"""The slots of one training step: their numbering in time and their names in files.

With n layers the compute stream runs 3n slots: forward F0 … F(n-1), then for i = n-1 … 0 the recompute slot Ri and
the backward slot Bi. A slot is numbered by its place in that order.
"""

import re
from typing import Final

SLOT_PATTERN: Final = r"^[FRB](0|[1-9][0-9]{0,8})$"
_SLOT: Final = re.compile(SLOT_PATTERN)


def num_slots(num_layers: int) -> int:
    """Return the number of slots of a step with `num_layers` layers."""
    return 3 * num_layers


def forward_slot(layer: int) -> int:
    """Return the number of slot F`layer`."""
    return layer


def recompute_slot(layer: int, num_layers: int) -> int:
    """Return the number of slot R`layer`."""
    return num_layers + 2 * (num_layers - 1 - layer)


def backward_slot(layer: int, num_layers: int) -> int:
    """Return the number of slot B`layer`."""
    return num_layers + 2 * (num_layers - 1 - layer) + 1


def slot_layer(slot: int, num_layers: int) -> int:
    """Return the layer that slot number `slot` belongs to."""
    return slot if slot < num_layers else num_layers - 1 - (slot - num_layers) // 2


def slot_name(slot: int, num_layers: int) -> str:
    """Return the name of slot number `slot`.

    Examples
    --------
    >>> [slot_name(slot, 2) for slot in range(6)]
    ['F0', 'F1', 'R1', 'B1', 'R0', 'B0']
    """
    if slot < num_layers:
        return f"F{slot}"
    return f"{'RB'[(slot - num_layers) % 2]}{slot_layer(slot, num_layers)}"


def parse_slot(name: str, num_layers: int) -> int | None:
    """Return the number of the slot called `name`, or None if a step of `num_layers` layers has no such slot.

    Examples
    --------
    >>> parse_slot("B1", 2), parse_slot("B2", 2)
    (3, None)
    """
    if not _SLOT.fullmatch(name) or int(name[1:]) >= num_layers:
        return None
    layer = int(name[1:])
    if name[0] == "F":
        return forward_slot(layer)
    return recompute_slot(layer, num_layers) if name[0] == "R" else backward_slot(layer, num_layers)
