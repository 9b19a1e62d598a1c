"""What users may build on, as text: names, signatures, fields, methods, commands and their options.

Run it after a change that is meant: python -m tests.api.snapshot

It writes `public_api.txt` again, which a test compares. What a person reviews is the difference.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import click

import dpsql
import dpsql.workload
from dpsql.cli import main as command_line
from dpsql.polars_namespace import PrivateFrame
from dpsql.privacy import Audit, Entry, Ledger
from dpsql.privacy.keys import KeyRule
from dpsql.release.found_keys import FoundKeys

PAGE = Path(__file__).with_name("public_api.txt")

REACHED = {
    "dpsql.privacy": (Audit, Entry, Ledger, KeyRule),
    "dpsql.release": (FoundKeys,),
    "polars.DataFrame.dp": (PrivateFrame,),
}
"""Classes without a public name whose objects users get: where they are found → the classes."""


def written() -> str:
    """Write everything, a block for each name."""
    return "\n\n".join("\n".join(block) for block in _blocks()) + "\n"


def _blocks() -> Iterator[Iterator[str]]:
    for module in (dpsql, dpsql.workload):
        for name in sorted(module.__all__):
            yield _thing(f"{module.__name__}.{name}", getattr(module, name))
    for place, kinds in REACHED.items():
        for kind in kinds:
            yield _class(f"{place}.{kind.__name__}", kind)
    for name, command in command_line.commands.items():
        yield _command(f"$ dpsql {name}", command)


def _thing(name: str, thing: Any) -> Iterator[str]:
    if isinstance(thing, type):
        yield from _class(name, thing)
    elif callable(thing):
        yield from _signature(f"def {name}", thing)
    else:
        yield f"{name} = {thing!r}"


def _class(name: str, kind: type) -> Iterator[str]:
    bases = [base.__name__ for base in kind.__bases__ if base is not object]
    yield f"class {name}({', '.join(bases)})" if bases else f"class {name}"
    if issubclass(kind, BaseException):
        return
    fields = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
    yield from (_field(field) for field in fields if _public(field.name))
    own = {name: k for k in reversed(kind.__mro__) if _is_ours(k) for name in vars(k)}
    if "__init__" in own and not _is_generated(own["__init__"]):
        yield from _signature("    def __init__", own["__init__"].__init__)
    for name in sorted({name for name in own if _public(name)} - {field.name for field in fields}):
        yield from _member(name, inspect.getattr_static(kind, name))


def _member(name: str, member: Any) -> Iterator[str]:
    if isinstance(member, (property, cached_property)):
        read = member.fget if isinstance(member, property) else member.func
        yield f"    {name}: {_annotation(inspect.signature(read).return_annotation)}  # read only"
    elif isinstance(member, classmethod):
        yield from _signature(f"    classmethod {name}", member.__func__)
    elif callable(member):
        yield from _signature(f"    def {name}", member)
    else:
        yield f"    {name} = {member!r}"


def _field(field: dataclasses.Field[Any]) -> str:
    default = "" if field.default is dataclasses.MISSING else f" = {field.default!r}"
    made = " = <made>" if field.default_factory is not dataclasses.MISSING else default
    return f"    {field.name}: {field.type}{made}"


def _is_ours(kind: type) -> bool:
    return kind.__module__.startswith("dpsql")


def _is_generated(kind: type) -> bool:
    """Whether `__init__` only repeats the fields, or a protocol has none."""
    of_fields = "__dataclass_params__" in vars(kind) and kind.__dataclass_params__.init
    return of_fields or getattr(kind, "_is_protocol", False)


def _public(name: str) -> bool:
    return not name.startswith("_")


def _signature(start: str, function: Any) -> Iterator[str]:
    """Write a signature on one line, or with a line for each parameter if there are many."""
    signature = inspect.signature(function)
    parameters = [*_parameters(signature)]
    returned = signature.return_annotation
    end = "" if returned is inspect.Signature.empty else f" -> {_annotation(returned)}"
    line = f"{start}({', '.join(parameters)}){end}"
    if len(line) <= 100:
        yield line
        return
    indent = " " * (len(start) - len(start.lstrip()) + 8)
    yield f"{start}("
    yield from (f"{indent}{parameter}," for parameter in parameters)
    yield f"{indent[4:]}){end}"


def _parameters(signature: inspect.Signature) -> Iterator[str]:
    starred = False
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            starred = True
            yield "*"
        starred = starred or parameter.kind is parameter.VAR_POSITIONAL
        text = str(parameter.replace(annotation=parameter.empty, default=parameter.empty))
        if parameter.annotation is not parameter.empty:
            text += f": {_annotation(parameter.annotation)}"
        if parameter.default is not parameter.empty:
            text += f" = {parameter.default!r}"
        yield text


def _annotation(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def _command(line: str, command: click.Command) -> Iterator[str]:
    if isinstance(command, click.Group):
        for name, part in command.commands.items():
            yield from _command(f"{line} {name}", part)
        return
    arguments = [p.human_readable_name for p in command.params if isinstance(p, click.Argument)]
    yield " ".join([line, *arguments])
    for option in command.params:
        if isinstance(option, click.Option):
            yield f"    {'/'.join([*option.opts, *option.secondary_opts])}{_values(option)}"


def _values(option: click.Option) -> str:
    if option.is_flag or option.count:
        return ""
    chosen = option.type
    names = "|".join(map(str, chosen.choices)) if isinstance(chosen, click.Choice) else chosen.name
    return f" {names}{' …' if option.multiple else ''}"


if __name__ == "__main__":
    PAGE.write_text(written(), encoding="utf-8")
