"""Parsing and printing of quantities with units."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slackswap_ilp.errors import OptionError
from slackswap_ilp.units import MAX_BYTES, Budget, format_bytes, format_seconds, parse_budget, parse_bytes


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [
        ("4096", 4096),
        ("0", 0),
        ("007", 7),
        ("12B", 12),
        ("1KiB", 1024),
        ("2 MiB", 2 * 1024**2),
        ("12GiB", 12 * 1024**3),
        ("1TiB", 1024**4),
        ("1kB", 1000),
        ("1KB", 1000),
        ("3MB", 3_000_000),
        ("2 GB", 2_000_000_000),
        ("1tb", 10**12),
        ("1.5GiB", 3 * 2**29),
        (".5kib", 512),
        ("5.KiB", 5120),
        ("1.9", 1),
        ("0.9B", 0),
        (" 7 kib ", 7168),
        ("9007199254740993", 2**53 + 1),
        ("9007199254740993KiB", (2**53 + 1) * 1024),
    ],
)
def test_parse_bytes_reads_sizes(text: str, num_bytes: int) -> None:
    """A size is a number with or without a unit, in any case, rounded down; whole numbers are exact."""
    assert parse_bytes(text) == num_bytes


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "GiB",
        "-1",
        "+1",
        "1e9",
        "1,5GiB",
        "1_000",
        "12 Gi",
        "12G",
        "twelve",
        "12GiB/s",
        "1 2",
        "nan",
        "inf",
        "0x10",
    ],
)
def test_parse_bytes_refuses_anything_else(text: str) -> None:
    """What is not a size is refused with the value and the units there are."""
    message = f"size: must be a number of bytes or one with a unit (KiB, MiB, GiB, KB, MB, GB), got {text!r}"
    with pytest.raises(OptionError, match=rf"\A{re.escape(message)}\Z"):
        parse_bytes(text)


@given(st.integers(0, 2 * MAX_BYTES))
@settings(deadline=None)
def test_parse_bytes_is_exact_for_whole_numbers(num_bytes: int) -> None:
    """A whole number of bytes is read to the last digit."""
    assert parse_bytes(str(num_bytes)) == parse_bytes(f"{num_bytes} B") == num_bytes


@pytest.mark.parametrize(
    ("text", "peak_bytes", "num_bytes"),
    [
        ("50%", 1001, 500),
        ("100 %", 7, 7),
        ("0.5%", 1000, 5),
        ("150%", 10, 15),
        ("12.5%", 2**60, 2**57),
        ("4096", 7, 4096),
        ("12GiB", 7, 12 * 1024**3),
        ("1.5 KB", 7, 1500),
    ],
)
def test_parse_budget_reads_shares_and_sizes(text: str, peak_bytes: int, num_bytes: int) -> None:
    """A budget is a share of the peak, rounded down, or a size whatever the peak."""
    assert parse_budget(text).in_bytes(peak_bytes) == num_bytes


@pytest.mark.parametrize(
    "text", ["", "%", "half", "-50%", "50%%", "50% GiB", "0x10", "1e3", "12GiB/s", "50 percent", "nan%"]
)
def test_parse_budget_refuses_anything_else(text: str) -> None:
    """What is no budget is refused with the value and what is allowed."""
    message = f"budget: must be a share of the keep-all peak ('50%') or a size ('12GiB', bytes), got {text!r}"
    with pytest.raises(OptionError, match=rf"\A{re.escape(message)}\Z"):
        parse_budget(text)


@pytest.mark.parametrize("text", ["0", "0GiB", "0.5", "0%", "0.0 %", "2000000TiB", "100001%"])
def test_parse_budget_refuses_none_and_too_much(text: str) -> None:
    """A budget of nothing, or of more than sums can hold, is refused as a budget."""
    with pytest.raises(OptionError, match=r"\Abudget: must be "):
        parse_budget(text)


def test_budget_is_stated_in_one_way() -> None:
    """A budget is either bytes or a share, never both or neither."""
    assert Budget(num_bytes=7).in_bytes(100) == 7
    assert Budget(ratio=0.25).in_bytes(100) == 25
    for fields in ({}, {"num_bytes": 7, "ratio": 0.5}):
        with pytest.raises(OptionError, match="either in bytes or as a share"):
            Budget(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("num_bytes", [0, -1, MAX_BYTES + 1])
def test_budget_refuses_bytes_out_of_range(num_bytes: int) -> None:
    """A budget is at least one byte and at most what sums can hold."""
    with pytest.raises(OptionError, match=rf"\Abudget: must be from 1 to {MAX_BYTES} bytes, got {num_bytes}\Z"):
        Budget(num_bytes=num_bytes)


@pytest.mark.parametrize("ratio", [0.0, -0.5, 1000.5, float("nan"), float("inf")])
def test_budget_refuses_shares_out_of_range(ratio: float) -> None:
    """A share is positive, finite, and not absurd."""
    with pytest.raises(OptionError, match=r"\Abudget: must be above 0 % and at most 100000 % of the peak, got "):
        Budget(ratio=ratio)


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.00 KiB"),
        (3 * 2**19, "1.50 MiB"),
        (40 * 2**30, "40.00 GiB"),
        (-2048, "-2.00 KiB"),
    ],
)
def test_format_bytes(num_bytes: int, text: str) -> None:
    """Sizes are printed in the largest unit that leaves at least one."""
    assert format_bytes(num_bytes) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0 ms"), (1.0, "1 s"), (0.25, "250 ms"), (0.0012345, "1.234 ms"), (2e-6, "2 us"), (-0.5, "-500 ms")],
)
def test_format_seconds(seconds: float, text: str) -> None:
    """Durations are printed with four digits in seconds, milliseconds or microseconds."""
    assert format_seconds(seconds) == text


def test_parse_bytes_refuses_numbers_without_end() -> None:
    """Digits without end, and digits that are not ASCII, are refused as options, not as Python errors."""
    for text in ("9" * 400 + ".5", "9" * 5000, "\u0661\u0662"):
        with pytest.raises(OptionError, match="size: must be a number of bytes"):
            parse_bytes(text)


def test_budget_share_rounds_down_exactly() -> None:
    """29 % of 100 bytes are 29 bytes, not what binary fractions make of it."""
    assert all(parse_budget(f"{share}%").in_bytes(100) == share for share in range(1, 101))
    assert Budget(ratio=0.29).in_bytes(100) == 29


def test_budget_out_of_range_says_the_range() -> None:
    """Zero and more bytes than can be summed are refused with the range, not as if they were no sizes."""
    for text in ("0", "99999999999999999999"):
        with pytest.raises(OptionError, match=rf"budget: must be from 1 to {MAX_BYTES} bytes, got {text}"):
            parse_budget(text)
