"""Builds the instance of a transformer's training step, for a parametric architecture at operator or block level.

With 16-bit values, dropout and an inner width of four times the hidden size, a block saves 34 bytes per token and
channel with fused attention, beside its log-sum-exp: norm inputs 2 + 2, norm outputs 2 + 2, queries, keys and values 6,
attention output 2, masks 1 + 1, GELU's input 8 and output 8. Eager attention adds five bytes per entry of its square
matrices: softmax 2, mask 1, dropped weights 2 (Korthikanti et al., arXiv 2205.05198, equation 2).
"""

from dataclasses import asdict
from typing import Final

from pydantic import JsonValue

from slackswap_ilp.devices import Gpu, make_device
from slackswap_ilp.errors import OptionError
from slackswap_ilp.instance import Instance
from slackswap_ilp.models.attention import Projections, add_eager_attention, add_fused_attention, add_rotary
from slackswap_ilp.models.cost import MATMUL_EFFICIENCY, MEMORY_EFFICIENCY
from slackswap_ilp.models.graph import Operator, Tensor, make_layers, sum_gradients
from slackswap_ilp.models.merging import merge_parts
from slackswap_ilp.models.operators import Network
from slackswap_ilp.models.options import TransformerOptions
from slackswap_ilp.units import MAX_BYTES

STATIC_BYTES_PER_PARAMETER: Final = 16
"""A 16-bit weight and gradient (2 + 2), and Adam's 32-bit weight, momentum and variance (12; arXiv 1910.02054)."""


def build_transformer(options: TransformerOptions, gpu: Gpu, *, name: str = "transformer") -> Instance:
    """Build the instance of one training step, forward and backward, of a transformer on a GPU.

    Its budget is left open. `static_bytes` may exceed the GPU's memory, as when states are sharded over many GPUs:
    then plans need a budget of their own.

    Raises
    ------
    OptionError
        If its sizes or times are beyond what an instance can hold.
    """
    operators = sum_gradients(_make_operators(options))
    num_parameters = sum(operator.num_parameters for operator in operators)
    static_bytes = STATIC_BYTES_PER_PARAMETER * num_parameters
    if static_bytes > MAX_BYTES:
        raise OptionError(
            f"layers, hidden_size: weights and optimizer state must take at most {MAX_BYTES} bytes, got {static_bytes}"
        )
    forward_flops = sum(kernel.matmul_flops for operator in operators for kernel in operator.forward)
    backward_flops = sum(kernel.matmul_flops for operator in operators for kernel in operator.backward)
    return Instance(
        name=name,
        description=f"One training step of {name} with {options.layers} blocks on {gpu.name}.",
        provenance={
            "generator": "slackswap_ilp.models.transformer",
            "options": _describe_options(options),
            "num_parameters": num_parameters,
            "static_bytes_per_parameter": STATIC_BYTES_PER_PARAMETER,
            "forward_matmul_flops": forward_flops,
            "backward_matmul_flops": backward_flops,
            "device": asdict(gpu),
            "cost_model": {
                "kind": "roofline",
                "matmul_efficiency": MATMUL_EFFICIENCY,
                "memory_efficiency": MEMORY_EFFICIENCY,
            },
        },
        device=make_device(gpu),
        static_bytes=static_bytes,
        layers=make_layers(merge_parts(operators) if options.granularity == "block" else operators, gpu),
    )


def _describe_options(options: TransformerOptions) -> dict[str, JsonValue]:
    """Return the options with their defaults filled in."""
    return asdict(options) | {
        "key_value_heads": options.num_key_value_heads,
        "feed_forward_size": options.inner_size,
    }


def _make_operators(options: TransformerOptions) -> list[Operator]:
    """Return the operators of the network in execution order."""
    network = Network(options.num_tokens)
    stream = _add_embedding(network, options)
    for index in range(options.layers):
        stream = _add_block(network, options, f"block{index}", stream)
    _add_head(network, options, stream)
    return network.operators


def _add_embedding(network: Network, options: TransformerOptions) -> Tensor:
    """Add the embedding, with a norm if norms come last, and dropout."""
    positions = () if options.rotary else (options.sequence,)
    token_types = (options.token_types,) if options.token_types else ()
    tables = (options.vocabulary_size, *positions, *token_types)
    stream = network.add_embedding("embedding.tokens", options.hidden_size, table_entries=tables)
    if options.norm_placement == "post":
        stream = network.add_norm("embedding.norm", stream, has_bias=options.norm == "layernorm")
    if options.has_dropout:
        stream = network.add_dropout("embedding.dropout", stream)
    return stream


def _add_block(network: Network, options: TransformerOptions, part: str, stream: Tensor) -> Tensor:
    """Add one block: attention and feed-forward network, each with its norm and residual sum."""
    has_bias = options.norm == "layernorm"
    for half, add_branch in (("attn", _add_attention), ("mlp", _add_feed_forward)):
        prefix = f"{part}.{half}"
        source = stream
        if options.norm_placement == "pre":
            source = network.add_norm(f"{prefix}.norm", stream, has_bias=has_bias)
        branch = add_branch(network, options, prefix, source)
        stream = network.add_residual_sum(f"{prefix}.sum", branch, stream, has_dropout=options.has_dropout)
        if options.norm_placement == "post":
            stream = network.add_norm(f"{prefix}.norm", stream, has_bias=has_bias)
    return stream


def _add_attention(network: Network, options: TransformerOptions, prefix: str, source: Tensor) -> Tensor:
    """Add projections and attention."""
    projections = _add_projections(network, options, prefix, source)
    if options.rotary:
        projections = add_rotary(network, options, f"{prefix}.rotary", projections)
    if options.attention == "fused":
        context = add_fused_attention(network, options, f"{prefix}.attention", projections)
    else:
        context = add_eager_attention(network, options, prefix, projections)
    return network.add_linear(f"{prefix}.projection", context, options.hidden_size, has_bias=options.biases)


def _add_projections(network: Network, options: TransformerOptions, prefix: str, source: Tensor) -> Projections:
    """Add the linear layers of queries, keys and values, or the one of all three."""
    if options.fused_qkv:
        width = options.hidden_size + 2 * options.key_value_size
        qkv = network.add_linear(f"{prefix}.qkv", source, width, has_bias=options.biases)
        return Projections((qkv,), qkv)
    queries = network.add_linear(f"{prefix}.query", source, options.hidden_size, has_bias=options.biases)
    keys = network.add_linear(f"{prefix}.key", source, options.key_value_size, has_bias=options.biases)
    values = network.add_linear(f"{prefix}.value", source, options.key_value_size, has_bias=options.biases)
    return Projections((queries, keys), values)


def _add_feed_forward(network: Network, options: TransformerOptions, prefix: str, source: Tensor) -> Tensor:
    """Add the feed-forward network."""
    inner_size, has_bias = options.inner_size, options.biases
    if options.feed_forward == "gelu":
        first = network.add_linear(f"{prefix}.fc1", source, inner_size, has_bias=has_bias)
        inner = network.add_gelu(f"{prefix}.gelu", first)
        return network.add_linear(f"{prefix}.fc2", inner, options.hidden_size, has_bias=has_bias)
    gate = network.add_linear(f"{prefix}.gate", source, inner_size, has_bias=has_bias)
    up = network.add_linear(f"{prefix}.up", source, inner_size, has_bias=has_bias)
    inner = network.add_silu_product(f"{prefix}.silu_mul", gate, up)
    return network.add_linear(f"{prefix}.down", inner, options.hidden_size, has_bias=has_bias)


def _add_head(network: Network, options: TransformerOptions, stream: Tensor) -> None:
    """Add the final norm if norms come first, the masked language model's transformation, the decoder and the loss."""
    has_norm_bias = options.norm == "layernorm"
    if options.norm_placement == "pre":
        stream = network.add_norm("head.norm", stream, has_bias=has_norm_bias)
    if options.masked_head:
        stream = network.add_linear("head.dense", stream, options.hidden_size, has_bias=options.biases)
        stream = network.add_gelu("head.gelu", stream)
        stream = network.add_norm("head.dense_norm", stream, has_bias=has_norm_bias)
    logits = network.add_linear(
        "head.decoder",
        stream,
        options.vocabulary_size,
        has_bias=options.masked_head,
        owns_weights=not options.tied_embeddings,
    )
    network.add_loss("head.loss", logits, is_single_precision=options.loss_bits == 32)
