"""What a transformer is made of, as options that are checked when they are set."""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Final, Literal, get_args

from slackswap_ilp.errors import OptionError

Attention = Literal["fused", "eager"]
Granularity = Literal["operator", "block"]
Norm = Literal["layernorm", "rmsnorm"]
NormPlacement = Literal["pre", "post"]
FeedForward = Literal["gelu", "gated"]
LossBits = Literal[16, 32]

MAX_LAYERS: Final = 10_000
MAX_SIZE: Final = 2**31 - 1

_SIZES: Final = ("hidden_size", "heads", "vocabulary_size", "batch", "sequence")
_OPTIONAL_SIZES: Final = ("key_value_heads", "feed_forward_size")
_CHOICES: Final = {
    "attention": get_args(Attention),
    "granularity": get_args(Granularity),
    "norm": get_args(Norm),
    "norm_placement": get_args(NormPlacement),
    "feed_forward": get_args(FeedForward),
    "loss_bits": get_args(LossBits),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformerOptions:
    """A transformer, the batch it trains on, and how its operators are implemented.

    Attributes
    ----------
    layers, hidden_size, heads, vocabulary_size
        Blocks, width of the residual stream, attention heads, entries of the vocabulary.
    batch, sequence
        Sequences per step and tokens per sequence.
    key_value_heads
        Heads of keys and values (grouped-query attention); None for as many as `heads`.
    feed_forward_size
        Width inside the feed-forward network; None for four times `hidden_size`.
    norm, norm_placement
        ``"pre"``: norms open each half of a block, and one closes the last block. ``"post"``: norms close each half,
        and one follows the embedding.
    feed_forward
        ``"gelu"``: two linear layers; ``"gated"``: gate and up, their SiLU product, and down.
    attention
        ``"fused"``: one kernel that saves no square matrix (FlashAttention); ``"eager"``: scores, softmax, context.
    fused_qkv
        Whether one linear layer writes queries, keys and values into one storage.
    rotary
        Whether queries and keys are rotated; then there are no learned positions.
    dropout
        Probability at which values are dropped, in residual branches, embedding and eager attention; 0 for no dropout.
    biases
        Whether linear layers have biases.
    tied_embeddings
        Whether the head's decoder shares its weights with the embedding.
    masked_head
        Whether the head is that of a masked language model: dense, GELU, norm, decoder with a bias.
    token_types
        Entries of BERT's table of token types; 0 for no such table.
    loss_bits
        Width of the log-softmax that the loss saves; at 32 it converts its logits first.
    granularity
        Whether an instance's layers are operators, or embedding, whole blocks and head.

    Raises
    ------
    OptionError
        If a value is not allowed.
    """

    layers: int
    hidden_size: int
    heads: int
    vocabulary_size: int
    batch: int
    sequence: int
    key_value_heads: int | None = None
    feed_forward_size: int | None = None
    norm: Norm = "layernorm"
    norm_placement: NormPlacement = "pre"
    feed_forward: FeedForward = "gelu"
    attention: Attention = "fused"
    fused_qkv: bool = True
    rotary: bool = False
    dropout: float = 0.0
    biases: bool = True
    tied_embeddings: bool = True
    masked_head: bool = False
    token_types: int = 0
    loss_bits: LossBits = 32
    granularity: Granularity = "operator"

    def __post_init__(self) -> None:
        """Refuse values that are not allowed, alone or together."""
        check_size("layers", self.layers, largest=MAX_LAYERS)
        for name in _SIZES:
            check_size(name, getattr(self, name))
        for name in _OPTIONAL_SIZES:
            if getattr(self, name) is not None:
                check_size(name, getattr(self, name))
        for name, choices in _CHOICES.items():
            _check_choice(name, getattr(self, name), choices)
        for field in fields(self):
            if field.type is bool and not isinstance(getattr(self, field.name), bool):
                raise OptionError(f"{field.name}: must be true or false, got {getattr(self, field.name)!r}")
        _check_dropout(self.dropout)
        if self.token_types != 0:
            check_size("token_types", self.token_types)
        self._check_heads()

    def _check_heads(self) -> None:
        """Refuse heads that do not divide what they share."""
        if self.hidden_size % self.heads:
            raise OptionError(f"heads: must divide hidden_size ({self.hidden_size}), got {self.heads}")
        if self.heads % self.num_key_value_heads:
            raise OptionError(f"key_value_heads: must divide heads ({self.heads}), got {self.num_key_value_heads}")
        if self.rotary and self.head_size % 2:
            raise OptionError(
                f"heads: must leave an even number of values per head for rotary positions,"
                f" got {self.hidden_size} / {self.heads} = {self.head_size}"
            )

    @property
    def num_tokens(self) -> int:
        """Tokens per step."""
        return self.batch * self.sequence

    @property
    def head_size(self) -> int:
        """Values per head."""
        return self.hidden_size // self.heads

    @property
    def num_key_value_heads(self) -> int:
        """Heads of keys and values, with the default filled in."""
        return self.heads if self.key_value_heads is None else self.key_value_heads

    @property
    def key_value_size(self) -> int:
        """Width of the keys, and of the values."""
        return self.num_key_value_heads * self.head_size

    @property
    def inner_size(self) -> int:
        """Width inside the feed-forward network, with the default filled in."""
        return 4 * self.hidden_size if self.feed_forward_size is None else self.feed_forward_size

    @property
    def has_dropout(self) -> bool:
        """Whether anything is dropped."""
        return self.dropout > 0


def check_size(name: str, value: object, *, largest: int = MAX_SIZE) -> None:
    """Refuse what is not a whole number from 1 to `largest`."""
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= largest:
        raise OptionError(f"{name}: must be a whole number from 1 to {largest}, got {_shorten(value)}")


def _check_choice(name: str, value: object, choices: Iterable[object]) -> None:
    """Refuse what is not among the choices."""
    if value not in choices:
        raise OptionError(f"{name}: must be one of {', '.join(map(str, choices))}, got {_shorten(value)}")


def _check_dropout(value: object) -> None:
    """Refuse what is no probability below one."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < 1:
        raise OptionError(f"dropout: must be at least 0 and below 1, got {_shorten(value)}")


def _shorten(value: object) -> str:
    """Print a value, however long a number it is, within a message."""
    try:
        text = repr(value)
    except ValueError:  # a number with more digits than Python prints
        return "a number of thousands of digits"
    return text if len(text) <= 60 else f"{text[:60]}..."
