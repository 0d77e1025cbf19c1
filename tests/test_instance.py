"""The instance: what it refuses, what follows from it, and its digest."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from pydantic import BaseModel, ValidationError

from slackswap_ilp.files import format_instance, parse_instance
from slackswap_ilp.instance import Activation, Device, Instance, Layer
from slackswap_ilp.units import MAX_BYTES
from tests.strategies import instances

DEVICE = Device(name="toy", memory_bytes=100, swap_out_bytes_per_second=1.0, swap_in_bytes_per_second=2.0)


def make_layer(
    name: str, inputs: tuple[str, ...] = (), outputs: tuple[str, ...] = (), saved: tuple[str, ...] = ()
) -> Layer:
    """Return a layer whose outputs have four bytes each."""
    return Layer(
        name=name,
        forward_seconds=1.0,
        backward_seconds=2.0,
        inputs=inputs,
        outputs=tuple(Activation(name=output, size_bytes=4) for output in outputs),
        saved=saved,
    )


def make_instance(*layers: Layer, **fields: Any) -> Instance:
    """Return an instance of some layers."""
    return Instance(name="net", device=DEVICE, layers=layers, **fields)


SMALL = make_instance(make_layer("embed", (), ("x",)), make_layer("loss", ("x",), (), ("x",)))


# --- Consistency ------------------------------------------------------------------------------------------------------


def test_activations_stand_in_order_of_production() -> None:
    """The activations of an instance are those of its layers, in order."""
    instance = make_instance(make_layer("a", (), ("z", "y")), make_layer("b"), make_layer("c", ("y",), ("x",)))
    assert [activation.name for activation in instance.activations] == ["z", "y", "x"]


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ([], "layers"),
        (
            [make_layer("a"), make_layer("a")],
            "layers[1] ('a').name: must be unique, layers[0] has the same name",
        ),
        (
            [make_layer("a", (), ("x", "x"))],
            "layers[0] ('a').outputs[1].name: must be unique, 'x' is already an output of layers[0]",
        ),
        (
            [make_layer("a", (), ("x",)), make_layer("b", (), ("y", "x"))],
            "layers[1] ('b').outputs[1].name: must be unique, 'x' is already an output of layers[0]",
        ),
        (
            [make_layer("a", ("x",))],
            "layers[0] ('a').inputs[0]: must name an output of this instance, got unknown activation 'x'",
        ),
        (
            [make_layer("a", (), ("x",)), make_layer("b", ("x", "a"))],
            "layers[1] ('b').inputs[1]: must name an output of this instance, got unknown activation 'a'",
        ),
        (
            [make_layer("a", ("x",), ("x",))],
            "layers[0] ('a').inputs[0]: must be produced by an earlier layer, 'x' is an output of layers[0]",
        ),
        (
            [make_layer("a", ("x",)), make_layer("b", (), ("x",))],
            "layers[0] ('a').inputs[0]: must be produced by an earlier layer, 'x' is an output of layers[1]",
        ),
        (
            [make_layer("a", (), (), ("x",)), make_layer("b", (), ("x",))],
            "layers[0] ('a').saved[0]: must be produced by this or an earlier layer, 'x' is an output of layers[1]",
        ),
        (
            [make_layer("a", (), ("x",)), make_layer("b", ("x", "x"))],
            "layers[1] ('b').inputs[1]: must be listed once, got 'x' again",
        ),
        ([make_layer("a", (), ("x",), ("x", "x"))], "layers[0] ('a').saved[1]: must be listed once, got 'x' again"),
    ],
)
def test_instance_refuses_inconsistent_layers(layers: list[Layer], message: str) -> None:
    """A graph that is no graph in execution order is refused, also when it is built in Python."""
    with pytest.raises(ValidationError, match=re.escape(message)):
        make_instance(*layers)


def test_instance_takes_what_only_looks_odd() -> None:
    """Legal: no inputs or outputs, an unread output, saving an old output, a layer called like an activation."""
    layers = [
        make_layer("x", (), ("x", "unread")),
        make_layer("nothing"),
        make_layer("own", (), ("y",), ("y",)),
        make_layer("old", ("y",), (), ("x",)),
    ]
    assert len(make_instance(*layers).layers) == 4


def test_instance_refuses_more_bytes_than_sums_can_hold() -> None:
    """Sizes and gradients together are at most 2**60 bytes, so that sums of them are exact everywhere."""
    half = MAX_BYTES // 2
    outputs = [Activation(name="x", size_bytes=half), Activation(name="y", size_bytes=1, gradient_bytes=half - 1)]
    layer = Layer(name="a", forward_seconds=0, backward_seconds=0, outputs=tuple(outputs))
    assert make_instance(layer).activations[1].gradient_bytes == half - 1
    outputs.append(Activation(name="z", size_bytes=1))
    layer = Layer(name="a", forward_seconds=0, backward_seconds=0, outputs=tuple(outputs))
    with pytest.raises(ValidationError, match=f"must add up to at most {MAX_BYTES} bytes, got {MAX_BYTES + 1}"):
        make_instance(layer)


def test_instance_reports_every_inconsistency_at_once() -> None:
    """One error has all that is wrong with a graph."""
    with pytest.raises(ValidationError, match=r"inputs\[0\].*name: must be unique.*saved\[0\]"):
        make_instance(make_layer("a", ("x",)), make_layer("a", (), (), ("y",)))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Activation(name="x", size_bytes=0), "greater than 0"),
        (lambda: Activation(name="x", size_bytes=True), "valid integer"),
        (lambda: Activation(name="x", size_bytes=4.0), "valid integer"),  # type: ignore[arg-type]
        (lambda: Activation(name="x", size_bytes=4, gradient_bytes=-1), "greater than or equal to 0"),
        (lambda: Activation(name="", size_bytes=4), "at least 1 character"),
        (lambda: Activation(name="\ud800", size_bytes=4), "unicode"),
        (lambda: Layer(name="a", forward_seconds=float("nan"), backward_seconds=0), "finite number"),
        (lambda: Layer(name="a", forward_seconds=float("inf"), backward_seconds=0), "finite number"),
        (lambda: Layer(name="a", forward_seconds=-1, backward_seconds=0), "greater than or equal to 0"),
        (lambda: Layer(name="a", forward_seconds=True, backward_seconds=0), "valid number"),
        (lambda: Layer(name="a", forward_seconds="1", backward_seconds=0), "valid number"),  # type: ignore[arg-type]
        (lambda: Layer(name="a", forward_seconds=1, backward_seconds=0, speed=1), "not permitted"),  # type: ignore[call-arg]
        (lambda: Device(**{**dict(DEVICE), "swap_in_bytes_per_second": 0.0}), "greater than or equal to"),
        (lambda: make_instance(*SMALL.layers, provenance={"a": {"b": [0.5, float("inf")]}}), "finite number"),
    ],
)
def test_records_refuse_bad_values(build: Callable[[], object], message: str) -> None:
    """What a file may not say, Python code may not build."""
    with pytest.raises(ValidationError, match=message):
        build()


@pytest.mark.parametrize("record", [SMALL, SMALL.device, SMALL.layers[0], SMALL.layers[0].outputs[0]])
def test_records_are_frozen(record: BaseModel) -> None:
    """No field of an instance can be set."""
    with pytest.raises(ValidationError, match="frozen"):
        record.name = "other"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("static_bytes", "budget_bytes", "available"), [(30, None, 70), (30, 50, 50), (130, None, -30)]
)
def test_available_bytes(static_bytes: int, budget_bytes: int | None, available: int) -> None:
    """The budget is the instance's own, else what the static bytes leave of the device, be it less than nothing."""
    instance = make_instance(*SMALL.layers, static_bytes=static_bytes, budget_bytes=budget_bytes)
    assert instance.available_bytes == available


# --- Digest -----------------------------------------------------------------------------------------------------------

CHANGES: list[tuple[tuple[str | int, ...], Any]] = [
    (("name",), "other"),
    (("static_bytes",), 1),
    (("budget_bytes",), 8),
    (("device", "name"), "other"),
    (("device", "memory_bytes"), 101),
    (("device", "host_memory_bytes"), 0),
    (("device", "swap_out_bytes_per_second"), 1.0000000000000002),
    (("device", "swap_in_bytes_per_second"), 1.0),
    (("device", "transfer_latency_seconds"), 5e-324),
    (("device", "duplex"), "half"),
    (("layers", 0, "name"), "other"),
    (("layers", 0, "kind"), "embedding"),
    (("layers", 0, "forward_seconds"), 2.0),
    (("layers", 0, "backward_seconds"), 1.0),
    (("layers", 1, "inputs"), []),
    (("layers", 0, "outputs"), [{"name": "x", "size_bytes": 4}, {"name": "y", "size_bytes": 4}]),
    (("layers", 1, "saved"), []),
    (("layers", 0, "forward_workspace_bytes"), 1),
    (("layers", 0, "backward_workspace_bytes"), 1),
    (("layers", 0, "recomputable"), False),
    (("layers", 1, "outputs"), [{"name": "y", "size_bytes": 4}]),
    (("layers", 0, "outputs", 0, "size_bytes"), 5),
    (("layers", 0, "outputs", 0, "gradient_bytes"), 1),
    (("layers", 0, "outputs", 0, "swappable"), False),
]


def change(path: tuple[str | int, ...], value: Any) -> Instance:
    """Return a copy of the small instance with one value changed, by way of JSON."""
    content = json.loads(format_instance(SMALL))
    place = content
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return parse_instance(json.dumps(content))


@pytest.mark.parametrize(("path", "value"), CHANGES)
def test_digest_depends_on_every_field(path: tuple[str | int, ...], value: Any) -> None:
    """A change of anything that has an effect, however small, changes the digest."""
    assert change(path, value).digest != SMALL.digest


def test_digest_changes_cover_all_fields() -> None:
    """The changes above cover every field of every record; the name of an output cannot change alone."""
    records: list[tuple[type[BaseModel], tuple[str, ...]]] = [
        (Instance, ()),
        (Device, ("device",)),
        (Layer, ("layers",)),
        (Activation, ("outputs",)),
    ]
    fields = {(*prefix, field) for record, prefix in records for field in record.model_fields}
    passed_over = {("format",), ("version",), ("description",), ("provenance",), ("device",), ("layers",)}
    changed = {tuple(step for step in path if isinstance(step, str))[-2:] for path, _ in CHANGES}
    assert changed | passed_over | {("outputs", "name")} == fields


def test_digest_depends_on_names_and_order() -> None:
    """Renaming an activation everywhere, or the order of layers, inputs and outputs, changes the digest."""
    renamed = parse_instance(format_instance(SMALL).replace('"x"', '"y"'))
    two = [make_layer("a", (), ("x", "y")), make_layer("b", ("x", "y"))]
    digests = {
        renamed.digest,
        SMALL.digest,
        make_instance(*two).digest,
        make_instance(make_layer("a", (), ("y", "x")), two[1]).digest,
        make_instance(two[0], make_layer("b", ("y", "x"))).digest,
        make_instance(make_layer("a"), make_layer("b")).digest,
        make_instance(make_layer("b"), make_layer("a")).digest,
    }
    assert len(digests) == 7


@pytest.mark.parametrize(
    ("path", "value"), [(("description",), "a text"), (("provenance",), {"measured": "yesterday", "runs": 3})]
)
def test_digest_is_blind_to_what_has_no_effect(path: tuple[str | int, ...], value: Any) -> None:
    """Description and provenance can change under the plans that were made."""
    assert change(path, value).digest == SMALL.digest


@pytest.mark.parametrize(
    ("old", "new"), [("2.0", "2"), ("2.0", "2e0"), ("2.0", "0.2E+1"), ("2.0", "2.00"), ("x", r"\u0078")]
)
def test_digest_is_blind_to_spelling(old: str, new: str) -> None:
    """The digest is of the values, not of how a file spells them."""
    text = format_instance(SMALL).replace(old, new)
    assert text != format_instance(SMALL)
    assert parse_instance(text).digest == SMALL.digest


def test_digest_is_blind_to_defaults() -> None:
    """A field that is left out and one that is given its default are the same."""
    text = (
        '{"format": "slackswap-instance", "version": 1, "name": "net", "device": {"name": "toy", "memory_bytes": 100,'
        ' "swap_out_bytes_per_second": 1, "swap_in_bytes_per_second": 2}, "layers": [{"name": "embed",'
        ' "forward_seconds": 1, "backward_seconds": 2, "outputs": [{"name": "x", "size_bytes": 4}]},'
        ' {"name": "loss", "forward_seconds": 1, "backward_seconds": 2, "inputs": ["x"], "saved": ["x"]}]}'
    )
    assert parse_instance(text).digest == SMALL.digest


def test_digest_is_the_same_everywhere() -> None:
    """The digest of an instance is the same on every machine and in every version of this format."""
    assert SMALL.digest == "sha256:77b8ff65859be86c28d1380f869cafa3c5e07bef7c39cbdc5fd050b85e91e07e"


@given(instances())
@settings(deadline=None)
def test_digest_is_that_of_equals(instance: Instance) -> None:
    """Equal instances have equal digests, and a digest has the form that plans accept."""
    assert Instance.model_validate(dict(instance)).digest == instance.digest
    assert re.fullmatch("sha256:[0-9a-f]{64}", instance.digest)


def test_negative_zero_counts_as_zero() -> None:
    """A duration of -0.0 is zero, and makes no other digest."""
    zero, negative = (
        Instance(name="net", device=DEVICE, layers=(Layer(name="l", forward_seconds=value, backward_seconds=1.0),))
        for value in (0.0, -0.0)
    )
    assert zero.digest == negative.digest


def test_names_have_no_control_characters() -> None:
    """An escape sequence in a name would reach the terminal."""
    with pytest.raises(ValidationError, match="should match pattern"):
        Activation(name="\x1b[2J", size_bytes=1)
