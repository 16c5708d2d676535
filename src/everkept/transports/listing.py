"""Tools and resources as the lists of the protocol show them."""

from typing import TYPE_CHECKING

from everkept.tools.tool import Tool
from everkept.transports.connection import JSON

if TYPE_CHECKING:  # loaded when they are asked for
    from everkept.app.resources import ResourceInfo


def described(tool: Tool) -> JSON:
    """A tool as tools/list shows it."""
    if tool.listing is not None:
        return tool.listing
    listed: JSON = {
        "name": tool.name,
        "description": tool.description,
        "inputSchema": tool.input_schema,
        "annotations": tool.annotations,
    }
    return listed if tool.output_schema is None else listed | {"outputSchema": tool.output_schema}


def resource(info: "ResourceInfo", key: str) -> JSON:
    """A resource, or a template of several: `key` says which of them by its address."""
    return {
        key: info.uri,
        "name": info.name,
        "description": info.description,
        "mimeType": info.mime_type,
    }
