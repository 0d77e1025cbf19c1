"""Known models by name, and `generate`, which makes an instance of one of them."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from slackswap_ilp.devices import DEFAULT_DEVICE, Gpu, find_gpu
from slackswap_ilp.errors import OptionError
from slackswap_ilp.instance import Instance
from slackswap_ilp.models.options import Attention, Granularity, TransformerOptions, check_size
from slackswap_ilp.models.transformer import build_transformer


@dataclass(frozen=True, slots=True)
class Preset:
    """A known model.

    Attributes
    ----------
    description
        What it is, for people.
    options
        Its architecture and the batch it trains on by default.
    """

    description: str
    options: TransformerOptions


_LLAMA_7B: Final = TransformerOptions(
    layers=32,
    hidden_size=4096,
    heads=32,
    feed_forward_size=11008,
    vocabulary_size=32000,
    batch=4,
    sequence=2048,
    norm="rmsnorm",
    feed_forward="gated",
    rotary=True,
    biases=False,
    tied_embeddings=False,
)

PRESETS: Final[Mapping[str, Preset]] = {
    "bert-large": Preset(
        "BERT-Large, masked language model (arXiv 1810.04805)",
        TransformerOptions(
            layers=24,
            hidden_size=1024,
            heads=16,
            vocabulary_size=30522,
            batch=32,
            sequence=512,
            norm_placement="post",
            dropout=0.1,
            masked_head=True,
            token_types=2,
            loss_bits=16,
        ),
    ),
    "gpt2-xl": Preset(
        "GPT-2 XL (Radford et al. 2019)",
        TransformerOptions(
            layers=48, hidden_size=1600, heads=25, vocabulary_size=50257, batch=8, sequence=1024, dropout=0.1
        ),
    ),
    "llama-7b": Preset("LLaMA 7B (arXiv 2302.13971)", _LLAMA_7B),
    "llama-70b": Preset(
        "Llama 2 70B, grouped-query attention (arXiv 2307.09288)",
        replace(
            _LLAMA_7B,
            layers=80,
            hidden_size=8192,
            heads=64,
            key_value_heads=8,
            feed_forward_size=28672,
            batch=1,
            sequence=4096,
        ),
    ),
}
"""All known models by name."""


def find_preset(name: str) -> Preset:
    """Return the known model of this name.

    Raises
    ------
    OptionError
        If no model has this name; the message lists those there are.
    """
    preset = PRESETS.get(name)
    if preset is None:
        raise OptionError(f"model: must be one of {', '.join(PRESETS)}, got {name!r}")
    return preset


def generate(
    model: str,
    *,
    device: str | Gpu = DEFAULT_DEVICE,
    layers: int | None = None,
    hidden_size: int | None = None,
    heads: int | None = None,
    key_value_heads: int | None = None,
    feed_forward_size: int | None = None,
    vocabulary_size: int | None = None,
    batch: int | None = None,
    sequence: int | None = None,
    attention: Attention | None = None,
    dropout: float | None = None,
    granularity: Granularity = "operator",
) -> Instance:
    """Generate the instance of one training step of a known model.

    Parameters
    ----------
    model
        Name of a preset.
    device
        Name of a known GPU, or a GPU.
    layers, hidden_size, heads, key_value_heads, feed_forward_size, vocabulary_size, batch, sequence, attention, dropout
        What to change of the preset, see `TransformerOptions`; None for nothing. With another hidden size the preset's
        feed-forward size changes in proportion, unless it is given.
    granularity
        ``"operator"``: one layer per operator; ``"block"``: one per transformer block, beside embedding and head.

    Raises
    ------
    OptionError
        If model or device is unknown or a value is not allowed.

    Examples
    --------
    >>> instance = generate("bert-large", layers=2, granularity="block")
    >>> [layer.name for layer in instance.layers]
    ['embedding', 'block0', 'block1', 'head']
    """
    preset = find_preset(model).options
    gpu = find_gpu(device) if isinstance(device, str) else device
    if feed_forward_size is None and hidden_size is not None and preset.feed_forward_size is not None:
        check_size("hidden_size", hidden_size)
        feed_forward_size = max(1, preset.feed_forward_size * hidden_size // preset.hidden_size)
    changes: dict[str, Any] = {
        "layers": layers,
        "hidden_size": hidden_size,
        "heads": heads,
        "key_value_heads": key_value_heads,
        "feed_forward_size": feed_forward_size,
        "vocabulary_size": vocabulary_size,
        "batch": batch,
        "sequence": sequence,
        "attention": attention,
        "dropout": dropout,
    }
    given = {option: value for option, value in changes.items() if value is not None}
    options = replace(preset, **given, granularity=granularity)
    return build_transformer(options, gpu, name=_make_name(model, options, gpu))


def _make_name(model: str, options: TransformerOptions, gpu: Gpu) -> str:
    """Return a name that tells an instance from those of other options: ``bert-large-32x512-layers2``."""
    preset = find_preset(model).options
    parts = [model, f"{options.batch}x{options.sequence}"]
    for field in fields(options):
        value = getattr(options, field.name)
        if field.name not in ("batch", "sequence", "granularity") and value != getattr(preset, field.name):
            parts.append(f"{field.name.replace('_', '-')}{value}")
    if options.granularity == "block":
        parts.append("blocks")
    if gpu.name != DEFAULT_DEVICE:
        parts.append(gpu.name)
    return "-".join(parts)
