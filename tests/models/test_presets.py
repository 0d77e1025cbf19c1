"""The known models, against what was counted and captured of the real ones."""

from dataclasses import replace
from typing import Any

import pytest

from slackswap_ilp.devices import find_gpu
from slackswap_ilp.errors import OptionError
from slackswap_ilp.files import format_instance, parse_instance
from slackswap_ilp.instance import Instance
from slackswap_ilp.models.presets import PRESETS, generate

MIB = 2**20


def find_saved_bytes(instance: Instance, part: str = "") -> int:
    """Add up what is saved for backward and produced by layers whose name starts with `part`."""
    saved = {name for layer in instance.layers for name in layer.saved}
    layers = [layer for layer in instance.layers if layer.name.startswith(part)]
    return sum(output.size_bytes for layer in layers for output in layer.outputs if output.name in saved)


def find_ideal_seconds(instance: Instance) -> float:
    return sum(layer.forward_seconds + layer.backward_seconds for layer in instance.layers)


@pytest.mark.parametrize("model", PRESETS)
@pytest.mark.parametrize("granularity", ["operator", "block"])
def test_presets_build_and_survive_a_file(model: str, granularity: Any) -> None:
    """Every preset builds at both granularities, reads back equal from its file, and leaves the budget open."""
    instance = generate(model, granularity=granularity)
    assert parse_instance(format_instance(instance)) == instance
    assert instance.budget_bytes is None
    assert instance.device.name == "a100-40gb"


@pytest.mark.parametrize(
    ("model", "parameters"),
    [
        ("bert-large", 335_174_458),
        ("gpt2-xl", 1_557_611_200),
        ("llama-7b", 6_738_415_616),
        ("llama-70b", 68_976_648_192),
    ],
)
def test_presets_have_the_parameters_of_the_real_model(model: str, parameters: int) -> None:
    """Parameters are those of the checkpoints in Hugging Face transformers, to the last one."""
    assert generate(model).provenance["num_parameters"] == parameters


@pytest.mark.parametrize(
    ("model", "batch", "forward", "backward"),
    [
        ("bert-large", 32, 11.78e12, 23.97e12),
        ("gpt2-xl", 4, 14.03e12, 28.70e12),
        ("llama-7b", 4, 117.05e12, 238.49e12),
    ],
)
def test_presets_have_the_flops_of_the_real_model(model: str, batch: int, forward: float, backward: float) -> None:
    """Operations of matrix products are those that PyTorch's FlopCounterMode counted of the real modules."""
    provenance = generate(model, batch=batch).provenance
    assert provenance["forward_matmul_flops"] == pytest.approx(forward, rel=1e-3)
    assert provenance["backward_matmul_flops"] == pytest.approx(backward, rel=1e-3)


def test_bert_large_saves_what_was_captured() -> None:
    """Saved storages captured of the real BERT-Large, 32 x 512, bf16, flash: 545.13 MiB a layer, 14.90 GB in all."""
    instance = generate("bert-large")
    assert find_saved_bytes(instance, "block3.") == pytest.approx(545.13 * MIB, rel=0.01)
    assert find_saved_bytes(instance, "embedding") == 80 * MIB
    assert find_saved_bytes(instance, "head.loss") == pytest.approx(953.8 * MIB, rel=1e-3)
    assert find_saved_bytes(instance, "head") - find_saved_bytes(instance, "head.loss") == 96 * MIB
    assert find_saved_bytes(instance) == pytest.approx(14.90e9, rel=0.01)


def test_bert_large_eager_saves_what_was_captured() -> None:
    """With eager attention the real BERT-Large layer saves 1184.12 MiB."""
    instance = generate("bert-large", attention="eager")
    assert find_saved_bytes(instance, "block3.") == pytest.approx(1184.12 * MIB, rel=0.01)


def test_gpt2_xl_saves_what_was_captured() -> None:
    """The real GPT-2 XL layer, 4 x 1024, saves 362.92 MiB, 150 of them only because its GELU is unfused."""
    instance = generate("gpt2-xl", batch=4)
    assert find_saved_bytes(instance, "block3.") == pytest.approx((362.92 - 150) * MIB, rel=0.01)
    assert find_saved_bytes(instance, "head.loss") == pytest.approx(785.3 * MIB, rel=1e-3)


def test_llama_7b_saves_what_was_captured() -> None:
    """The real Llama-7B layer saves 1457.06 MiB, of which its unfused norms take 384 and its SiLU product 172 more.

    The preset's fused projection keeps 128 MiB of unrotated queries and keys alive that separate ones let go of.
    """
    unfused_norms = 2 * 128 + 2 * 64
    expected = 1457.06 - unfused_norms - 172 + 2 * 64 + 128
    assert find_saved_bytes(generate("llama-7b"), "block3.") == pytest.approx(expected * MIB, rel=0.01)


@pytest.mark.parametrize(
    ("model", "layers", "activations"),
    [("bert-large", 10, 13), ("gpt2-xl", 10, 13), ("llama-7b", 12, 13)],
)
def test_presets_have_a_dozen_operators_per_block(model: str, layers: int, activations: int) -> None:
    """A block is 10 or 12 layers and 13 activations."""
    block = [layer for layer in generate(model).layers if layer.name.startswith("block3.")]
    assert len(block) == layers
    assert sum(len(layer.outputs) for layer in block) == activations


@pytest.mark.parametrize(("model", "milliseconds"), [("bert-large", 250), ("gpt2-xl", 532), ("llama-7b", 2095)])
def test_presets_take_about_as_long_as_an_independent_estimate(model: str, milliseconds: float) -> None:
    """Step times agree within 5 % with another roofline of the same models, written apart from this one."""
    assert find_ideal_seconds(generate(model)) * 1e3 == pytest.approx(milliseconds, rel=0.05)


@pytest.mark.parametrize(
    ("option", "value", "smaller"),
    [
        ("layers", 12, True),
        ("hidden_size", 2048, False),
        ("feed_forward_size", 2048, True),
        ("vocabulary_size", 8000, True),
        ("batch", 16, True),
        ("sequence", 1024, False),
        ("attention", "eager", False),
        ("dropout", 0.0, True),
        ("heads", 32, False),
    ],
)
def test_generate_options_change_what_is_saved(option: str, value: Any, smaller: bool) -> None:
    """Every option of a preset that concerns size makes the saved bytes smaller or larger as it should."""
    options: dict[str, Any] = {option: value}
    default, changed = generate("bert-large"), generate("bert-large", **options)
    assert (find_saved_bytes(changed) < find_saved_bytes(default)) == smaller
    assert find_saved_bytes(changed) != find_saved_bytes(default)
    described = changed.provenance["options"]
    assert isinstance(described, dict)
    assert described[option] == value


def test_generate_groups_key_value_heads() -> None:
    """Fewer heads for keys and values save fewer bytes."""
    assert find_saved_bytes(generate("llama-7b", key_value_heads=8)) < find_saved_bytes(generate("llama-7b"))


def test_generate_scales_the_feed_forward_network_with_the_hidden_size() -> None:
    """Half the hidden size takes half the feed-forward size along, unless that is given."""
    halved = generate("llama-7b", hidden_size=2048).provenance["options"]
    given = generate("llama-7b", hidden_size=2048, feed_forward_size=11008).provenance["options"]
    assert isinstance(halved, dict)
    assert isinstance(given, dict)
    assert (halved["feed_forward_size"], given["feed_forward_size"]) == (5504, 11008)


def test_generate_takes_a_gpu_by_name_or_itself() -> None:
    """A faster GPU makes the step shorter, and a GPU of one's own counts like a known one."""
    named = generate("bert-large", device="h100-sxm")
    mine = generate("bert-large", device=replace(find_gpu("h100-sxm"), name="mine"))
    assert find_ideal_seconds(named) < find_ideal_seconds(generate("bert-large"))
    assert mine.device.name == "mine"
    assert mine.layers == named.layers


def test_generate_builds_what_no_single_gpu_holds() -> None:
    """A model whose states, 16 bytes per parameter, exceed the GPU's memory is an instance nevertheless."""
    instance = generate("llama-70b")
    assert instance.static_bytes == 16 * 68_976_648_192 > instance.device.memory_bytes


@pytest.mark.parametrize("granularity", ["operator", "block"])
def test_generate_is_deterministic(granularity: Any) -> None:
    """The same options give the same digest and the same file, and other options another digest."""
    first, second = (generate("gpt2-xl", layers=2, granularity=granularity) for _ in range(2))
    assert first.digest == second.digest
    assert format_instance(first) == format_instance(second)
    assert generate("gpt2-xl", layers=3, granularity=granularity).digest != first.digest


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": "alexnet"}, "model: must be one of bert-large, gpt2-xl, llama-7b, llama-70b, got 'alexnet'"),
        ({"device": "abacus"}, "device: must be one of a100-40gb, .*, got 'abacus'"),
        ({"heads": 7}, r"heads: must divide hidden_size \(4096\), got 7"),
        ({"batch": 0}, "batch: must be a whole number from 1 to 2147483647, got 0"),
        ({"hidden_size": "wide"}, "hidden_size: must be a whole number .*, got 'wide'"),
        ({"dropout": -0.5}, r"dropout: must be at least 0 and below 1, got -0\.5"),
        ({"attention": "sparse"}, "attention: must be one of fused, eager, got 'sparse'"),
        ({"granularity": "kernel"}, "granularity: must be one of operator, block, got 'kernel'"),
        ({"batch": 2**31 - 1, "sequence": 2**31 - 1}, "activations must add up to at most"),
    ],
)
def test_generate_refuses_what_is_not_allowed(options: dict[str, Any], message: str) -> None:
    """An unknown model or device, or a value that is not allowed, is refused with what there is."""
    with pytest.raises(OptionError, match=message):
        generate(**{"model": "llama-7b", **options})
