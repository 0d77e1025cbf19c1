"""The table of GPUs."""

import pytest

from slackswap_ilp.devices import GPUS, Gpu, find_gpu, make_device
from slackswap_ilp.errors import OptionError


def make_gpu(
    *, memory_bytes: int = 1000, matmul_flops_per_second: float = 1e12, transfer_latency_seconds: float = 0.0
) -> Gpu:
    return Gpu(
        name="mine",
        memory_bytes=memory_bytes,
        matmul_flops_per_second=matmul_flops_per_second,
        memory_bytes_per_second=1e11,
        swap_out_bytes_per_second=1e10,
        swap_in_bytes_per_second=1e10,
        transfer_latency_seconds=transfer_latency_seconds,
    )


@pytest.mark.parametrize("name", GPUS)
def test_find_gpu_returns_the_gpu_of_the_name(name: str) -> None:
    """Every name of the table leads to a GPU of that name, with a source for its figures."""
    gpu = find_gpu(name)
    assert gpu.name == name
    assert gpu.source


def test_find_gpu_names_the_known_ones() -> None:
    """An unknown GPU is refused with its name and the names there are."""
    with pytest.raises(OptionError, match=r"device: must be one of a100-40gb, .*v100-32gb, got 'tpu'"):
        find_gpu("tpu")


@pytest.mark.parametrize("name", GPUS)
def test_table_stays_within_physical_limits(name: str) -> None:
    """No rate is a sparse, a both-directions or a specification figure: all lie in what dense and measured means."""
    gpu = find_gpu(name)
    assert 50e12 < gpu.matmul_flops_per_second < 1000e12
    assert 300e9 <= gpu.memory_bytes_per_second <= 4800e9
    # The specifications say 16, 32 and 64 GB/s per direction; measured peaks stay a fifth to a tenth below.
    assert max(gpu.swap_out_bytes_per_second, gpu.swap_in_bytes_per_second) <= 0.9 * 64e9
    assert min(gpu.swap_out_bytes_per_second, gpu.swap_in_bytes_per_second) >= 12e9


def test_table_orders_generations_by_ridge() -> None:
    """The published ratio of arithmetic to bandwidth: 312 / 1.555 = 200.6 FLOP per byte on an A100 with 40 GB."""
    gpu = find_gpu("a100-40gb")
    assert gpu.matmul_flops_per_second / gpu.memory_bytes_per_second == pytest.approx(200.6, abs=0.1)
    assert gpu.memory_bytes == 40 * 2**30


def test_make_device_takes_over_memory_and_link() -> None:
    """The device of an instance has the GPU's memory, link rates and latency, and the host that is stated."""
    gpu = find_gpu("h100-sxm")
    device = make_device(gpu, host_memory_bytes=10**12, duplex="half")
    assert device.name == "h100-sxm"
    assert device.memory_bytes == gpu.memory_bytes
    assert device.swap_out_bytes_per_second == 53e9
    assert device.swap_in_bytes_per_second == 53e9
    assert device.transfer_latency_seconds == gpu.transfer_latency_seconds
    assert device.host_memory_bytes == 10**12
    assert device.duplex == "half"


def test_make_device_assumes_ample_host_and_full_duplex() -> None:
    """Unless stated otherwise the host has as much memory as needed and both directions run at once."""
    device = make_device(find_gpu("l4"))
    assert device.host_memory_bytes is None
    assert device.duplex == "full"


def test_gpu_refuses_impossible_figures() -> None:
    """A GPU of one's own with a figure that is zero, infinite or negative is refused by the figure's name."""
    with pytest.raises(OptionError, match="memory_bytes: must be positive and finite, got 0"):
        make_gpu(memory_bytes=0)
    with pytest.raises(OptionError, match="matmul_flops_per_second: must be positive and finite, got inf"):
        make_gpu(matmul_flops_per_second=float("inf"))
    with pytest.raises(OptionError, match=r"transfer_latency_seconds: must be finite and not negative, got -1\.0"):
        make_gpu(transfer_latency_seconds=-1.0)
