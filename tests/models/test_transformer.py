"""What a transformer's step saves, moves and computes."""

from dataclasses import replace
from typing import Any

import pytest

from slackswap_ilp.devices import find_gpu
from slackswap_ilp.errors import OptionError
from slackswap_ilp.instance import Instance, Layer
from slackswap_ilp.models.graph import Operator, Tensor, sum_gradients
from slackswap_ilp.models.merging import merge_parts
from slackswap_ilp.models.options import TransformerOptions
from slackswap_ilp.models.transformer import build_transformer
from slackswap_ilp.plan import KEEP, Plan
from slackswap_ilp.simulator.replay import simulate

GPU = find_gpu("a100-40gb")
BATCH, SEQUENCE, HIDDEN, HEADS = 2, 128, 192, 6
SMALL = TransformerOptions(
    layers=3, hidden_size=HIDDEN, heads=HEADS, vocabulary_size=1000, batch=BATCH, sequence=SEQUENCE, dropout=0.1
)
GATED = replace(SMALL, feed_forward="gated", rotary=True, norm="rmsnorm", dropout=0.0, biases=False)


def build(options: TransformerOptions = SMALL, **changes: Any) -> Instance:
    return build_transformer(replace(options, **changes), GPU)


def find_saved_bytes(instance: Instance, part: str = "") -> int:
    """Add up what is saved for backward and produced by layers whose name starts with `part`."""
    saved = {name for layer in instance.layers for name in layer.saved}
    layers = [layer for layer in instance.layers if layer.name.startswith(part)]
    return sum(output.size_bytes for layer in layers for output in layer.outputs if output.name in saved)


def find_layer(instance: Instance, name: str) -> Layer:
    return next(layer for layer in instance.layers if layer.name == name)


def find_peak_bytes(instance: Instance) -> int:
    keep_all = Plan(instance=instance.name, activations={item.name: KEEP for item in instance.activations})
    return simulate(instance, keep_all).peak_bytes


@pytest.mark.parametrize("placement", ["pre", "post"])
@pytest.mark.parametrize("fused_qkv", [True, False])
@pytest.mark.parametrize("granularity", ["operator", "block"])
def test_block_saves_34_bytes_per_token_and_channel(placement: str, fused_qkv: bool, granularity: str) -> None:
    """With fused attention a classic block saves 34 s b h bytes, beside 4 a s b bytes of log-sum-exp, exactly."""
    instance = build(norm_placement=placement, fused_qkv=fused_qkv, granularity=granularity)
    expected_bytes = 34 * SEQUENCE * BATCH * HIDDEN + 4 * HEADS * SEQUENCE * BATCH
    assert find_saved_bytes(instance, "block1") == expected_bytes


def test_eager_attention_saves_5_bytes_per_score() -> None:
    """With eager attention a block saves 34 s b h + 5 a s^2 b bytes, exactly, and no log-sum-exp."""
    instance = build(attention="eager")
    expected_bytes = 34 * SEQUENCE * BATCH * HIDDEN + 5 * HEADS * SEQUENCE**2 * BATCH
    assert find_saved_bytes(instance, "block1") == expected_bytes


def test_eager_attention_without_dropout_saves_2_bytes_per_score() -> None:
    """Without dropout the softmax's output is all that remains of 5 a s^2 b, and the two masks of s b h go too."""
    instance = build(attention="eager", dropout=0.0)
    expected_bytes = 32 * SEQUENCE * BATCH * HIDDEN + 2 * HEADS * SEQUENCE**2 * BATCH
    assert find_saved_bytes(instance, "block1") == expected_bytes


def test_gated_block_saves_gate_up_and_product() -> None:
    """A rotary, gated block saves by hand: norms 2 x 4, q and k 4, qkv 6, output 2 per channel, 6 per inner channel."""
    instance = build(GATED, feed_forward_size=500)
    tokens = SEQUENCE * BATCH
    expected_bytes = tokens * (HIDDEN * (8 + 4 + 6 + 2) + 6 * 500 + 4 * HEADS)
    assert find_saved_bytes(instance, "block1") == expected_bytes


def test_separate_projections_let_go_of_unrotated_queries_and_keys() -> None:
    """With separate projections only the values stay beside rotated queries and keys: 4 bytes per channel less."""
    fused, separate = build(GATED), build(GATED, fused_qkv=False)
    saved_bytes = find_saved_bytes(fused, "block1") - find_saved_bytes(separate, "block1")
    assert saved_bytes == 4 * SEQUENCE * BATCH * HIDDEN
    assert "block1.attn.qkv.out" not in {activation.name for activation in separate.activations}


def test_grouped_heads_narrow_keys_and_values() -> None:
    """With a third of the heads for keys and values the projection is 2 (h + 2 h / 3) wide instead of 2 (3 h)."""
    layer = find_layer(build(key_value_heads=2), "block0.attn.qkv")
    assert layer.outputs[0].size_bytes == 2 * SEQUENCE * BATCH * (HIDDEN + 2 * HIDDEN // 3)


def test_outside_of_blocks_saves_what_autograd_keeps() -> None:
    """Pre-norm: the embedding's mask and output (3), the final norm's output (2), and a log-softmax of 4 or 2 bytes."""
    tokens = SEQUENCE * BATCH
    instance = build()
    assert find_saved_bytes(instance, "embedding") == 3 * tokens * HIDDEN
    assert find_saved_bytes(instance, "head") == tokens * (2 * HIDDEN + 4 * 1000)
    assert find_saved_bytes(build(loss_bits=16), "head") == tokens * (2 * HIDDEN + 2 * 1000)
    assert find_saved_bytes(build(norm_placement="post"), "embedding") == 5 * tokens * HIDDEN
    masked = build(norm_placement="post", masked_head=True)  # dense, GELU and norm, 2 each
    assert find_saved_bytes(masked, "head") == tokens * (6 * HIDDEN + 4 * 1000)


def test_residual_of_a_post_norm_block_is_the_norm() -> None:
    """Post-norm sums the norm's output, pre-norm the stream of sums."""
    assert find_layer(build(norm_placement="post"), "block1.mlp.sum").inputs[1] == "block1.attn.norm.out"
    assert find_layer(build(norm_placement="pre"), "block1.mlp.sum").inputs[1] == "block1.attn.sum.out"


def test_gradients_are_as_large_as_16_bit_values_and_masks_have_none() -> None:
    """Values have a gradient of their size; masks, log-sum-exp and the log-softmax have none."""
    for activation in build().activations:
        without = activation.name.endswith((".mask", ".lse", ".log_softmax"))
        assert activation.gradient_bytes == (0 if without else activation.size_bytes)


def test_linear_takes_two_products_backward() -> None:
    """A linear layer bound by arithmetic takes 2 T h k / (0.55 x 312 TFLOP/s) forward and twice that backward."""
    options = replace(SMALL, hidden_size=4096, heads=32, batch=8, sequence=1024, layers=1)
    layer = find_layer(build_transformer(options, GPU), "block0.mlp.fc1")
    assert layer.forward_seconds == pytest.approx(2 * 8192 * 4096 * 16384 / (0.55 * 312e12), rel=1e-12)
    assert layer.backward_seconds == pytest.approx(2 * layer.forward_seconds, rel=1e-12)


def test_fused_attention_takes_two_and_a_half_times_forward() -> None:
    """Fused attention bound by arithmetic takes 4 T s h operations forward and five halves of that backward."""
    options = replace(SMALL, hidden_size=4096, heads=32, batch=1, sequence=8192, layers=1)
    layer = find_layer(build_transformer(options, GPU), "block0.attn.attention")
    assert layer.forward_seconds == pytest.approx(4 * 8192**2 * 4096 / (0.55 * 312e12), rel=1e-12)
    assert layer.backward_seconds == pytest.approx(2.5 * layer.forward_seconds, rel=1e-12)


def test_elementwise_takes_its_traffic() -> None:
    """A GELU moves 2 + 2 bytes per value forward and 2 + 2 + 2 backward at 80 % of 1.555 TB/s."""
    layer = find_layer(build(), "block0.mlp.gelu")
    values = SEQUENCE * BATCH * 4 * HIDDEN
    assert layer.forward_seconds == pytest.approx(4 * values / (0.8 * 1.555e12), rel=1e-12)
    assert layer.backward_seconds == pytest.approx(6 * values / (0.8 * 1.555e12), rel=1e-12)


def test_flops_are_near_six_per_parameter_and_token() -> None:
    """Wide models on short sequences take 6 N T operations, within 2 % (attention's own come on top, 1 %)."""
    options = replace(SMALL, layers=8, hidden_size=4096, heads=32, sequence=256, tied_embeddings=True)
    provenance = build_transformer(options, GPU).provenance
    parameters, forward, backward = (
        provenance[key] for key in ("num_parameters", "forward_matmul_flops", "backward_matmul_flops")
    )
    assert isinstance(parameters, int)
    assert isinstance(forward, int)
    assert isinstance(backward, int)
    assert forward + backward == pytest.approx(6 * parameters * options.num_tokens, rel=0.02)


def test_parameters_are_counted_by_hand() -> None:
    """Blocks 12 h^2 + 13 h, embedding (v + s) h, final norm 2 h, as published for GPT-2; 16 bytes of state each."""
    parameters = 3 * (12 * HIDDEN**2 + 13 * HIDDEN) + (1000 + SEQUENCE) * HIDDEN + 2 * HIDDEN
    instance = build()
    assert instance.provenance["num_parameters"] == parameters
    assert instance.static_bytes == 16 * parameters
    untied = build(tied_embeddings=False, biases=False, norm="rmsnorm")
    parameters = 3 * (12 * HIDDEN**2 + 2 * HIDDEN) + (2 * 1000 + SEQUENCE) * HIDDEN + HIDDEN
    assert untied.provenance["num_parameters"] == parameters


@pytest.mark.parametrize(
    "options",
    [
        SMALL,
        GATED,
        replace(SMALL, norm_placement="post", masked_head=True),
        replace(SMALL, attention="eager"),
        replace(GATED, key_value_heads=3, fused_qkv=False),
    ],
)
def test_blocks_add_up_to_their_operators(options: TransformerOptions) -> None:
    """At block level saved bytes are the same exactly, times the same, and the peak the same or little larger."""
    fine, coarse = build(options), build(options, granularity="block")
    assert [layer.name for layer in coarse.layers] == ["embedding", "block0", "block1", "block2", "head"]
    assert find_saved_bytes(coarse) == find_saved_bytes(fine)
    for time in ("forward_seconds", "backward_seconds"):
        assert sum(getattr(layer, time) for layer in coarse.layers) == pytest.approx(
            sum(getattr(layer, time) for layer in fine.layers), rel=1e-12
        )
    assert find_peak_bytes(fine) <= find_peak_bytes(coarse) <= 1.25 * find_peak_bytes(fine)
    assert coarse.static_bytes == fine.static_bytes


def test_sum_gradients_charges_every_reader_but_the_last() -> None:
    """Of two readers the first adds its share to the last one's: its size as workspace, three times as traffic."""
    shared = Tensor("shared", 100, 100)
    first, last = sum_gradients(
        [Operator(name="a.first", kind="", inputs=(shared,)), Operator(name="a.last", kind="", inputs=(shared,))]
    )
    assert first.backward_workspace_bytes == 100
    assert [kernel.moved_bytes for kernel in first.backward] == [300]
    assert last.backward == ()


def test_merge_parts_covers_what_is_alive_inside() -> None:
    """By hand: x (10) -> y (40, not saved) -> z (30, saved inside) -> out (20); y is beside z and nothing else.

    Forward takes y + z = 70 at its largest, of which out + z = 50 remain: 20 of workspace. Backward has the gradients
    of y and z, 70, when z's is turned into y's; those of x and out, 30, are at the part's edges: 40 of workspace.
    """
    x, y, z, out = Tensor("in.x", 10, 10), Tensor("a.y", 40, 40), Tensor("a.z", 30, 30), Tensor("a.out", 20, 20)
    _, merged, _ = merge_parts(
        [
            Operator(name="in.x", kind="", outputs=(x,)),
            Operator(name="a.one", kind="", inputs=(x,), outputs=(y,), saved=(x,)),
            Operator(name="a.two", kind="", inputs=(y,), outputs=(z,)),
            Operator(name="a.three", kind="", inputs=(z,), outputs=(out,), saved=(z,)),
            Operator(name="b.last", kind="", inputs=(out,), saved=(out,)),
        ]
    )
    assert merged.outputs == (Tensor("a.out", 20, 20), Tensor("a.saved", 30))
    assert [tensor.name for tensor in merged.saved] == ["in.out", "a.saved"]
    assert merged.forward_workspace_bytes == 20
    assert merged.backward_workspace_bytes == 40


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layers": 0}, "layers: must be a whole number from 1 to 10000, got 0"),
        ({"batch": -1}, "batch: must be a whole number from 1 to 2147483647, got -1"),
        ({"sequence": 1.5}, r"sequence: must be a whole number .*, got 1\.5"),
        ({"hidden_size": True}, "hidden_size: must be a whole number .*, got True"),
        ({"vocabulary_size": 10**5000}, "vocabulary_size: .*, got a number of thousands of digits"),
        ({"feed_forward_size": 0}, "feed_forward_size: must be a whole number .*, got 0"),
        ({"token_types": -2}, "token_types: must be a whole number .*, got -2"),
        ({"heads": 7}, r"heads: must divide hidden_size \(192\), got 7"),
        ({"key_value_heads": 4}, r"key_value_heads: must divide heads \(6\), got 4"),
        ({"heads": 64, "rotary": True}, r"heads: must leave an even number of values per head .* 192 / 64 = 3"),
        ({"dropout": 1.0}, r"dropout: must be at least 0 and below 1, got 1\.0"),
        ({"dropout": float("nan")}, "dropout: must be at least 0 and below 1, got nan"),
        ({"attention": "flash"}, "attention: must be one of fused, eager, got 'flash'"),
        ({"norm": "batch"}, "norm: must be one of layernorm, rmsnorm, got 'batch'"),
        ({"norm_placement": "both"}, "norm_placement: must be one of pre, post, got 'both'"),
        ({"feed_forward": "relu"}, "feed_forward: must be one of gelu, gated, got 'relu'"),
        ({"loss_bits": 8}, "loss_bits: must be one of 16, 32, got 8"),
        ({"granularity": "model"}, "granularity: must be one of operator, block, got 'model'"),
        ({"biases": 2}, "biases: must be true or false, got 2"),
        ({"batch": 2**31 - 1, "sequence": 2**20}, "activations must add up to at most 1152921504606846976 bytes"),
        ({"hidden_size": 6 * 2**28, "batch": 1, "sequence": 1}, "weights and optimizer state must take at most"),
        ({"hidden_size": 6 * 2**21, "batch": 2**24, "sequence": 8}, "a layer must take at most 1e.09 seconds"),
    ],
)
def test_options_refuse_what_is_not_allowed(changes: dict[str, Any], message: str) -> None:
    """A value that is not allowed is refused with its option, its value and what is allowed."""
    with pytest.raises(OptionError, match=message):
        build(**changes)
