"""The numbering and the names of slots."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slackswap_ilp.slots import (
    backward_slot,
    forward_slot,
    num_slots,
    parse_slot,
    recompute_slot,
    slot_layer,
    slot_name,
)

# All slots of three layers, in order of time, as docs/semantics.md has them.
THREE_LAYERS = ["F0", "F1", "F2", "R2", "B2", "R1", "B1", "R0", "B0"]


def test_slots_stand_in_order_of_time() -> None:
    """Forward slots come first, then from the last layer to the first its recompute and its backward slot."""
    assert [slot_name(slot, 3) for slot in range(num_slots(3))] == THREE_LAYERS
    assert [parse_slot(name, 3) for name in THREE_LAYERS] == list(range(9))
    assert [forward_slot(layer) for layer in range(3)] == [0, 1, 2]
    assert [recompute_slot(layer, 3) for layer in range(3)] == [7, 5, 3]
    assert [backward_slot(layer, 3) for layer in range(3)] == [8, 6, 4]
    assert [slot_layer(slot, 3) for slot in range(9)] == [0, 1, 2, 2, 2, 1, 1, 0, 0]


def test_one_layer_has_three_slots() -> None:
    """The smallest step is F0, R0, B0."""
    assert [slot_name(slot, 1) for slot in range(num_slots(1))] == ["F0", "R0", "B0"]


@given(st.integers(1, 10**6).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, num_slots(n) - 1))))
@settings(deadline=None)
def test_slot_survives_its_name(drawn: tuple[int, int]) -> None:
    """Number to name and back is the same slot, of the layer in its name, in steps of any length."""
    num_layers, slot = drawn
    name = slot_name(slot, num_layers)
    assert parse_slot(name, num_layers) == slot
    assert name[1:] == str(slot_layer(slot, num_layers))


@given(st.integers(1, 50))
@settings(deadline=None)
def test_slots_are_numbered_without_gaps(num_layers: int) -> None:
    """The forward, recompute and backward slots of all layers are all the slots, once each."""
    layers = range(num_layers)
    slots = [forward_slot(layer) for layer in layers]
    slots += [recompute_slot(layer, num_layers) for layer in layers]
    slots += [backward_slot(layer, num_layers) for layer in layers]
    assert sorted(slots) == list(range(num_slots(num_layers)))


@pytest.mark.parametrize(
    "name",
    [
        "",
        "F",
        "F3",
        "R3",
        "B99",
        "F00",
        "F01",
        "F-1",
        "f1",
        "C1",
        "1",
        "F1 ",
        " F1",
        "F1.0",
        "F1F2",
        "F²",
        "F\uff11",
        "F1000000000",
    ],
)
def test_parse_slot_knows_no_other_names(name: str) -> None:
    """What is not exactly the name of a slot of a step of three layers is none."""
    assert parse_slot(name, 3) is None


def test_parse_slot_takes_the_whole_text() -> None:
    """A slot's name ends where the text ends, a line break is not passed over."""
    assert parse_slot("B1\n", 2) is None
