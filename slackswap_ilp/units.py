"""Constrained number types, and the parsing and printing of quantities with units."""

import math
import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Final

from pydantic import AfterValidator, Field

from slackswap_ilp.errors import OptionError

MAX_BYTES: Final = 2**60
"""Largest size of anything, and of all activations together, so that 64-bit sums cannot overflow."""

SECONDS_TOLERANCE: Final = 1e-9
"""Relative tolerance at which two times count as equal; bytes always compare exactly."""

MIN_BYTES_PER_SECOND: Final = 1e-6
"""Smallest bandwidth, so that a transfer's time stays finite."""

NAME_PATTERN: Final = r"^[^\x00-\x1f\x7f-\x9f]*$"
"""Names have no control characters: they end up on terminals and in tables."""

KIB: Final = 2**10
MIB: Final = 2**20
GIB: Final = 2**30

Bytes = Annotated[int, Field(strict=True, ge=0, le=MAX_BYTES)]
PositiveBytes = Annotated[int, Field(strict=True, gt=0, le=MAX_BYTES)]
Seconds = Annotated[float, Field(strict=True, ge=0, le=1e9, allow_inf_nan=False), AfterValidator(abs)]
"""A duration; a negative zero counts, and is written, as zero."""

BytesPerSecond = Annotated[float, Field(strict=True, ge=MIN_BYTES_PER_SECOND, allow_inf_nan=False)]
Name = Annotated[str, Field(strict=True, min_length=1, pattern=NAME_PATTERN)]

_MAX_RATIO: Final = 1000
_UNITS: Final = {
    "": 1,
    "b": 1,
    "kib": KIB,
    "mib": MIB,
    "gib": GIB,
    "tib": 2**40,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
}
_NUMBER: Final = r"([0-9]{1,30}(?:\.[0-9]{0,30})?|\.[0-9]{1,30})"
_QUANTITY: Final = re.compile(rf"\s*{_NUMBER}\s*([a-zA-Z]*)\s*")
_PERCENTAGE: Final = re.compile(rf"\s*{_NUMBER}\s*%\s*")


@dataclass(frozen=True, slots=True)
class Budget:
    """A memory budget for activations, gradients and workspaces, as a user states it.

    Attributes
    ----------
    num_bytes
        The budget in bytes, or None if it is stated as a share.
    ratio
        The budget as a share of the keep-all peak, or None if it is stated in bytes. A float counts as the decimal
        number that it prints as, so that 0.29 of 100 bytes is 29 bytes.
    """

    num_bytes: int | None = None
    ratio: Fraction | float | None = None

    def __post_init__(self) -> None:
        """Refuse a budget that is stated in both ways or in neither."""
        if (self.num_bytes is None) == (self.ratio is None):
            raise OptionError("budget: must be given either in bytes or as a share of the peak")
        if self.num_bytes is not None and not 0 < self.num_bytes <= MAX_BYTES:
            raise OptionError(f"budget: must be from 1 to {MAX_BYTES} bytes, got {self.num_bytes}")
        if self.ratio is not None and not 0 < self.ratio <= _MAX_RATIO:
            share = float(self.ratio) * 100
            raise OptionError(
                f"budget: must be above 0 % and at most {100 * _MAX_RATIO} % of the peak, got {share:.6g} %"
            )

    def in_bytes(self, peak_bytes: int) -> int:
        """Return the budget in bytes, rounded down, given the keep-all peak it may be a share of."""
        if self.num_bytes is not None:
            return self.num_bytes
        assert self.ratio is not None
        return math.floor(Fraction(str(self.ratio)) * peak_bytes)


def parse_bytes(text: str) -> int:
    """Parse a size such as ``"12GiB"``, ``"1.5 GB"`` or ``"4096"`` into whole bytes, rounded down.

    Examples
    --------
    >>> parse_bytes("1.5KiB"), parse_bytes("2 GB"), parse_bytes("4096")
    (1536, 2000000000, 4096)
    """
    match = _QUANTITY.fullmatch(text)
    unit = _UNITS.get(match.group(2).lower()) if match else None
    if match is None or unit is None:
        raise OptionError(
            f"size: must be a number of bytes or one with a unit (KiB, MiB, GiB, KB, MB, GB), got {text!r}"
        )
    return math.floor(Fraction(match.group(1)) * unit)


def parse_budget(text: str) -> Budget:
    """Parse a budget: a share of the keep-all peak (``"50%"``) or a size (``"12GiB"``, ``"4096"``).

    Examples
    --------
    >>> parse_budget("50%").in_bytes(1001)
    500
    >>> parse_budget("12GiB").num_bytes
    12884901888
    """
    match = _PERCENTAGE.fullmatch(text)
    if match:
        return Budget(ratio=Fraction(match.group(1)) / 100)
    try:
        num_bytes = parse_bytes(text)
    except OptionError as error:
        raise OptionError(
            f"budget: must be a share of the keep-all peak ('50%') or a size ('12GiB', bytes), got {text!r}"
        ) from error
    return Budget(num_bytes=num_bytes)


def format_bytes(num_bytes: int) -> str:
    """Print a size for people, in the largest binary unit that leaves a number of at least one.

    Examples
    --------
    >>> format_bytes(512), format_bytes(3 * 2**29)
    ('512 B', '1.50 GiB')
    """
    for unit, scale in (("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if abs(num_bytes) >= scale:
            return f"{num_bytes / scale:.2f} {unit}"
    return f"{num_bytes} B"


def format_seconds(seconds: float) -> str:
    """Print a duration for people, in seconds, milliseconds or microseconds.

    Examples
    --------
    >>> format_seconds(0.2501), format_seconds(12.3456), format_seconds(2.5e-6)
    ('250.1 ms', '12.35 s', '2.5 us')
    """
    if seconds == 0:
        return "0 ms"
    if abs(seconds) >= 1:
        return f"{seconds:.4g} s"
    if abs(seconds) >= 1e-3:
        return f"{seconds * 1e3:.4g} ms"
    return f"{seconds * 1e6:.4g} us"
