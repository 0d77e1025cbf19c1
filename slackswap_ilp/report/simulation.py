"""A replay: its summary as one JSON object, and as text that names the worst stalls and the peak."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from pydantic import BaseModel, ConfigDict
from rich.console import RenderableType
from rich.text import Text

from slackswap_ilp.instance import Instance
from slackswap_ilp.pipeline import count_actions
from slackswap_ilp.plan import Plan
from slackswap_ilp.report.quantities import show_percent
from slackswap_ilp.report.tables import Line, list_lines, show_name
from slackswap_ilp.simulator import Simulation, Stall
from slackswap_ilp.slots import slot_layer, slot_name
from slackswap_ilp.units import format_bytes, format_seconds

_MAX_SHOWN_STALLS: Final = 3


class SimulationSummary(BaseModel):
    """What a plan costs and whether it fits, in one JSON object.

    Attributes
    ----------
    fits
        Whether the peak is within the budget and the swapped bytes within the host's memory.
    peak_slot, peak_layer
        The first slot that reaches the peak, such as ``"B7"``, and the name of its layer.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    instance: str
    budget_bytes: int
    fits: bool
    peak_bytes: int
    peak_slot: str
    peak_layer: str
    ideal_seconds: float
    step_seconds: float
    throughput_ratio: float
    recompute_seconds: float
    stall_seconds: float
    swap_out_stall_seconds: float
    swap_in_stall_seconds: float
    swapped_bytes: int
    num_kept: int
    num_swapped: int
    num_recomputed: int


@dataclass(frozen=True, slots=True)
class Replay:
    """A plan for an instance, what the simulator says of it, and the budget it is held against."""

    instance: Instance
    plan: Plan
    simulation: Simulation
    budget_bytes: int

    def summarize(self) -> SimulationSummary:
        """Return the summary."""
        simulation = self.simulation
        counts = count_actions(self.instance, self.plan)
        return SimulationSummary(
            instance=self.instance.name,
            budget_bytes=self.budget_bytes,
            fits=simulation.fits(self.budget_bytes),
            peak_bytes=simulation.peak_bytes,
            peak_slot=self._name_slot(simulation.peak_slot),
            peak_layer=self._name_layer(simulation.peak_slot),
            ideal_seconds=simulation.ideal_seconds,
            step_seconds=simulation.step_seconds,
            throughput_ratio=simulation.throughput_ratio,
            recompute_seconds=simulation.recompute_seconds,
            stall_seconds=simulation.stall_seconds,
            swap_out_stall_seconds=simulation.swap_out_stall_seconds,
            swap_in_stall_seconds=simulation.swap_in_stall_seconds,
            swapped_bytes=simulation.swapped_bytes,
            num_kept=counts["num_kept"],
            num_swapped=counts["num_swapped"],
            num_recomputed=counts["num_recomputed"],
        )

    def describe(self) -> RenderableType:
        """Return the summary for people."""
        return list_lines(self._describe_lines())

    def _describe_lines(self) -> Iterator[Line]:
        summary = self.summarize()
        yield Line("instance", show_name(summary.instance))
        yield Line("fits", self._describe_fit())
        yield Line(
            "memory",
            f"peak {format_bytes(summary.peak_bytes)} of {format_bytes(summary.budget_bytes)} budget"
            f" ({show_percent(summary.peak_bytes / summary.budget_bytes)}),"
            f" at {summary.peak_slot} ({show_name(summary.peak_layer)})",
        )
        host = self.simulation.host_memory_bytes
        yield Line(
            "host memory",
            f"{format_bytes(summary.swapped_bytes)} of {'any amount' if host is None else format_bytes(host)}",
        )
        yield Line("step", f"{format_seconds(summary.step_seconds)}, ideal {format_seconds(summary.ideal_seconds)}")
        yield Line("throughput", f"{show_percent(summary.throughput_ratio)} of ideal")
        yield Line("recompute", f"{format_seconds(summary.recompute_seconds)}, {len(self.simulation.reruns)} layers")
        yield Line(
            "stalls",
            f"{format_seconds(summary.stall_seconds)}: {format_seconds(summary.swap_out_stall_seconds)} for swap-outs,"
            f" {format_seconds(summary.swap_in_stall_seconds)} for swap-ins",
        )
        worst = sorted(self.simulation.stalls, key=lambda stall: (-stall.seconds, stall.slot))[:_MAX_SHOWN_STALLS]
        for stall in worst:
            yield Line("", self._describe_stall(stall))
        yield Line(
            "activations",
            f"{summary.num_kept} kept, {summary.num_swapped} swapped ({format_bytes(summary.swapped_bytes)}),"
            f" {summary.num_recomputed} recomputed",
        )

    def _describe_fit(self) -> Text:
        """Say whether the plan fits, and by how much it does not."""
        simulation = self.simulation
        if simulation.fits(self.budget_bytes):
            return Text("yes", style="green")
        reasons = []
        excess = simulation.peak_bytes - self.budget_bytes
        if excess > 0:
            reasons.append(f"the peak is {excess} bytes ({format_bytes(excess)}) above the budget")
        if not simulation.fits_host and simulation.host_memory_bytes is not None:
            lacking = simulation.swapped_bytes - simulation.host_memory_bytes
            reasons.append(f"host memory lacks {lacking} bytes ({format_bytes(lacking)})")
        return Text(f"no: {'; '.join(reasons)}", style="red")

    def _describe_stall(self, stall: Stall) -> str:
        """Say where compute waits, how long, and for what."""
        where = f"{self._name_slot(stall.slot)} ({show_name(self._name_layer(stall.slot))})"
        what = f"the {stall.direction} of {show_name(stall.activation)}"
        return f"{format_seconds(stall.seconds)} before {where}, for {what}"

    def _name_slot(self, slot: int) -> str:
        return slot_name(slot, self.simulation.num_layers)

    def _name_layer(self, slot: int) -> str:
        return self.instance.layers[slot_layer(slot, self.simulation.num_layers)].name
