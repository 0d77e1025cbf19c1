"""The commands about files: ``validate``, ``generate`` and ``schema``."""

import json as json_module
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import typer
from pydantic import BaseModel

from slackswap_ilp.analysis import keep_all_peak, make_graph
from slackswap_ilp.cli.options import Json
from slackswap_ilp.cli.streams import (
    STANDARD,
    check_sources,
    check_target,
    name_source,
    print_json,
    read_source,
    write_stderr,
    write_stdout,
)
from slackswap_ilp.devices import DEFAULT_DEVICE, GPUS
from slackswap_ilp.errors import InputError
from slackswap_ilp.files import format_instance, parse_instance, parse_plan, write_instance
from slackswap_ilp.instance import Instance
from slackswap_ilp.models import presets
from slackswap_ilp.models.options import Attention, Granularity
from slackswap_ilp.plan import Plan
from slackswap_ilp.report.tables import show_name
from slackswap_ilp.result import Result
from slackswap_ilp.units import format_bytes, format_seconds

INVALID_CODE = 2

_SCHEMAS: Final[Mapping[str, type[BaseModel]]] = {"instance": Instance, "plan": Plan, "result": Result}
_KINDS: Final = {"slackswap-instance": "instance", "slackswap-plan": "plan"}
_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


@dataclass(frozen=True, slots=True)
class _Verdict:
    """What is to be said of one file."""

    file: str
    is_valid: bool
    kind: str | None
    description: str | None
    errors: tuple[str, ...]


def validate(
    *,
    files: Annotated[
        list[str],
        typer.Argument(metavar="FILE...", show_default=False, help="Files of instances and plans, '-' for stdin."),
    ],
    json: Json = False,
) -> None:
    """Check files, and list all that is wrong with them.

    Exit code 2: a file is not valid.
    """
    check_sources(files)
    verdicts = [_judge(file) for file in files]
    if json:
        print_json({"files": [asdict(verdict) for verdict in verdicts]})
    else:
        for verdict in verdicts:
            if verdict.is_valid:
                write_stdout(f"{show_name(verdict.file)}: valid {verdict.kind}, {verdict.description}\n")
            else:
                write_stderr("".join(f"error: {line}\n" for line in verdict.errors))
    raise typer.Exit(0 if all(verdict.is_valid for verdict in verdicts) else INVALID_CODE)


def _judge(file: str) -> _Verdict:
    """Read a file as what its field `format` says it is."""
    source = name_source(file)
    try:
        text = read_source(file)
        kind = _find_kind(text, source)
        if kind == "plan":
            description = _describe_plan(parse_plan(text, source=source))
        else:
            description = _describe_instance(parse_instance(text, source=source))
    except InputError as error:
        return _Verdict(source, is_valid=False, kind=None, description=None, errors=tuple(str(error).splitlines()))
    return _Verdict(source, is_valid=True, kind=kind, description=description, errors=())


def _find_kind(text: bytes, source: str) -> str:
    """Return what the field `format` says a file holds; what is no JSON object is for the reader to refuse."""
    try:
        content: Any = json_module.loads(text)
    except (ValueError, RecursionError):
        return "instance"
    if not isinstance(content, dict):
        return "instance"
    found = content.get("format")
    if isinstance(found, str) and found in _KINDS:
        return _KINDS[found]
    what = f"got {found!r}" if "format" in content else "it is missing"
    raise InputError(f"{source}: format: must be {' or '.join(map(repr, _KINDS))}, {what}")


def _describe_instance(instance: Instance) -> str:
    """Return the size of an instance in words."""
    graph = make_graph(instance)
    return (
        f"{len(instance.layers)} layers, {len(instance.activations)} activations,"
        f" keep-all peak {format_bytes(keep_all_peak(graph))}, ideal step {format_seconds(graph.ideal_seconds)}"
    )


def _describe_plan(plan: Plan) -> str:
    """Return the size of a plan in words."""
    return f"{len(plan.activations)} activations, to be simulated with instance {show_name(plan.instance)}"


def generate(
    *,
    model: Annotated[
        str, typer.Argument(metavar="MODEL", show_default=False, help=f"One of {', '.join(presets.PRESETS)}.")
    ],
    device: Annotated[str, typer.Option(metavar="NAME", help=f"One of {', '.join(GPUS)}.")] = DEFAULT_DEVICE,
    layers: Annotated[int | None, typer.Option(show_default=False, help="Transformer blocks.")] = None,
    hidden_size: Annotated[int | None, typer.Option(show_default=False, help="Width of the residual stream.")] = None,
    heads: Annotated[int | None, typer.Option(show_default=False, help="Attention heads.")] = None,
    key_value_heads: Annotated[
        int | None, typer.Option(show_default=False, help="Heads of keys and values (grouped-query attention).")
    ] = None,
    feed_forward_size: Annotated[
        int | None, typer.Option(show_default=False, help="Width inside the feed-forward network.")
    ] = None,
    vocabulary_size: Annotated[int | None, typer.Option(show_default=False, help="Entries of the vocabulary.")] = None,
    batch: Annotated[int | None, typer.Option(show_default=False, help="Sequences per step.")] = None,
    sequence: Annotated[int | None, typer.Option(show_default=False, help="Tokens per sequence.")] = None,
    attention: Annotated[
        Attention | None, typer.Option(show_default=False, help="One kernel, or scores, softmax and context.")
    ] = None,
    dropout: Annotated[float | None, typer.Option(show_default=False, help="Dropout probability.")] = None,
    granularity: Annotated[Granularity, typer.Option(help="One layer per operator or per block.")] = "operator",
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", show_default=False, help="File to write; default: stdout.")
    ] = None,
) -> None:
    """Generate an instance of a known model.

    An instance is one training step. Options change what the command `models` lists as the model's defaults.
    """
    is_file = output is not None and str(output) != STANDARD
    check_target(output if is_file else None)
    instance = presets.generate(
        model,
        device=device,
        layers=layers,
        hidden_size=hidden_size,
        heads=heads,
        key_value_heads=key_value_heads,
        feed_forward_size=feed_forward_size,
        vocabulary_size=vocabulary_size,
        batch=batch,
        sequence=sequence,
        attention=attention,
        dropout=dropout,
        granularity=granularity,
    )
    if output is None or not is_file:
        write_stdout(format_instance(instance))
        return
    write_instance(output, instance)
    write_stdout(
        f"{show_name(str(output))}: wrote instance {show_name(instance.name)}, {_describe_instance(instance)}\n"
    )


def schema(
    *,
    kind: Annotated[
        Literal["instance", "plan", "result"],
        typer.Argument(metavar="instance|plan|result", show_default=False, help="What to describe."),
    ],
) -> None:
    """Print the JSON Schema of an instance, a plan or a result."""
    mode: Final = "serialization" if kind == "result" else "validation"
    content = _SCHEMAS[kind].model_json_schema(mode=mode)
    if kind == "result":
        content["required"] = list(content["properties"])
    else:  # read files must say what they are, records made in Python need not
        content["required"] = ["format", "version", *content["required"]]
    print_json({"$schema": _DIALECT, **content})
