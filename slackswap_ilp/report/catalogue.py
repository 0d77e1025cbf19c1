"""Tables of the known models and devices."""

from collections.abc import Mapping
from typing import Final

from rich.console import RenderableType

from slackswap_ilp.devices import Gpu
from slackswap_ilp.models.presets import Preset
from slackswap_ilp.report.tables import Column, fit_table
from slackswap_ilp.units import format_bytes, format_seconds

_GIGA: Final = 1e9
_TERA: Final = 1e12

_MODELS: Final[tuple[Column[tuple[str, Preset]], ...]] = (
    Column("model", lambda row: row[0], justify="left"),
    Column("layers", lambda row: str(row[1].options.layers), rank=2),
    Column("hidden\nsize", lambda row: str(row[1].options.hidden_size), rank=3),
    Column("heads", lambda row: str(row[1].options.heads), rank=4),
    Column("batch x\nsequence", lambda row: f"{row[1].options.batch} x {row[1].options.sequence}", rank=1),
    Column("attention", lambda row: row[1].options.attention, rank=6, justify="left"),
    Column("dropout", lambda row: f"{row[1].options.dropout:g}", rank=5),
    Column("description", lambda row: row[1].description, justify="left"),
)

_DEVICES: Final[tuple[Column[Gpu], ...]] = (
    Column("device", lambda gpu: gpu.name, justify="left"),
    Column("memory", lambda gpu: format_bytes(gpu.memory_bytes)),
    Column("matmul\nTFLOP/s", lambda gpu: f"{gpu.matmul_flops_per_second / _TERA:g}"),
    Column("memory\nGB/s", lambda gpu: f"{gpu.memory_bytes_per_second / _GIGA:g}", rank=1),
    Column("swap-out\nGB/s", lambda gpu: f"{gpu.swap_out_bytes_per_second / _GIGA:g}"),
    Column("swap-in\nGB/s", lambda gpu: f"{gpu.swap_in_bytes_per_second / _GIGA:g}"),
    Column("latency", lambda gpu: format_seconds(gpu.transfer_latency_seconds), rank=3),
    Column("source of the peak rates", lambda gpu: gpu.source, rank=2, justify="left"),
)


def tabulate_models(presets: Mapping[str, Preset], *, width: int) -> RenderableType:
    """Return a table of models with their defaults."""
    return fit_table(_MODELS, tuple(presets.items()), width)


def tabulate_devices(gpus: Mapping[str, Gpu], *, width: int) -> RenderableType:
    """Return a table of devices with their rates."""
    return fit_table(_DEVICES, tuple(gpus.values()), width)
