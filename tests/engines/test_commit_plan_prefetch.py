from everkept.core.records import Delete, Restore, Update
from everkept.engines.commit_plan import PrefetchSet
from records import batch, entity, link, link_ref, note, record_ref


def test_all_that_the_steps_name_is_foreseen() -> None:
    wanted = PrefetchSet()
    named, edge, update = entity("Ada"), link("Bob", "knows", "Cy"), Update("Di", {"text": "x"}, 1)
    wanted.add_batch(
        batch(
            *(named, edge, note("Eve", "said"), update),
            *(Delete(record_ref("Flo")), Delete(link_ref("a b c"))),
            *(Restore(record_ref("Gus")), Restore(link_ref("d e f"))),
        )
    )
    assert list(wanted.records) == ["Ada", "Bob", "Cy", "said", "Eve", "Di", "Gus"]
    assert list(wanted.links) == ["Bob knows Cy", "a b c", "d e f"]
    assert list(wanted.purge_set) == ["Flo"]
    assert (list(wanted.returning), list(wanted.returning_links)) == (["Gus"], ["d e f"])
    assert (wanted.named, wanted.joined, wanted.updates) == ([named], [edge], [update])
