"""Reading and writing: round trips, the canonical form, messages, and writing as a whole or not at all."""

import gc
import json
import os
import random
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slackswap_ilp.errors import InputError, InstanceError, PlanError
from slackswap_ilp.files import (
    format_instance,
    format_plan,
    parse_instance,
    parse_plan,
    read_instance,
    read_plan,
    write_instance,
    write_plan,
    write_text,
)
from slackswap_ilp.instance import Activation, Device, Instance, Layer
from slackswap_ilp.plan import KEEP, RECOMPUTE, Plan, Swap
from slackswap_ilp.simulator import simulate
from slackswap_ilp.units import MAX_BYTES
from tests.strategies import instances, instances_with_plans

LAYER = (
    '{"name": "matmul", "forward_seconds": 1.0, "backward_seconds": 2.0, "outputs": [{"name": "y", "size_bytes": 4}]}'
)
DEVICE = '{"name": "toy", "memory_bytes": 9, "swap_out_bytes_per_second": 1.0, "swap_in_bytes_per_second": 1.0}'
HEADER = '"format": "slackswap-instance", "version": 1, "name": "one layer"'
SMALL = f'{{{HEADER}, "device": {DEVICE}, "layers": [{LAYER}]}}'

names = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1)
seconds = st.floats(min_value=0, max_value=1e9, allow_nan=False)
rates = st.floats(min_value=1e-6, allow_nan=False, allow_infinity=False)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | names,
    lambda values: st.lists(values, max_size=3) | st.dictionaries(names, values, max_size=3),
    max_leaves=6,
)


@st.composite
def odd_instances(draw: st.DrawFn) -> Instance:
    """Draw an instance of one layer with extreme numbers and any names."""
    out = Activation(
        name=draw(names),
        size_bytes=draw(st.integers(1, MAX_BYTES // 2)),
        gradient_bytes=draw(st.integers(0, MAX_BYTES // 2)),
        swappable=draw(st.booleans()),
    )
    layer = Layer(
        name=draw(names),
        kind=draw(st.text()),
        forward_seconds=draw(seconds),
        backward_seconds=draw(seconds),
        outputs=(out,),
        saved=draw(st.sampled_from([(), (out.name,)])),
        forward_workspace_bytes=draw(st.integers(0, MAX_BYTES)),
        recomputable=draw(st.booleans()),
    )
    device = Device(
        name=draw(names),
        memory_bytes=draw(st.integers(1, MAX_BYTES)),
        host_memory_bytes=draw(st.none() | st.integers(0, MAX_BYTES)),
        swap_out_bytes_per_second=draw(rates),
        swap_in_bytes_per_second=draw(rates),
        transfer_latency_seconds=draw(seconds),
        duplex=draw(st.sampled_from(["full", "half"])),
    )
    return Instance(
        name=draw(names),
        description=draw(st.text()),
        provenance=draw(st.dictionaries(names, json_values, max_size=3)),
        device=device,
        static_bytes=draw(st.integers(0, MAX_BYTES)),
        budget_bytes=draw(st.none() | st.integers(1, MAX_BYTES)),
        layers=(layer,),
    )


def make_chain(num_layers: int) -> Instance:
    """Return a chain of layers with one output each."""
    device = Device(name="toy", memory_bytes=100, swap_out_bytes_per_second=1.0, swap_in_bytes_per_second=1.0)
    layers = [
        Layer(
            name=f"layer{index}",
            forward_seconds=1.5,
            backward_seconds=2.5,
            inputs=(f"a{index - 1}",) if index else (),
            outputs=(Activation(name=f"a{index}", size_bytes=index + 1),),
            saved=(f"a{index}",),
        )
        for index in range(num_layers)
    ]
    return Instance(name="chain", device=device, layers=tuple(layers))


# --- Round trips and the canonical form -------------------------------------------------------------------------------


@given(instances())
@settings(deadline=None)
def test_instance_survives_the_round_trip(instance: Instance) -> None:
    """An instance that is written and read again is the same, and so are its digest and its text."""
    text = format_instance(instance)
    again = parse_instance(text)
    assert again == instance
    assert again.digest == instance.digest
    assert format_instance(again) == text


@given(odd_instances())
@settings(deadline=None)
def test_odd_instance_survives_the_round_trip(instance: Instance) -> None:
    """Extreme numbers, any characters in names and any JSON in the provenance survive to the last bit."""
    text = format_instance(instance)
    again = parse_instance(text.encode())
    assert again == instance
    assert again.digest == instance.digest
    assert format_instance(again) == text


@given(instances_with_plans())
@settings(deadline=None)
def test_plan_survives_the_round_trip(drawn: tuple[Instance, Plan]) -> None:
    """A plan that is written and read again is the same, in the same order, and takes the same time to the last bit."""
    instance, plan = drawn
    text = format_plan(plan)
    again = parse_plan(text)
    assert again == plan
    assert list(again.activations) == list(plan.activations)
    assert format_plan(again) == text
    assert simulate(parse_instance(format_instance(instance)), again) == simulate(instance, plan)


@given(st.dictionaries(names, st.sampled_from([KEEP, RECOMPUTE, Swap(release_slot="F1", fetch_slot="R0")])))
@settings(deadline=None)
def test_plan_with_any_names_survives_the_round_trip(activations: dict[str, Any]) -> None:
    """Activations may have any name but the empty one, those of actions and fields included."""
    plan = Plan(instance="any", activations={**activations, "swap": KEEP, "[key]": RECOMPUTE, "action": KEEP})
    assert parse_plan(format_plan(plan)) == plan


def test_format_instance_writes_every_field_and_one_line_per_layer() -> None:
    """The canonical form of an instance spells out defaults, and every layer has a line."""
    assert format_instance(parse_instance(SMALL)) == (
        "{\n"
        '  "format": "slackswap-instance",\n'
        '  "version": 1,\n'
        '  "name": "one layer",\n'
        '  "description": "",\n'
        '  "provenance": {},\n'
        '  "device": {\n'
        '    "name": "toy",\n'
        '    "memory_bytes": 9,\n'
        '    "host_memory_bytes": null,\n'
        '    "swap_out_bytes_per_second": 1.0,\n'
        '    "swap_in_bytes_per_second": 1.0,\n'
        '    "transfer_latency_seconds": 0.0,\n'
        '    "duplex": "full"\n'
        "  },\n"
        '  "static_bytes": 0,\n'
        '  "budget_bytes": null,\n'
        '  "layers": [\n'
        '    {"name": "matmul", "kind": "", "forward_seconds": 1.0, "backward_seconds": 2.0, "inputs": [],'
        ' "outputs": [{"name": "y", "size_bytes": 4, "gradient_bytes": 0, "swappable": true}], "saved": [],'
        ' "forward_workspace_bytes": 0, "backward_workspace_bytes": 0, "recomputable": true}\n'
        "  ]\n"
        "}\n"
    )


def test_format_plan_writes_one_line_per_activation() -> None:
    """The canonical form of a plan has every activation on a line, in the plan's order."""
    swap = Swap(release_slot="F2", fetch_slot="R1")
    assert format_plan(Plan(instance="é", activations={"b": KEEP, "a": swap, "c": RECOMPUTE})) == (
        "{\n"
        '  "format": "slackswap-plan",\n'
        '  "version": 1,\n'
        '  "instance": "é",\n'
        '  "instance_digest": null,\n'
        '  "budget_bytes": null,\n'
        '  "activations": {\n'
        '    "b": {"action": "keep"},\n'
        '    "a": {"action": "swap", "release_slot": "F2", "fetch_slot": "R1"},\n'
        '    "c": {"action": "recompute"}\n'
        "  }\n"
        "}\n"
    )


def test_canonical_text_is_that_of_any_other_spelling() -> None:
    """White space, the order of fields, escapes and the spelling of numbers leave no trace in the canonical form."""
    fields = json.loads(SMALL.replace("1.0", "10e-1").replace("2.0", "2"))
    shuffled = json.dumps(dict(reversed(fields.items())), indent=7).replace("matmul", r"mat\u006dul")
    assert format_instance(parse_instance(shuffled)) == format_instance(parse_instance(SMALL))


@pytest.mark.parametrize("text", ["\ufeff" + SMALL, ("\ufeff" + SMALL).encode(), f"\r\n{SMALL}\r\n".encode()])
def test_parse_instance_passes_over_marks_that_editors_leave(text: str | bytes) -> None:
    """A byte order mark before the text, and white space and carriage returns around it, are no error."""
    assert parse_instance(text) == parse_instance(SMALL)


# --- Messages ---------------------------------------------------------------------------------------------------------


def test_parse_instance_reports_all_errors_in_order_of_the_file() -> None:
    """One message has every wrong field, each with its path, its value, and what is allowed."""
    text = SMALL.replace('"size_bytes": 4', '"size_bytes": -1').replace('"memory_bytes": 9', '"memory_bytes": "9"')
    with pytest.raises(InstanceError, match=r"\Anet\.json: ") as caught:
        parse_instance(text.replace("2.0", "NaN"), source="net.json")
    assert str(caught.value).splitlines() == [
        "net.json: device.memory_bytes: must be an integer, got '9'",
        "net.json: layers[0] ('matmul').backward_seconds: must be a finite number, got NaN",
        "net.json: layers[0] ('matmul').outputs[0].size_bytes: must be positive, got -1",
    ]


def test_parse_instance_shows_the_first_twenty_errors() -> None:
    """A file with a thousand errors gets a message of twenty, and the number of the rest."""
    layers = ", ".join(LAYER.replace("4", "0") for _ in range(1000))
    with pytest.raises(InstanceError, match=r"layers\[19\][^\n]*, got 0\ninstance: \.\.\. and 980 more\Z"):
        parse_instance(SMALL.replace(LAYER, layers))


def test_parse_instance_shortens_long_values() -> None:
    """A value of thousands of characters is shown by its beginning."""
    with pytest.raises(InstanceError, match=r"size_bytes: must be an integer, got '9{59}\.\.\.\Z"):
        parse_instance(SMALL.replace('"size_bytes": 4', f'"size_bytes": "{"9" * 9999}"'))


def test_parse_reports_nothing_but_the_format_if_that_is_wrong() -> None:
    """A plan handed over as an instance, or the other way round, is called that, not a list of unknown fields."""
    plan = format_plan(Plan(instance="x", activations={}))
    with pytest.raises(InstanceError, match=r"\Ax: format: must be 'slackswap-instance', got 'slackswap-plan'\Z"):
        parse_instance(plan, source="x")
    with pytest.raises(PlanError, match=r"\Ax: format: must be 'slackswap-plan', got 'slackswap-instance'\Z"):
        parse_plan(SMALL, source="x")


def test_parse_plan_finds_a_name_twice_among_many() -> None:
    """A name that stands twice is found among a hundred thousand."""
    decisions = ", ".join(f'"a{index}": {{"action": "keep"}}' for index in [*range(100_000), 99_999])
    text = f'{{"format": "slackswap-plan", "version": 1, "instance": "x", "activations": {{{decisions}}}}}'
    with pytest.raises(PlanError, match=r"\Aplan: 'a99999' must stand once in an object, found it twice\Z"):
        parse_plan(text)


@pytest.mark.parametrize("name", ["", "folder"])
def test_read_refuses_what_is_not_a_file(tmp_path: Path, name: str) -> None:
    """A folder in place of a file is an error with its path and the reason."""
    (tmp_path / "folder").mkdir()
    with pytest.raises(InstanceError, match=rf"\A{tmp_path / name}: cannot be read: Is a directory\Z"):
        read_instance(tmp_path / name)


def test_read_refuses_a_missing_file(tmp_path: Path) -> None:
    """A missing file is an error with its path and the reason."""
    with pytest.raises(InstanceError, match=r"none\.json: cannot be read: No such file or directory\Z"):
        read_instance(tmp_path / "none.json")
    with pytest.raises(PlanError, match=r"none\.json: cannot be read: No such file or directory\Z"):
        read_plan(str(tmp_path / "none.json"))


@given(st.binary() | st.text())
@settings(deadline=None)
def test_parse_refuses_any_garbage_in_words(text: bytes | str) -> None:
    """Whatever the bytes, parsing raises an error of the package and no other."""
    with pytest.raises(InstanceError, match=r"\Ainstance: "):
        parse_instance(text)
    with pytest.raises(PlanError, match=r"\Aplan: "):
        parse_plan(text)


@given(st.randoms(use_true_random=False))
@settings(deadline=None)
def test_parse_refuses_any_damage_in_words_or_reads_what_can_be_written(rng: random.Random) -> None:
    """A file with some values replaced is either refused in words, or read as what writes and reads the same."""
    content = json.loads(SMALL)
    for _ in range(rng.randint(1, 3)):
        _damage(content, rng)
    try:
        instance = parse_instance(json.dumps(content))
    except InstanceError as error:
        assert str(error).startswith("instance: ")  # noqa: PT017 - either outcome is right
    else:
        assert parse_instance(format_instance(instance)) == instance


def _damage(content: Any, rng: random.Random) -> None:
    """Replace or remove one value somewhere in JSON, in place."""
    steps = list(content) if isinstance(content, dict) else list(range(len(content)))
    if not steps:
        return
    step = rng.choice(steps)
    if isinstance(content[step], dict | list) and rng.random() < 0.8:
        _damage(content[step], rng)
    elif rng.random() < 0.2:
        del content[step]
    else:
        odd: tuple[Any, ...] = (
            None,
            True,
            -1,
            0,
            2,
            2.5,
            2**64,
            1e300,
            float("nan"),
            float("inf"),
            "",
            "y",
            [],
            ["y"],
            {},
            {"name": 1},
        )
        content[step] = rng.choice(odd)


def test_parse_leaves_the_garbage_collector_as_it_was() -> None:
    """The garbage collector, which rests while a file is parsed, runs again after success and failure alike."""
    assert gc.isenabled()
    parse_instance(SMALL)
    assert gc.isenabled()
    with pytest.raises(InstanceError, match="must be positive"):
        parse_instance(SMALL.replace('"size_bytes": 4', '"size_bytes": 0'))
    assert gc.isenabled()
    gc.disable()
    try:
        parse_instance(SMALL)
        assert not gc.isenabled()
    finally:
        gc.enable()


# --- Files ------------------------------------------------------------------------------------------------------------


def test_write_then_read_gives_the_same(tmp_path: Path) -> None:
    """What is written to a file is read from it, and nothing else is left in the folder."""
    instance, plan = parse_instance(SMALL), Plan(instance="one layer", activations={"y": KEEP})
    write_instance(tmp_path / "instance.json", instance)
    write_plan(str(tmp_path / "plan.json"), plan)
    assert read_instance(str(tmp_path / "instance.json")) == instance
    assert read_plan(tmp_path / "plan.json") == plan
    assert sorted(path.name for path in tmp_path.iterdir()) == ["instance.json", "plan.json"]


def test_write_text_replaces_a_file_and_keeps_its_permissions(tmp_path: Path) -> None:
    """An existing file gets the new text and keeps its permissions; a new one gets those of any new file."""
    private, public, usual = tmp_path / "private", tmp_path / "public", tmp_path / "usual"
    private.write_text("a longer text than before")
    private.chmod(0o600)
    usual.touch()
    write_text(private, "new")
    write_text(public, "new")
    assert private.read_text() == public.read_text() == "new"
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    assert public.stat().st_mode == usual.stat().st_mode


def test_write_text_follows_a_link(tmp_path: Path) -> None:
    """Writing to a link changes the file it leads to, and leaves the link."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "folder" / "file")
    for text in ("first", "second"):
        write_text(tmp_path / "link", text)
        assert (tmp_path / "folder" / "file").read_text() == text
        assert (tmp_path / "link").is_symlink()


def test_write_text_writes_into_a_pipe(tmp_path: Path) -> None:
    """What is no regular file is written to, not replaced."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_text(pipe, "text")
        assert os.read(reader, 100) == b"text"
    finally:
        os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("missing/plan.json", "No such file or directory"),
        ("file/plan.json", "Not a directory"),
        ("folder", "Is a directory"),
        ("n" * 300, "File name too long"),
    ],
)
def test_write_text_refuses_impossible_paths(tmp_path: Path, name: str, reason: str) -> None:
    """A path that cannot be written is an error with the path and the reason, and leaves nothing behind."""
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match=rf"\A{tmp_path / name}: cannot be written: {reason}\Z"):
        write_text(tmp_path / name, "text")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "folder"]


def test_write_text_refuses_a_folder_without_permission(tmp_path: Path) -> None:
    """A folder without write permission is an error with the path and the reason; the file in it is kept."""
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    (tmp_path / "plan.json").write_text("old")
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(InputError, match=r"plan\.json: cannot be written: Permission denied\Z"):
            write_text(tmp_path / "plan.json", "new")
    finally:
        tmp_path.chmod(0o700)
    assert (tmp_path / "plan.json").read_text() == "old"


@pytest.mark.parametrize("step", ["open", "replace"])
def test_write_text_keeps_the_old_file_if_it_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """A failure at any step leaves the old file as it was, and nothing beside it."""
    target = tmp_path / "plan.json"
    target.write_text("old")

    def fail(*_arguments: Any, **_options: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, step, fail)
        with pytest.raises(InputError, match=r"plan\.json: cannot be written: No space left on device\Z"):
            write_text(target, "new")
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_write_text_keeps_the_old_file_if_it_is_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C before the new file is complete leaves the old one as it was, and nothing beside it."""
    target = tmp_path / "plan.json"
    target.write_text("old")

    def interrupt(_path: Path, _target: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt, match=r"\A\Z"):
        write_text(target, "new")
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


# --- Size -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_layers", [20_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_large_instance_survives_the_file(tmp_path: Path, num_layers: int) -> None:
    """An instance of many layers is written, read and validated."""
    instance = make_chain(num_layers)
    write_instance(tmp_path / "large.json", instance)
    again = read_instance(tmp_path / "large.json")
    assert len(again.layers) == num_layers
    assert again.digest == instance.digest


def test_large_instance_is_still_checked() -> None:
    """In an instance of many layers a single bad reference is found and named."""
    text = format_instance(make_chain(20_000)).replace('"inputs": ["a19998"]', '"inputs": ["a19999"]')
    with pytest.raises(
        InstanceError, match=r"layers\[19999\] \('layer19999'\)\.inputs\[0\]: must be produced by an ear"
    ):
        parse_instance(text)
