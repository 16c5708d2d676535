"""The YAML of rule files: mappings, lists and texts, and nothing that could grow."""

import re
from typing import Any, cast

DEEPEST = 64  # levels
_BRACKET = re.compile(r"[\[\]{}]")
_NULL = re.compile(r"(?:~|null|Null|NULL|)$")


class BadYaml(ValueError):
    """What is no such YAML; its text says why."""


def parsed(text: str) -> Any:
    """Every scalar is a text or None. Raises BadYaml.

    References would make gigabytes out of a few lines, and merging them takes as long.
    """
    # The reader looks far ahead for the end of a bracket, before it tells of the beginning.
    if _depth(text) > DEEPEST:
        raise BadYaml(f"its brackets are nested more than {DEEPEST} levels deep")
    import yaml  # only those who have rule files pay for it

    class Loader(yaml.BaseLoader):
        depth = 0

        def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
            if cast(Any, self).peek_event().anchor is not None:  # of either kind
                raise BadYaml("it uses anchors (&) or references (*), which are not read")
            if self.depth == DEEPEST:
                raise BadYaml(f"it is nested more than {DEEPEST} levels deep")
            self.depth += 1
            node = super().compose_node(parent, index)
            self.depth -= 1
            if isinstance(node, yaml.MappingNode) and any(map(_merges, node.value)):
                raise BadYaml("it merges mappings (<<), which is not read")
            return node

    def _merges(pair: tuple[Any, Any]) -> bool:
        return isinstance(pair[0], yaml.ScalarNode) and pair[0].value == "<<"

    cast(Any, Loader).add_implicit_resolver("tag:yaml.org,2002:null", _NULL, ["~", "n", "N", ""])
    Loader.add_constructor("tag:yaml.org,2002:null", lambda loader, node: None)
    try:
        return yaml.load(text, Loader)
    except BadYaml:
        raise
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        raise BadYaml(" ".join(str(error).split())) from None


def _depth(text: str) -> int:
    """How deep brackets are nested, those in texts counted too."""
    deepest = depth = 0
    for bracket in _BRACKET.findall(text):
        depth = depth + 1 if bracket in "[{" else max(0, depth - 1)
        deepest = max(deepest, depth)
    return deepest
