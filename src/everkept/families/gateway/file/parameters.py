"""Whether the parameters of a tool in a gateway's file, and where they go, fit together."""

from typing import cast

from everkept.families.gateway.file.places import Place, shown_value
from everkept.families.gateway.file.schemas import parameters_of
from everkept.families.gateway.file.targets import Target
from everkept.families.gateway.model import REST
from everkept.tools.schema import nearest


def check_parameters(schema: Place, target: Target) -> None:
    """Notes what nobody will send, and what is sent nowhere."""
    mapping = cast(Place, target.place.get("paramMapping"))
    known, required = parameters_of(schema)
    listed = schema.value.get("properties", {})
    free = [name for name in dict.fromkeys((*required, *listed)) if name not in target.mapping]
    unknown = [name for name in target.mapping if known is not None and name not in known]
    needed = [name for name in free if name in required and target.rest is None]
    for parameter in unknown:
        _warn_of_unknown(cast(Place, mapping.get(parameter)), parameter, needed, free)
    if target.rest is not None:
        _refuse_filled(schema, target, target.rest, free)
        return
    for parameter in free:
        if parameter in needed:
            if not unknown:
                mapping.warn(
                    f"`inputSchema` requires {shown_value(parameter)}, which is never passed on.",
                    "Map it to a parameter of the server, or take it out of `required`.",
                )
        elif listed[parameter] is not False:
            _property(schema, parameter).warn(
                f"{shown_value(parameter)} goes nowhere: `paramMapping` has no entry for it.",
                "Map it to a parameter of the server, or take it out here.",
            )
    _warn_of_unnamed(schema)


def _warn_of_unknown(place: Place, parameter: str, needed: list[str], free: list[str]) -> None:
    close = nearest(parameter, free)
    unknown = f"`inputSchema` has no parameter {shown_value(parameter)}"
    if needed:
        lacking = ", ".join(shown_value(name) for name in needed)
        place.warn(
            f"{unknown}, and requires {lacking}, which goes nowhere.",
            f"Did you mean `{close}`?" if close else f"Write {lacking} here.",
            fails_calls=True,
        )
    else:
        fix = "Add it to `properties`, or take it out here."
        place.warn(f"{unknown}: nobody will send it.", f"Did you mean `{close}`?" if close else fix)


def _refuse_filled(schema: Place, target: Target, rest: tuple[str, ...], free: list[str]) -> None:
    for parameter in free:
        if target.taken.met((*rest, parameter)) and parameter in schema.value.get("properties", {}):
            _property(schema, parameter).refuse(
                f"{shown_value(parameter)} has no entry in `paramMapping`, and something else "
                f"fills the place where `{REST}` sends it.",
                "Give it an entry of its own.",
            )


def _warn_of_unnamed(schema: Place) -> None:
    more = schema.get("additionalProperties")
    if more is not None and more.value is not False:
        more.warn(
            "Parameters that have no name here are allowed, and go nowhere.",
            f'Add `"{REST}": "{REST}"` to `paramMapping`, which sends them as they come, or write '
            "`false` here.",
        )


def _property(schema: Place, name: str) -> Place:
    return cast(Place, cast(Place, schema.get("properties")).get(name))
