"""Replays one training step under a plan."""

import math

from slackswap_ilp.instance import Instance
from slackswap_ilp.plan import Plan
from slackswap_ilp.simulator.lives import Lives, refuse
from slackswap_ilp.simulator.result import Simulation
from slackswap_ilp.simulator.streams import Streams
from slackswap_ilp.slots import backward_slot, num_slots
from slackswap_ilp.units import SECONDS_TOLERANCE


def simulate(instance: Instance, plan: Plan) -> Simulation:
    """Replay one training step under a plan.

    Raises
    ------
    PlanError
        If the plan is for another instance, leaves out or invents activations, or breaks a rule of the execution
        semantics; the message lists every finding.

    Examples
    --------
    >>> from slackswap_ilp.instance import Activation, Device, Instance, Layer
    >>> from slackswap_ilp.plan import KEEP, Plan
    >>> device = Device(name="toy", memory_bytes=100, swap_out_bytes_per_second=1.0, swap_in_bytes_per_second=1.0)
    >>> layer = Layer(
    ...     name="matmul", forward_seconds=1.0, backward_seconds=2.0, saved=("y",),
    ...     outputs=(Activation(name="y", size_bytes=8),),
    ... )
    >>> instance = Instance(name="one layer", device=device, layers=(layer,))
    >>> simulation = simulate(instance, Plan(instance="one layer", activations={"y": KEEP}))
    >>> simulation.step_seconds, simulation.peak_bytes
    (3.0, 8)
    """
    lives = Lives(instance, plan)
    lives.derive_closure()
    refuse(lives.find_violations())
    slot_bytes = lives.make_ledger()
    layers = instance.layers
    streams = Streams(instance, _find_slot_seconds(instance, lives.reruns))
    streams.run(lives.swap_in_order())
    peak_bytes = max(slot_bytes)
    simulation = Simulation(
        num_layers=len(layers),
        host_memory_bytes=instance.device.host_memory_bytes,
        slot_start_seconds=tuple(streams.starts),
        slot_end_seconds=tuple(streams.ends),
        slot_bytes=tuple(slot_bytes),
        transfers=tuple(streams.transfers),
        stalls=tuple(streams.stalls),
        reruns=tuple(sorted(lives.reruns.items())),
        step_seconds=streams.ends[-1],
        ideal_seconds=math.fsum(
            seconds for layer in layers for seconds in (layer.forward_seconds, layer.backward_seconds)
        ),
        recompute_seconds=math.fsum(layers[index].forward_seconds for index in lives.reruns),
        swap_out_stall_seconds=math.fsum(streams.swap_out_waits),
        swap_in_stall_seconds=math.fsum(streams.swap_in_waits),
        peak_bytes=peak_bytes,
        peak_slot=slot_bytes.index(peak_bytes),
        swapped_bytes=sum(life.size_bytes for life in lives.all if life.action == "swap"),
    )
    parts = simulation.ideal_seconds + simulation.recompute_seconds + simulation.stall_seconds
    assert math.isclose(simulation.step_seconds, parts, rel_tol=SECONDS_TOLERANCE)
    return simulation


def _find_slot_seconds(instance: Instance, reruns: dict[int, int]) -> list[float]:
    """Return the compute time of every slot."""
    n = len(instance.layers)
    seconds = [0.0] * num_slots(n)
    for index, layer in enumerate(instance.layers):
        seconds[index] = layer.forward_seconds
        seconds[backward_slot(index, n)] = layer.backward_seconds
    for index, slot in sorted(reruns.items()):
        seconds[slot] += instance.layers[index].forward_seconds
    return seconds
