"""Attention between the projections: rotary positions, and the fused and the eager implementation."""

from dataclasses import dataclass

from slackswap_ilp.models.cost import Kernel
from slackswap_ilp.models.graph import FLOAT_BYTES, VALUE_BYTES, Operator, Tensor
from slackswap_ilp.models.operators import Network
from slackswap_ilp.models.options import TransformerOptions


@dataclass(frozen=True, slots=True)
class Projections:
    """The storages that hold queries and keys, and the one that holds values; it may be the same."""

    queries_keys: tuple[Tensor, ...]
    values: Tensor

    @property
    def storages(self) -> tuple[Tensor, ...]:
        """Each storage once."""
        return tuple(dict.fromkeys((*self.queries_keys, self.values)))


def add_rotary(network: Network, options: TransformerOptions, name: str, projections: Projections) -> Projections:
    """Add the rotation of queries and keys into a storage of their own; backward rotates back and needs nothing.

    Values stay where they are: of a fused projection the whole storage stays with them.
    """
    out = network.make_values(f"{name}.out", options.hidden_size + options.key_value_size)
    kernel = Kernel(moved_bytes=2 * out.size_bytes)
    network.operators.append(
        Operator(
            name=name,
            kind="rotary",
            inputs=projections.queries_keys,
            outputs=(out,),
            forward=(kernel,),
            backward=(kernel,),
        )
    )
    return Projections((out,), projections.values)


def add_fused_attention(network: Network, options: TransformerOptions, name: str, projections: Projections) -> Tensor:
    """Add attention as one kernel that saves its inputs, its output and a log-sum-exp per head and token.

    Backward recomputes the scores: five matrix products for forward's two. It sums the queries' gradient in 32 bits,
    and writes the gradients of grouped keys and values once per head before it sums them (FlashAttention-2,
    arXiv 2307.08691, and its ``flash_api.cpp``). Dropout inside is regenerated from its seed.
    """
    out = network.make_values(f"{name}.out", options.hidden_size)
    statistics = Tensor(f"{name}.lse", FLOAT_BYTES * options.heads * options.num_tokens)
    flops = 4 * options.num_tokens * options.sequence * options.hidden_size
    edge_bytes = VALUE_BYTES * options.num_tokens * 2 * (options.hidden_size + options.key_value_size)
    accumulator_bytes = FLOAT_BYTES * options.num_tokens * options.hidden_size
    is_grouped = options.num_key_value_heads < options.heads
    network.operators.append(
        Operator(
            name=name,
            kind="attention",
            inputs=projections.storages,
            outputs=(out, statistics),
            saved=(*projections.storages, out, statistics),
            forward=(Kernel(matmul_flops=flops, moved_bytes=edge_bytes + statistics.size_bytes),),
            backward=(Kernel(matmul_flops=flops * 5 // 2, moved_bytes=2 * edge_bytes + statistics.size_bytes),),
            backward_workspace_bytes=accumulator_bytes + (2 * out.size_bytes if is_grouped else 0),
        )
    )
    return out


def add_eager_attention(network: Network, options: TransformerOptions, prefix: str, projections: Projections) -> Tensor:
    """Add attention as scores, softmax, dropout if there is any, and context, with their square matrices.

    Scaling and masking are fused into the softmax; grouped keys and values are broadcast, not copied.
    """
    scores = network.make_values(f"{prefix}.scores.out", options.heads * options.sequence)
    _add_product(network, options, f"{prefix}.scores", projections.queries_keys, scores)
    weights = network.make_values(f"{prefix}.softmax.out", options.heads * options.sequence)
    network.operators.append(
        Operator(
            name=f"{prefix}.softmax",
            kind="softmax",
            inputs=(scores,),
            outputs=(weights,),
            saved=(weights,),
            forward=(Kernel(moved_bytes=2 * scores.size_bytes),),
            backward=(Kernel(moved_bytes=3 * scores.size_bytes),),
        )
    )
    if options.has_dropout:
        weights = network.add_dropout(f"{prefix}.dropout", weights)
    context = network.make_values(f"{prefix}.context.out", options.hidden_size)
    _add_product(network, options, f"{prefix}.context", (weights, projections.values), context)
    return context


def _add_product(
    network: Network, options: TransformerOptions, name: str, sources: tuple[Tensor, ...], out: Tensor
) -> None:
    """Add one of eager attention's products, of a square matrix per head with the tokens' values; it saves its inputs.

    Both move a square matrix, one tensor as wide as the queries and one as wide as the keys.
    """
    num_values = options.heads * options.sequence + options.hidden_size + options.key_value_size
    product = Kernel(
        matmul_flops=2 * options.num_tokens * options.sequence * options.hidden_size,
        moved_bytes=VALUE_BYTES * options.num_tokens * num_values,
    )
    network.operators.append(
        Operator(
            name=name,
            kind=name.rpartition(".")[2],
            inputs=sources,
            outputs=(out,),
            saved=sources,
            forward=(product,),
            backward=(product, product),
        )
    )
