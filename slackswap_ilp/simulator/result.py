"""What a replay returns: times, copies, waits and the memory ledger of one training step."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Transfer:
    """One copy over the link.

    Attributes
    ----------
    slot
        The slot that lets it start: the producing slot of a swap-out, the fetch slot of a swap-in.
    deadline_slot
        The slot that waits for it: the release slot of a swap-out, the need slot of a swap-in.
    """

    activation: str
    direction: Literal["swap-out", "swap-in"]
    size_bytes: int
    slot: int
    deadline_slot: int
    start_seconds: float
    end_seconds: float


@dataclass(frozen=True, slots=True)
class Stall:
    """Time that compute waits before a slot, and the copy it waits for last."""

    slot: int
    seconds: float
    activation: str
    direction: Literal["swap-out", "swap-in"]


@dataclass(frozen=True, slots=True)
class Simulation:
    """What a plan costs, slot by slot; sequences over slots have one value per slot, in order of time.

    Attributes
    ----------
    slot_start_seconds, slot_end_seconds
        When compute starts and ends each slot; waiting is before the start.
    slot_bytes
        The memory ledger.
    transfers
        All copies, in order of issue.
    stalls
        All waits, in order of time. `swap_out_stall_seconds` and `swap_in_stall_seconds` split them by cause.
    reruns
        Pairs (layer, slot) of the layers that run again.
    step_seconds
        The end of the last slot = ideal + recompute + stall.
    peak_bytes, peak_slot
        The largest ledger value, and the first slot that reaches it.
    swapped_bytes
        Size of all swapped activations: the host memory the plan takes.
    """

    num_layers: int
    host_memory_bytes: int | None
    slot_start_seconds: tuple[float, ...]
    slot_end_seconds: tuple[float, ...]
    slot_bytes: tuple[int, ...]
    transfers: tuple[Transfer, ...]
    stalls: tuple[Stall, ...]
    reruns: tuple[tuple[int, int], ...]
    step_seconds: float
    ideal_seconds: float
    recompute_seconds: float
    swap_out_stall_seconds: float
    swap_in_stall_seconds: float
    peak_bytes: int
    peak_slot: int
    swapped_bytes: int

    @property
    def stall_seconds(self) -> float:
        """All time that compute waits for copies."""
        return self.swap_out_stall_seconds + self.swap_in_stall_seconds

    @property
    def throughput_ratio(self) -> float:
        """Ideal step time / step time; 1 for a step that takes no time at all."""
        return self.ideal_seconds / self.step_seconds if self.step_seconds > 0 else 1.0

    def fits(self, budget_bytes: int) -> bool:
        """Whether the peak is within `budget_bytes` and the swapped bytes within the host's memory."""
        return self.peak_bytes <= budget_bytes and self.fits_host

    @property
    def fits_host(self) -> bool:
        """Whether the swapped bytes are within the host's memory."""
        return self.host_memory_bytes is None or self.swapped_bytes <= self.host_memory_bytes
