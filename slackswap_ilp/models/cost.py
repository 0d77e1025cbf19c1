"""The cost model: a roofline with one efficiency per kind of limit, the same for every workload and GPU."""

from dataclasses import dataclass
from typing import Final

from slackswap_ilp.devices import Gpu

MATMUL_EFFICIENCY: Final = 0.55
"""Share of the peak rate that matrix products reach, attention's included."""

MEMORY_EFFICIENCY: Final = 0.80
"""Share of the memory bandwidth that kernels reach."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """The work of one kernel.

    Attributes
    ----------
    matmul_flops
        Floating point operations in matrix products; a multiply-add counts two. Causal attention counts in full.
    moved_bytes
        Bytes that it reads from and writes to device memory.
    """

    matmul_flops: int = 0
    moved_bytes: int = 0


def estimate_seconds(kernel: Kernel, gpu: Gpu) -> float:
    """Return how long a kernel takes: the longer of its arithmetic and its memory traffic (Williams et al. 2009).

    Arithmetic outside matrix products is free: such kernels are bound by memory. Launches are free too: at training
    sizes they hide behind the kernels before them.

    Examples
    --------
    >>> from slackswap_ilp.devices import find_gpu
    >>> f"{estimate_seconds(Kernel(matmul_flops=1716 * 10**8, moved_bytes=10**6), find_gpu('a100-40gb')):.4f}"
    '0.0010'
    """
    return max(
        kernel.matmul_flops / (gpu.matmul_flops_per_second * MATMUL_EFFICIENCY),
        kernel.moved_bytes / (gpu.memory_bytes_per_second * MEMORY_EFFICIENCY),
    )
