"""The three streams (compute, swap-out, swap-in) and the events they wait for.

Each stream works off its queue in order. An operation starts when the one before it in its stream and the events it
waits for are complete, as CUDA streams and events do it. So nothing has to be searched: taken in order of issue,
every operation finds the completion times of all it waits for already known.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from slackswap_ilp.instance import Instance
from slackswap_ilp.simulator.lives import Life
from slackswap_ilp.simulator.result import Stall, Transfer


@dataclass(slots=True)
class Streams:
    """The streams of one step, and what they did."""

    instance: Instance
    slot_seconds: Sequence[float]
    starts: list[float] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)
    transfers: list[Transfer] = field(default_factory=list)
    stalls: list[Stall] = field(default_factory=list)
    swap_out_waits: list[float] = field(default_factory=list)
    swap_in_waits: list[float] = field(default_factory=list)
    _swap_out_free: float = 0.0
    _swap_in_free: float = 0.0

    def run(self, swapped: Sequence[Life]) -> None:
        """Work off all slots and copies; `swapped` stands in order of need."""
        produced: dict[int, list[Life]] = defaultdict(list)
        released: dict[int, list[Life]] = defaultdict(list)
        fetched: dict[int, list[Life]] = defaultdict(list)
        needed: dict[int, list[Life]] = defaultdict(list)
        for life in sorted(swapped, key=lambda life: life.order):
            produced[life.producer].append(life)
        for life in swapped:
            assert life.release is not None
            assert life.fetch is not None
            assert life.need is not None
            released[life.release].append(life)
            fetched[life.fetch].append(life)
            needed[life.need].append(life)
        swap_out_done: dict[int, float] = {}
        swap_in_done: dict[int, float] = {}
        clock = 0.0
        for slot, seconds in enumerate(self.slot_seconds):
            clock = self._wait(slot, clock, released.get(slot, ()), swap_out_done, "swap-out")
            clock = self._wait(slot, clock, needed.get(slot, ()), swap_in_done, "swap-in")
            self.starts.append(clock)
            for life in fetched.get(slot, ()):
                ready = max(clock, swap_out_done[life.order])
                swap_in_done[life.order] = self._copy(life, "swap-in", slot, ready)
            clock += seconds
            self.ends.append(clock)
            for life in produced.get(slot, ()):
                swap_out_done[life.order] = self._copy(life, "swap-out", slot, clock)

    def _copy(self, life: Life, direction: Literal["swap-out", "swap-in"], slot: int, ready: float) -> float:
        """Put a copy on its engine and return when it is complete."""
        device = self.instance.device
        is_out = direction == "swap-out"
        bandwidth = device.swap_out_bytes_per_second if is_out else device.swap_in_bytes_per_second
        start = max(ready, self._swap_out_free if is_out else self._swap_in_free)
        end = start + (device.transfer_latency_seconds + life.size_bytes / bandwidth)
        if is_out or device.duplex == "half":
            self._swap_out_free = end
        if not is_out or device.duplex == "half":
            self._swap_in_free = end
        deadline = life.release if is_out else life.need
        assert deadline is not None
        self.transfers.append(Transfer(life.name, direction, life.size_bytes, slot, deadline, start, end))
        return end

    def _wait(
        self,
        slot: int,
        clock: float,
        lives: Iterable[Life],
        done: dict[int, float],
        direction: Literal["swap-out", "swap-in"],
    ) -> float:
        """Let compute wait for the copies of `lives` and return when it goes on."""
        last = max(lives, key=lambda life: done[life.order], default=None)
        if last is None or done[last.order] <= clock:
            return clock
        seconds = done[last.order] - clock
        self.stalls.append(Stall(slot, seconds, last.name, direction))
        (self.swap_out_waits if direction == "swap-out" else self.swap_in_waits).append(seconds)
        return done[last.order]
