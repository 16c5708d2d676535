"""Whether what is derived from the records fits them, and nothing points at what is not there."""

from everkept.engines.surreal.records.reading import rows_from
from everkept.engines.surreal.records.tables import Tables

# What each of these finds is wrong, however many there are.
_FINDINGS = {
    "entries of the word index have no record": (
        "SELECT VALUE id FROM word WHERE of.age IS NONE OR of.deleted_at IS NOT NONE"
    ),
    "records belong to one that is not there": (
        "SELECT VALUE id FROM record WHERE parent IS NOT NONE AND parent.age IS NONE"
    ),
    "links have an end that is not there": (
        "SELECT VALUE id FROM link WHERE in.age IS NONE OR out.age IS NONE"
    ),
    "records are younger than the store says": (
        "SELECT VALUE id FROM record WHERE age > meta:store.ages"
    ),
    "links are younger than the store says": (
        "SELECT VALUE id FROM link WHERE age > meta:store.ages"
    ),
    "changes are newer than the store says": (
        "SELECT VALUE id FROM change WHERE record::id(id) > meta:store.seq"
    ),
}


async def faults(tables: Tables) -> list[str]:
    state = await tables.state()
    word_of = rows_from(tables, "word", "record::id(id)")
    wrong = {
        "records are not in the word index": (
            f"SELECT VALUE id FROM record WHERE deleted_at IS NONE AND {word_of}.of != id"
        ),
        **_FINDINGS,
    }
    parts = [f"array::len(({text}))" for text in wrong.values()]
    parts += [
        f"array::len((SELECT VALUE id FROM {model.table} WHERE of.embedded != $m{number}))"
        for number, model in enumerate(state.models)
    ]
    # In one go, so that nobody changes something between two answers.
    counts = await tables.ask(
        f"RETURN [{', '.join(parts)}]",
        **{f"m{number}": model.row()["name"] for number, model in enumerate(state.models)},
    )
    named = [*wrong, *(f"vectors of {m.name} belong to no record" for m in state.models)]
    return [f"{count} {what}" for count, what in zip(counts, named, strict=True) if count]
