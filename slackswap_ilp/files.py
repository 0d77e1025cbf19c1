"""JSON in and out: reading instances and plans with precise messages, writing them in one canonical form."""

import json
import os
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from slackswap_ilp.errors import InputError, InstanceError, PlanError
from slackswap_ilp.instance import VIOLATIONS, Activation, Device, Instance, Layer
from slackswap_ilp.plan import Keep, Plan, Recompute, Swap

_MAX_SHOWN_ERRORS: Final = 20
_MAX_SHOWN_VALUE: Final = 60
_CLOSING: Final = "\n}"
_RECORDS: Final[Mapping[str, type[BaseModel]]] = {"device": Device, "layers": Layer, "outputs": Activation}
_DECISIONS: Final[Mapping[str, type[BaseModel]]] = {"keep": Keep, "recompute": Recompute, "swap": Swap}
_EXPECTED: Final[Mapping[str, str]] = {
    "int_type": "must be an integer",
    "int_from_float": "must be an integer",
    "int_parsing_size": "must be an integer of at most 2**60",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
    "string_type": "must be a text",
    "string_too_short": "must not be empty",
    "bool_type": "must be true or false",
    "tuple_type": "must be a list",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
    "too_short": "must not be empty",
}

Record = TypeVar("Record", bound=BaseModel)


class _DuplicateKeyError(ValueError):
    pass


def read_instance(path: str | os.PathLike[str]) -> Instance:
    """Read an instance from a JSON file.

    Raises
    ------
    InstanceError
        If the file cannot be read, is not JSON, or is not a consistent instance; the message lists every finding.
    """
    return parse_instance(_read_text(path, InstanceError), source=os.fspath(path))


def read_plan(path: str | os.PathLike[str]) -> Plan:
    """Read a plan from a JSON file.

    Raises
    ------
    PlanError
        If the file cannot be read, is not JSON, or is not a plan; the message lists every finding.
    """
    return parse_plan(_read_text(path, PlanError), source=os.fspath(path))


def parse_instance(text: str | bytes, *, source: str = "instance") -> Instance:
    """Parse an instance from JSON text; `source` opens every error message."""
    return _parse(Instance, text, source, InstanceError)


def parse_plan(text: str | bytes, *, source: str = "plan") -> Plan:
    """Parse a plan from JSON text; `source` opens every error message."""
    return _parse(Plan, text, source, PlanError)


def format_instance(instance: Instance) -> str:
    """Return the canonical JSON text of an instance: one line per layer."""
    content = instance.model_dump(mode="json")
    layers = content.pop("layers")
    head = json.dumps(content, indent=2, ensure_ascii=False)
    body = ",\n".join(f"    {json.dumps(layer, ensure_ascii=False)}" for layer in layers)
    return f'{head.removesuffix(_CLOSING)},\n  "layers": [\n{body}\n  ]\n}}\n'


def format_plan(plan: Plan) -> str:
    """Return the canonical JSON text of a plan: one line per activation, in order of production."""
    content = plan.model_dump(mode="json")
    decisions = content.pop("activations")
    head = json.dumps(content, indent=2, ensure_ascii=False)
    body = ",\n".join(
        f"    {json.dumps(name, ensure_ascii=False)}: {json.dumps(decision, ensure_ascii=False)}"
        for name, decision in decisions.items()
    )
    return f'{head.removesuffix(_CLOSING)},\n  "activations": {{\n{body}\n  }}\n}}\n'


def write_instance(path: str | os.PathLike[str], instance: Instance) -> None:
    """Write an instance as JSON, as a whole or not at all; raises `InputError` if that is not possible."""
    write_text(path, format_instance(instance))


def write_plan(path: str | os.PathLike[str], plan: Plan) -> None:
    """Write a plan as JSON, as a whole or not at all; raises `InputError` if that is not possible."""
    write_text(path, format_plan(plan))


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a file as a whole or not at all.

    Raises
    ------
    InputError
        If the file cannot be written.
    """
    target = Path(path)
    if target.exists() and not target.is_file():
        _write_to_special(target, text)
        return
    temporary: str | None = None
    try:
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", dir=target.parent, prefix=f".{target.name}.", delete=False
        ) as stream:
            temporary = stream.name
            stream.write(text)
        mask = os.umask(0)
        os.umask(mask)
        Path(temporary).chmod(0o666 & ~mask)
        Path(temporary).replace(target)
    except OSError as error:
        raise InputError(f"{target}: cannot be written: {error.strerror or error}") from error
    finally:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)


def _write_to_special(target: Path, text: str) -> None:
    """Write to something that is no regular file, such as a pipe or /dev/stdout."""
    try:
        target.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{target}: cannot be written: {error.strerror or error}") from error


def _read_text(path: str | os.PathLike[str], error_type: type[InputError]) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise error_type(f"{os.fspath(path)}: cannot be read: {error.strerror or error}") from error


def _parse(record: type[Record], text: str | bytes, source: str, error_type: type[InputError]) -> Record:
    """Validate JSON text as a record, translating every finding into one line."""
    raw = _load_json(text, source, error_type)
    try:
        return record.model_validate_json(text)
    except ValidationError as error:
        lines = [line for detail in error.errors(include_url=False) for line in _describe(detail, raw, record)]
    shown = lines[:_MAX_SHOWN_ERRORS]
    if len(lines) > len(shown):
        shown.append(f"... and {len(lines) - len(shown)} more")
    raise error_type("\n".join(f"{source}: {line}" for line in shown))


def _load_json(text: str | bytes, source: str, error_type: type[InputError]) -> Any:
    """Parse JSON, refusing what parsers pass over in silence: names that stand twice in one object."""

    def refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        content = dict(pairs)
        if len(content) < len(pairs):
            names = [name for name, _ in pairs]
            raise _DuplicateKeyError(next(name for name in names if names.count(name) > 1))
        return content

    try:
        return json.loads(text, object_pairs_hook=refuse_duplicates)
    except _DuplicateKeyError as error:
        raise error_type(f"{source}: {error.args[0]!r} must stand once in an object, found it twice") from error
    except UnicodeDecodeError as error:
        raise error_type(f"{source}: must be UTF-8 text: {error.reason} at byte {error.start}") from error
    except json.JSONDecodeError as error:
        reason = "is empty" if not text.strip() else f"{error.msg} at line {error.lineno}, column {error.colno}"
        raise error_type(f"{source}: must be JSON: {reason}") from error
    except RecursionError as error:
        raise error_type(f"{source}: must be JSON: it is nested too deeply") from error
    except ValueError as error:  # a number with more digits than Python converts
        raise error_type(f"{source}: must be JSON with numbers of sane length: {error}") from error


def _describe(detail: ErrorDetails, raw: Any, record: type[BaseModel]) -> Iterable[str]:
    """Return the lines that say where a finding is, what is allowed, and what was found."""
    kind, context = detail["type"], detail.get("ctx", {})
    if kind == VIOLATIONS:
        return context["items"]  # type: ignore[no-any-return]
    where = _format_location(detail["loc"], raw)
    if kind == "too_short" and detail["input"]:
        return ()  # its items are what is wrong, and they are reported
    if kind == "missing":
        return (f"{where}: is missing",)
    if kind == "extra_forbidden":
        known = ", ".join(_find_record(detail["loc"], record).model_fields)
        return (f"{where}: is not a known field (known: {known})",)
    value = repr(detail["input"])
    if len(value) > _MAX_SHOWN_VALUE:
        value = f"{value[:_MAX_SHOWN_VALUE]}..."
    return (f"{where}: {_describe_expectation(kind, context, detail['msg'])}, got {value}",)


def _describe_expectation(kind: str, context: Mapping[str, Any], message: str) -> str:
    """Return what a field allows, in words."""
    match kind:
        case "greater_than" if context["gt"] == 0:
            return "must be positive"
        case "greater_than_equal" if context["ge"] == 0:
            return "must not be negative"
        case "greater_than":
            return f"must be greater than {context['gt']}"
        case "greater_than_equal":
            return f"must be at least {context['ge']}"
        case "less_than_equal":
            return f"must be at most {context['le']}"
        case "literal_error":
            return f"must be {context['expected']}"
        case "union_tag_invalid" | "union_tag_not_found":
            return "action must be 'keep', 'swap' or 'recompute'"
        case "string_pattern_mismatch" if "FRB" in context["pattern"]:
            return "must be a slot such as F12, R7 or B7"
        case "string_pattern_mismatch":
            return f"must match {context['pattern']}"
    return _EXPECTED.get(kind, message)


def _format_location(location: tuple[int | str, ...], raw: Any) -> str:
    """Return a path such as ``layers[3] ('qkv').outputs[0].size_bytes``."""
    text = ""
    for step in location:
        if isinstance(raw, dict) and step not in raw and step in _DECISIONS and "action" in raw:
            continue  # pydantic puts the tag of a tagged union into the path
        if isinstance(step, int):
            raw = raw[step] if isinstance(raw, list) and step < len(raw) else None
            name = raw.get("name") if isinstance(raw, dict) else None
            text += f"[{step}] ({name!r})" if isinstance(name, str) and text == "layers" else f"[{step}]"
        else:
            text += f"[{step!r}]" if text == "activations" else f"{'.' if text else ''}{step}"
            raw = raw.get(step) if isinstance(raw, dict) else None
    return text or "the file"


def _find_record(location: tuple[int | str, ...], record: type[BaseModel]) -> type[BaseModel]:
    """Return the record that holds the field at `location`."""
    for step in location[:-1]:
        record = {**_RECORDS, **_DECISIONS}.get(step, record) if isinstance(step, str) else record
    return record
