"""A training step as a list of operators, independent of the GPU, and its translation into an instance's layers."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from slackswap_ilp.devices import Gpu
from slackswap_ilp.errors import OptionError
from slackswap_ilp.instance import Activation, Layer
from slackswap_ilp.models.cost import Kernel, estimate_seconds
from slackswap_ilp.units import MAX_BYTES

VALUE_BYTES: Final = 2
"""Bytes of a 16-bit value."""

FLOAT_BYTES: Final = 4
"""Bytes of a 32-bit value."""

_MAX_SECONDS: Final = 1e9


@dataclass(frozen=True, slots=True)
class Tensor:
    """A storage that an operator writes.

    Attributes
    ----------
    name
        Name of the activation.
    size_bytes, gradient_bytes
        Size of it and of its gradient.
    """

    name: str
    size_bytes: int
    gradient_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """One step of forward and its step of backward.

    Attributes
    ----------
    name
        Dotted name; what stands before the first dot is the part of the model it belongs to.
    kind
        Its role, for people.
    inputs, outputs, saved
        What its forward reads and writes, and what its backward reads.
    forward, backward
        The kernels it runs.
    forward_workspace_bytes, backward_workspace_bytes
        Memory it takes while it runs.
    num_parameters
        Trained parameters that it alone holds.
    """

    name: str
    kind: str
    inputs: tuple[Tensor, ...] = ()
    outputs: tuple[Tensor, ...] = ()
    saved: tuple[Tensor, ...] = ()
    forward: tuple[Kernel, ...] = ()
    backward: tuple[Kernel, ...] = ()
    forward_workspace_bytes: int = 0
    backward_workspace_bytes: int = 0
    num_parameters: int = 0

    @property
    def part(self) -> str:
        """The part of the model it belongs to."""
        return self.name.partition(".")[0]


def sum_gradients(operators: Sequence[Operator]) -> list[Operator]:
    """Return the operators with the work of adding up gradients.

    The last reader of a tensor writes its gradient. Every earlier reader writes its share beside it (workspace), and a
    kernel adds the two: it reads both and writes one.
    """
    last_readers = {tensor: index for index, operator in enumerate(operators) for tensor in operator.inputs}
    result = []
    for index, operator in enumerate(operators):
        shares = tuple(tensor.gradient_bytes for tensor in operator.inputs if last_readers[tensor] > index)
        kernels = tuple(Kernel(moved_bytes=3 * share) for share in shares if share)
        workspace_bytes = operator.backward_workspace_bytes + sum(shares)
        result.append(replace(operator, backward=operator.backward + kernels, backward_workspace_bytes=workspace_bytes))
    return result


def make_layers(operators: Iterable[Operator], gpu: Gpu) -> tuple[Layer, ...]:
    """Return the layers of an instance.

    Raises
    ------
    OptionError
        If sizes or times are beyond what an instance can hold.
    """
    operators = tuple(operators)
    _check_sizes(operators)
    return tuple(_make_layer(operator, gpu) for operator in operators)


def _check_sizes(operators: Sequence[Operator]) -> None:
    """Refuse a model whose activations do not fit 64-bit sums."""
    total_bytes = sum(tensor.size_bytes + tensor.gradient_bytes for item in operators for tensor in item.outputs)
    workspace_bytes = max(max(item.forward_workspace_bytes, item.backward_workspace_bytes) for item in operators)
    if max(total_bytes, workspace_bytes) > MAX_BYTES:
        raise OptionError(
            f"batch, sequence, hidden_size: activations must add up to at most {MAX_BYTES} bytes,"
            f" got {max(total_bytes, workspace_bytes)}"
        )


def _make_layer(operator: Operator, gpu: Gpu) -> Layer:
    """Return one layer, with times in place of kernels."""
    forward_seconds = sum((estimate_seconds(kernel, gpu) for kernel in operator.forward), start=0.0)
    backward_seconds = sum((estimate_seconds(kernel, gpu) for kernel in operator.backward), start=0.0)
    if max(forward_seconds, backward_seconds) > _MAX_SECONDS:
        raise OptionError(
            f"batch, sequence, hidden_size: a layer must take at most {_MAX_SECONDS:.6g} seconds,"
            f" {operator.name} would take {max(forward_seconds, backward_seconds):.6g}"
        )
    return Layer(
        name=operator.name,
        kind=operator.kind,
        forward_seconds=forward_seconds,
        backward_seconds=backward_seconds,
        inputs=tuple(tensor.name for tensor in operator.inputs),
        outputs=tuple(
            Activation(name=tensor.name, size_bytes=tensor.size_bytes, gradient_bytes=tensor.gradient_bytes)
            for tensor in operator.outputs
        ),
        saved=tuple(tensor.name for tensor in operator.saved),
        forward_workspace_bytes=operator.forward_workspace_bytes,
        backward_workspace_bytes=operator.backward_workspace_bytes,
    )
