"""YAML files as plain data: mappings, lists, texts, numbers and switches, and nothing that surprises or explodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from common.files.small_file import small_text
from common.messages.errors import ConfigurationError
from common.messages.names import quoted

DEEPEST = 5_000  # levels that libyaml composes safely; it would crash the process at five times as many
LONGEST_NUMBER = 100  # characters
_YAML = "tag:yaml.org,2002:"
_PLAIN = ("null", "bool", "int", "float", "str", "seq", "map")


# The loader of libyaml takes a tenth of the time; PyYAML may have been built without it.
class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Reads what this project's files are made of: mappings with distinct keys, lists, texts, numbers and switches.

    A date is a text. A tag of another type is refused, and a plain tag before a value of another type.
    """

    yaml_constructors = {  # noqa: RUF012 - PyYAML's name and form for it
        tag: make
        for tag, make in yaml.SafeLoader.yaml_constructors.items()
        if tag is None or tag.removeprefix(_YAML) in _PLAIN
    }
    yaml_implicit_resolvers = {  # noqa: RUF012
        first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith((":timestamp", ":merge"))]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_scalar(self, node: yaml.Node) -> Any:
        """Return the text of a value, which must be written as its type demands."""
        text, of_type = super().construct_scalar(node), node.tag.removeprefix(_YAML)
        is_plain = of_type in ("bool", "int", "float")
        if is_plain and (self.resolve(yaml.ScalarNode, text, (True, False)) != node.tag or len(text) > LONGEST_NUMBER):
            problem = f"{quoted(text)} is not of type {of_type}, or is too long"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
        return text

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Leave ``<<`` alone: a few merges of merges unfold to gigabytes."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> Any:
        """Return a mapping; of two values for one key, only one could take effect."""
        pairs = node.value if isinstance(node, yaml.MappingNode) else []  # anything may have a tag
        keys = [key.value for key, _ in pairs if isinstance(key, yaml.ScalarNode)]
        if twice := next((key for key in keys if keys.count(key) > 1), None):
            problem = f"key {quoted(twice)} is given twice"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
        return super().construct_mapping(node, deep)


def load_yaml(path: Path) -> dict[str, Any]:
    """Load a YAML file that holds a mapping, or nothing; ConfigurationError for every other file."""
    text = small_text(path)
    # A level takes a bracket or a column, and libyaml crashes on too many.
    if max(map(len, text.splitlines()), default=0) + text.count("[") + text.count("{") > DEEPEST:
        raise ConfigurationError(path, "has a line that is too long, or brackets within too many brackets")
    try:
        content = yaml.load(text, _Loader)
    except (yaml.YAMLError, RecursionError) as error:
        raise ConfigurationError(path, f"is not YAML that can be read ({_place(error)})") from error
    content = {} if content is None else content
    if not isinstance(content, dict):
        raise ConfigurationError(path, "is not a mapping")
    return content


def _place(error: Exception) -> str:
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark
        return f"{error.problem}" + (f", line {mark.line + 1}" if mark else "")
    return str(error).splitlines()[0]
