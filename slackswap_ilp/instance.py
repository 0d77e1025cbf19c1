"""The instance: a layer graph, the device that runs it, and a memory budget. See docs/formats.md."""

import functools
import hashlib
import json
import math
from collections.abc import Iterator
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator
from pydantic_core import PydanticCustomError

from slackswap_ilp.units import MAX_BYTES, Bytes, BytesPerSecond, Name, PositiveBytes, Seconds

VIOLATIONS = "violations"
"""Type of the pydantic error that carries what is inconsistent, one text per finding, in its context."""


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Device(_Record):
    """A GPU, its memory and its link to host memory.

    Attributes
    ----------
    memory_bytes
        Device memory in total.
    host_memory_bytes
        Host memory that swapped activations may take, None for as much as needed.
    swap_out_bytes_per_second, swap_in_bytes_per_second
        Bandwidth from device to host and from host to device.
    transfer_latency_seconds
        What every single transfer takes beside its bytes.
    duplex
        ``"full"``: both directions run at once at their full bandwidth; ``"half"``: they share one engine.
    """

    name: Name
    memory_bytes: PositiveBytes
    host_memory_bytes: Bytes | None = None
    swap_out_bytes_per_second: BytesPerSecond
    swap_in_bytes_per_second: BytesPerSecond
    transfer_latency_seconds: Seconds = 0.0
    duplex: Literal["full", "half"] = "full"


class Activation(_Record):
    """A storage that a layer's forward writes; tensors that share one storage are one activation.

    Attributes
    ----------
    size_bytes
        Its size.
    gradient_bytes
        Size of its gradient, from the first backward that writes it to its producer's backward.
    swappable
        Whether it may be copied to host memory.
    """

    name: Name
    size_bytes: PositiveBytes
    gradient_bytes: Bytes = 0
    swappable: bool = True


class Layer(_Record):
    """One step of forward and the matching step of backward: a kernel, a module, or a whole block.

    Attributes
    ----------
    kind
        What it is, for people ("attention", "norm"); it has no effect.
    inputs
        Activations its forward reads, each the output of an earlier layer.
    outputs
        Activations its forward writes.
    saved
        Activations its backward reads, each the output of this or an earlier layer.
    forward_workspace_bytes, backward_workspace_bytes
        Memory it takes while it runs, beside activations and gradients.
    recomputable
        Whether its forward may run again in backward.
    """

    name: Name
    kind: str = ""
    forward_seconds: Seconds
    backward_seconds: Seconds
    inputs: tuple[Name, ...] = ()
    outputs: tuple[Activation, ...] = ()
    saved: tuple[Name, ...] = ()
    forward_workspace_bytes: Bytes = 0
    backward_workspace_bytes: Bytes = 0
    recomputable: bool = True


class Instance(_Record):
    """One training step to plan: layers in execution order, a device and a budget.

    Attributes
    ----------
    provenance
        Where the numbers come from; free JSON, no effect.
    static_bytes
        Weights, their gradients and optimizer state: always on the device, not part of the budget.
    budget_bytes
        Memory for everything else; None for what `static_bytes` leaves of the device.

    Raises
    ------
    pydantic.ValidationError
        If a field is off or the graph is inconsistent: no layers, duplicate or unknown names, a layer that reads
        what is produced later, sizes that add up to more than 2**60 bytes.

    Notes
    -----
    Make changed copies with `replace`, not with ``model_copy``, which does not validate.
    """

    format: Literal["slackswap-instance"] = "slackswap-instance"
    version: Literal[1] = 1
    name: Name
    description: str = ""
    provenance: dict[str, JsonValue] = Field(default_factory=dict)
    device: Device
    static_bytes: Bytes = 0
    budget_bytes: PositiveBytes | None = None
    layers: tuple[Layer, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _check_graph(self) -> Self:
        violations = tuple(find_violations(self))
        if violations:
            raise PydanticCustomError(VIOLATIONS, "{text}", {"text": "; ".join(violations), "items": violations})
        return self

    def replace(self, **changes: object) -> Self:
        """Return a validated copy with changed fields."""
        fields = {name: getattr(self, name) for name in type(self).model_fields}
        return type(self).model_validate({**fields, **changes})

    @functools.cached_property
    def activations(self) -> tuple[Activation, ...]:
        """All activations in order of production."""
        return tuple(output for layer in self.layers for output in layer.outputs)

    @functools.cached_property
    def digest(self) -> str:
        """A fingerprint, ``"sha256:..."``, of all that has an effect (names included; description, provenance not)."""
        content = self.model_dump(mode="json", exclude={"description", "provenance"})
        text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"

    @property
    def available_bytes(self) -> int:
        """The budget that applies by default: `budget_bytes`, or what `static_bytes` leaves of the device."""
        if self.budget_bytes is not None:
            return self.budget_bytes
        return self.device.memory_bytes - self.static_bytes


def find_violations(instance: Instance) -> Iterator[str]:
    """Yield, in words, every inconsistency of the graph that the types alone do not rule out."""
    layer_names: dict[str, int] = {}
    producers: dict[str, int] = {
        output.name: index for index, layer in reversed(tuple(enumerate(instance.layers))) for output in layer.outputs
    }
    seen_outputs: set[str] = set()
    total_bytes = 0
    for index, layer in enumerate(instance.layers):
        where = f"layers[{index}] ({layer.name!r})"
        if layer.name in layer_names:
            yield f"{where}.name: must be unique, layers[{layer_names[layer.name]}] has the same name"
        layer_names.setdefault(layer.name, index)
        for position, output in enumerate(layer.outputs):
            total_bytes += output.size_bytes + output.gradient_bytes
            if output.name in seen_outputs:
                yield (
                    f"{where}.outputs[{position}].name: must be unique, {output.name!r} is already an output of"
                    f" layers[{producers[output.name]}]"
                )
            seen_outputs.add(output.name)
        yield from _find_bad_references(where, "inputs", layer.inputs, producers, index - 1, index)
        yield from _find_bad_references(where, "saved", layer.saved, producers, index, index)
    if total_bytes > MAX_BYTES:
        yield f"layers: sizes and gradients must add up to at most {MAX_BYTES} bytes, got {total_bytes}"
    yield from _find_non_finite("provenance", instance.provenance)


def _find_non_finite(where: str, value: JsonValue) -> Iterator[str]:
    """Yield every number in free JSON that JSON cannot spell."""
    if isinstance(value, float) and not math.isfinite(value):
        yield f"{where}: must be a finite number, got {json.dumps(value)}"
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from _find_non_finite(f"{where}.{name}", item)
    elif isinstance(value, list):
        for position, item in enumerate(value):
            yield from _find_non_finite(f"{where}[{position}]", item)


def _find_bad_references(
    where: str, field: str, names: tuple[str, ...], producers: dict[str, int], last_allowed: int, reader: int
) -> Iterator[str]:
    """Yield every name in `names` that is unknown, doubled, or produced after layer `last_allowed`."""
    seen: set[str] = set()
    for position, name in enumerate(names):
        path = f"{where}.{field}[{position}]"
        producer = producers.get(name)
        if producer is None:
            yield f"{path}: must name an output of this instance, got unknown activation {name!r}"
        elif producer > last_allowed:
            allowed = "an earlier layer" if last_allowed < reader else "this or an earlier layer"
            yield f"{path}: must be produced by {allowed}, {name!r} is an output of layers[{producer}]"
        elif name in seen:
            yield f"{path}: must be listed once, got {name!r} again"
        seen.add(name)
