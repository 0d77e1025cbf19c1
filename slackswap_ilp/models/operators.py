"""The operators of transformers: what each one computes, moves, and saves for its backward, in 16-bit values.

A linear layer, a norm, a GELU save their input; a softmax saves its output; a sum saves nothing, unless dropout is
fused into it, which saves a mask of one byte per value. This is what PyTorch's autograd keeps (``derivatives.yaml``),
and it adds up to the 34 bytes per token and channel of Korthikanti et al. (arXiv 2205.05198, section 4). The statistics
that norms keep (8 bytes per token) are left out.
"""

from slackswap_ilp.models.cost import Kernel
from slackswap_ilp.models.graph import FLOAT_BYTES, VALUE_BYTES, Operator, Tensor


class Network:
    """Collects the operators of a network in execution order.

    Parameters
    ----------
    num_tokens
        Tokens per step: every tensor holds so many rows.
    """

    def __init__(self, num_tokens: int) -> None:
        self.num_tokens = num_tokens
        self.operators: list[Operator] = []

    def make_values(self, name: str, width: int) -> Tensor:
        """Return a tensor of 16-bit values, `width` per token, that has a gradient."""
        size_bytes = VALUE_BYTES * self.num_tokens * width
        return Tensor(name, size_bytes, size_bytes)

    def find_width(self, tensor: Tensor) -> int:
        """Return how many 16-bit values a tensor holds per token."""
        return tensor.size_bytes // (VALUE_BYTES * self.num_tokens)

    def add_embedding(self, name: str, width: int, *, table_entries: tuple[int, ...]) -> Tensor:
        """Add the sum of one row per token from each of several tables."""
        out = self.make_values(f"{name}.out", width)
        num_tables = len(table_entries)
        self.operators.append(
            Operator(
                name=name,
                kind="embedding",
                outputs=(out,),
                forward=(Kernel(moved_bytes=(num_tables + 1) * out.size_bytes),),
                backward=(Kernel(moved_bytes=3 * out.size_bytes),) * num_tables,  # read gradient, update rows
                num_parameters=sum(table_entries) * width,
            )
        )
        return out

    def add_linear(self, name: str, source: Tensor, width: int, *, has_bias: bool, owns_weights: bool = True) -> Tensor:
        """Add a linear layer; backward is one matrix product for its input's gradient and one for its weights'."""
        out = self.make_values(f"{name}.out", width)
        num_weights = self.find_width(source) * width
        product = Kernel(
            matmul_flops=2 * self.num_tokens * num_weights,
            moved_bytes=source.size_bytes + VALUE_BYTES * num_weights + out.size_bytes,
        )
        self.operators.append(
            Operator(
                name=name,
                kind="linear",
                inputs=(source,),
                outputs=(out,),
                saved=(source,),
                forward=(product,),
                backward=(product, product),
                num_parameters=num_weights * owns_weights + width * has_bias,
            )
        )
        return out

    def add_norm(self, name: str, source: Tensor, *, has_bias: bool) -> Tensor:
        """Add a layer norm (with a bias) or a root-mean-square norm (without), as one kernel."""
        width = self.find_width(source)
        return self._add_elementwise(name, "norm", (source,), width, num_parameters=width * (1 + has_bias))

    def add_gelu(self, name: str, source: Tensor) -> Tensor:
        """Add a GELU as one kernel."""
        return self._add_elementwise(name, "gelu", (source,), self.find_width(source))

    def add_silu_product(self, name: str, gate: Tensor, up: Tensor) -> Tensor:
        """Add SiLU(gate) times up as one kernel that saves both."""
        return self._add_elementwise(name, "silu_mul", (gate, up), self.find_width(gate))

    def _add_elementwise(
        self, name: str, kind: str, sources: tuple[Tensor, ...], width: int, *, num_parameters: int = 0
    ) -> Tensor:
        """Add a kernel that saves its inputs; backward reads them and a gradient, and writes their gradients."""
        out = self.make_values(f"{name}.out", width)
        source_bytes = sum(source.size_bytes for source in sources)
        self.operators.append(
            Operator(
                name=name,
                kind=kind,
                inputs=sources,
                outputs=(out,),
                saved=sources,
                forward=(Kernel(moved_bytes=source_bytes + out.size_bytes),),
                backward=(Kernel(moved_bytes=2 * source_bytes + out.size_bytes),),
                num_parameters=num_parameters,
            )
        )
        return out

    def add_residual_sum(self, name: str, branch: Tensor, residual: Tensor, *, has_dropout: bool) -> Tensor:
        """Add the sum of a branch and the residual stream, with dropout of the branch fused into it if there is any.

        Both inputs take the sum's gradient as it is; dropout writes the branch's anew.
        """
        out = Tensor(f"{name}.out", residual.size_bytes, residual.gradient_bytes)
        masks = (self._make_mask(name, branch),) if has_dropout else ()
        mask_bytes = sum(mask.size_bytes for mask in masks)
        self.operators.append(
            Operator(
                name=name,
                kind="dropout_add" if has_dropout else "add",
                inputs=(branch, residual),
                outputs=(out, *masks),
                saved=masks,
                forward=(Kernel(moved_bytes=3 * out.size_bytes + mask_bytes),),
                backward=(Kernel(moved_bytes=2 * out.size_bytes + mask_bytes),) if has_dropout else (),
            )
        )
        return out

    def add_dropout(self, name: str, source: Tensor) -> Tensor:
        """Add dropout on its own; it saves its mask."""
        out = Tensor(f"{name}.out", source.size_bytes, source.gradient_bytes)
        mask = self._make_mask(name, source)
        kernel = Kernel(moved_bytes=2 * out.size_bytes + mask.size_bytes)
        self.operators.append(
            Operator(
                name=name,
                kind="dropout",
                inputs=(source,),
                outputs=(out, mask),
                saved=(mask,),
                forward=(kernel,),
                backward=(kernel,),
            )
        )
        return out

    def _make_mask(self, name: str, source: Tensor) -> Tensor:
        """Return the mask of a dropout: one byte per value."""
        return Tensor(f"{name}.mask", source.size_bytes // VALUE_BYTES)

    def add_loss(self, name: str, logits: Tensor, *, is_single_precision: bool) -> None:
        """Add the cross entropy, which saves its log-softmax: 16-bit, or 32-bit of logits that it converts first.

        The entry of the label is picked in the kernel of the log-softmax, forward and backward.
        """
        value_bytes = FLOAT_BYTES if is_single_precision else VALUE_BYTES
        copy_bytes = logits.size_bytes // VALUE_BYTES * value_bytes
        kernels = [Kernel(moved_bytes=2 * copy_bytes)]
        if is_single_precision:
            kernels.append(Kernel(moved_bytes=logits.size_bytes + copy_bytes))
        workspace_bytes = copy_bytes if is_single_precision else 0
        log_softmax = Tensor(f"{name}.log_softmax", copy_bytes)
        self.operators.append(
            Operator(
                name=name,
                kind="loss",
                inputs=(logits,),
                outputs=(log_softmax,),
                saved=(log_softmax,),
                forward=tuple(kernels),
                backward=tuple(kernels),
                forward_workspace_bytes=workspace_bytes,
                backward_workspace_bytes=workspace_bytes,
            )
        )
