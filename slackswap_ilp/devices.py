"""Known GPUs: their memory, their speed, and their link to host memory.

Peak rates are the data sheets' figures for *dense* 16-bit matrix products with 32-bit accumulation; data sheets since
Ampere print twice that, with 2:4 sparsity, in larger type. Memory is what NVML reports as the total, which differs
from the figure on the box (https://thundergolfer.com/blog/nvidia-gpu-memory-capacity).

Link rates are what pinned copies reach in practice, per direction, not the specification's: about 12 GB/s on PCIe 3.0
x16 and 25 GB/s on PCIe 4.0 x16 (measured peaks, https://github.com/ZaidQureshi/bam/issues/54; 25.1 GB/s on an A100,
https://github.com/NVIDIA/nvbandwidth/issues/42), and on PCIe 5.0 x16 53 GB/s out of the device
(https://github.com/NVIDIA/nvbandwidth/issues/24; the rate into it is taken to be the same). Some hosts do worse when
both directions run at once (https://github.com/NVIDIA/nvbandwidth/issues/53): plan for such a host with a device of
your own.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from slackswap_ilp.errors import OptionError
from slackswap_ilp.instance import Device
from slackswap_ilp.units import GIB, MIB

DEFAULT_DEVICE: Final = "a100-40gb"
"""The GPU that models are generated for unless another is named."""

TRANSFER_LATENCY_SECONDS: Final = 10e-6
"""What an asynchronous pinned copy takes beside its bytes: launch, engine start and event, in round numbers."""

_AMPERE_SHEET: Final = "NVIDIA A100 Tensor Core GPU data sheet"
_HOPPER_SHEET: Final = "NVIDIA H100 Tensor Core GPU data sheet, sparse figures halved"
_VOLTA_SHEET: Final = "NVIDIA V100 Tensor Core GPU data sheet, SXM2"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU as the cost model and the link model see it.

    Attributes
    ----------
    name
        Short name, as `find_gpu` knows it.
    memory_bytes
        Device memory in total.
    matmul_flops_per_second
        Peak of dense 16-bit matrix products with 32-bit accumulation.
    memory_bytes_per_second
        Peak bandwidth of device memory.
    swap_out_bytes_per_second, swap_in_bytes_per_second
        What pinned copies to and from host memory reach.
    transfer_latency_seconds
        What every single transfer takes beside its bytes.
    source
        Where the peak rates come from.

    Raises
    ------
    OptionError
        If a size or a rate is not positive, or the latency is negative.
    """

    name: str
    memory_bytes: int
    matmul_flops_per_second: float
    memory_bytes_per_second: float
    swap_out_bytes_per_second: float
    swap_in_bytes_per_second: float
    transfer_latency_seconds: float = TRANSFER_LATENCY_SECONDS
    source: str = ""

    def __post_init__(self) -> None:
        """Refuse figures that no GPU has."""
        _check_positive("memory_bytes", self.memory_bytes)
        _check_positive("matmul_flops_per_second", self.matmul_flops_per_second)
        _check_positive("memory_bytes_per_second", self.memory_bytes_per_second)
        _check_positive("swap_out_bytes_per_second", self.swap_out_bytes_per_second)
        _check_positive("swap_in_bytes_per_second", self.swap_in_bytes_per_second)
        if not 0 <= self.transfer_latency_seconds < math.inf:
            raise OptionError(
                f"transfer_latency_seconds: must be finite and not negative, got {self.transfer_latency_seconds!r}"
            )


def _check_positive(field: str, value: float) -> None:
    """Refuse what is not a positive, finite number."""
    if not 0 < value < math.inf:
        raise OptionError(f"{field}: must be positive and finite, got {value!r}")


@dataclass(frozen=True, slots=True)
class _Link:
    """A host link as measured, see the module's docstring."""

    out_bytes_per_second: float
    in_bytes_per_second: float


_PCIE3: Final = _Link(12e9, 12e9)
_PCIE4: Final = _Link(25e9, 25e9)
_PCIE5: Final = _Link(53e9, 53e9)


def _make_gpu(name: str, memory_bytes: int, tera_flops: float, giga_bytes: float, link: _Link, source: str) -> Gpu:
    """Make a row of the table from the units that data sheets use (TFLOP/s, GB/s)."""
    return Gpu(
        name=name,
        memory_bytes=memory_bytes,
        matmul_flops_per_second=tera_flops * 1e12,
        memory_bytes_per_second=giga_bytes * 1e9,
        swap_out_bytes_per_second=link.out_bytes_per_second,
        swap_in_bytes_per_second=link.in_bytes_per_second,
        source=source,
    )


_ROWS: Final = (
    _make_gpu("a100-40gb", 40 * GIB, 312, 1555, _PCIE4, _AMPERE_SHEET),
    _make_gpu("a100-80gb", 80 * GIB, 312, 2039, _PCIE4, f"{_AMPERE_SHEET}, SXM4"),
    _make_gpu("h100-pcie", 81559 * MIB, 756, 2000, _PCIE5, f"{_HOPPER_SHEET}, PCIe"),
    _make_gpu("h100-sxm", 81559 * MIB, 989, 3350, _PCIE5, f"{_HOPPER_SHEET}, SXM5"),
    _make_gpu("h200", 143771 * MIB, 989, 4800, _PCIE5, "NVIDIA H200 data sheet, SXM, sparse figures halved"),
    _make_gpu("l4", 23034 * MIB, 121, 300, _PCIE4, "NVIDIA L4 data sheet, sparse figures halved"),
    _make_gpu("l40s", 46068 * MIB, 362, 864, _PCIE4, "NVIDIA L40S data sheet, without sparsity"),
    _make_gpu("rtx-3090", 24576 * MIB, 71, 936, _PCIE4, "NVIDIA Ampere GA102 whitepaper, FP32 accumulate"),
    _make_gpu("rtx-4090", 24564 * MIB, 165, 1008, _PCIE4, "NVIDIA Ada whitepaper, FP32 accumulate"),
    _make_gpu("v100-16gb", 16 * GIB, 125, 900, _PCIE3, _VOLTA_SHEET),
    _make_gpu("v100-32gb", 32 * GIB, 125, 900, _PCIE3, _VOLTA_SHEET),
)

GPUS: Final[Mapping[str, Gpu]] = {gpu.name: gpu for gpu in _ROWS}
"""All known GPUs by name."""


def find_gpu(name: str) -> Gpu:
    """Return the known GPU of this name.

    Raises
    ------
    OptionError
        If no GPU has this name; the message lists those there are.

    Examples
    --------
    >>> find_gpu("a100-40gb").memory_bytes_per_second
    1555000000000.0
    """
    gpu = GPUS.get(name)
    if gpu is None:
        raise OptionError(f"device: must be one of {', '.join(GPUS)}, got {name!r}")
    return gpu


def make_device(gpu: Gpu, *, host_memory_bytes: int | None = None, duplex: Literal["full", "half"] = "full") -> Device:
    """Return the device of an instance for a GPU, its host's memory, and how its link shares directions."""
    return Device(
        name=gpu.name,
        memory_bytes=gpu.memory_bytes,
        host_memory_bytes=host_memory_bytes,
        swap_out_bytes_per_second=gpu.swap_out_bytes_per_second,
        swap_in_bytes_per_second=gpu.swap_in_bytes_per_second,
        transfer_latency_seconds=gpu.transfer_latency_seconds,
        duplex=duplex,
    )
