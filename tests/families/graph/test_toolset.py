from pathlib import Path
from typing import Any

import pytest

from everkept.app.app import App
from everkept.core.sessions import Session
from everkept.engines.memory.library import MemoryLibrary
from everkept.errors import AmbiguousName, Conflict, InvalidInput, NoActiveProject, NotFound, ProjectArchived
from everkept.settings import read_settings
from tool_calls import Client

GRAPH_TOOLS: dict[str, dict[str, Any]] = {
    "create_entities": {"entities": [{"name": "a", "entity_type": "b"}]},
    "add_observations": {"observations": []},
    "create_relations": {"relations": []},
    "search_nodes": {"query": "x"},
    "open_nodes": {"names": ["x"]},
    "read_graph": {},
    "delete_entities": {"names": ["x"]},
    "delete_observations": {"deletions": []},
    "delete_relations": {"relations": []},
}


async def entity(graph: Client, name: str, kind: str = "thing", *observations: str) -> Any:
    made = await graph(
        "create_entities", entities=[{"name": name, "entity_type": kind, "observations": list(observations)}]
    )
    return made["entities"][0]


async def texts(graph: Client, name: str) -> list[str]:
    opened = await graph("open_nodes", names=[name])
    return [o["content"] for e in opened["entities"] for o in e["observations"]]


async def test_all_sixteen_tools_are_offered_in_a_fixed_order(app: App) -> None:
    assert [tool.name for tool in app.tools] == [
        "list_projects",
        "create_project",
        "switch_project",
        "get_current_project",
        "archive_project",
        "delete_project",
        "restore_project",
        *GRAPH_TOOLS,
    ]


@pytest.mark.parametrize("tool", GRAPH_TOOLS)
async def test_without_a_project_every_graph_tool_says_the_same_sentence(app: App, tool: str) -> None:
    with pytest.raises(NoActiveProject) as caught:
        await Client(app)(tool, **GRAPH_TOOLS[tool])
    assert str(caught.value) == "No active project. Use switch_project to select one."


async def test_a_secret_in_the_name_or_description_of_a_project_is_masked(app: App) -> None:
    client = Client(app)
    token = "gh" + "p_" + "a1B2" * 9
    made = await client("create_project", name=f"shop {token}", description=f"Deploys with {token}.")
    assert (made["name"], made["description"]) == (
        "shop [masked: github token]",
        "Deploys with [masked: github token].",
    )
    assert made["note"] == "Masked before storing: github token."
    assert (await client("get_current_project"))["name"] == made["name"]
    assert token not in str(await client("list_projects"))


async def test_every_text_of_a_project_has_a_limit_before_it_is_masked(app: App) -> None:
    """Masking megabytes would stop all other calls."""
    for argument in ("name", "description"):
        with pytest.raises(InvalidInput, match=f"`{argument}`"):
            await Client(app)("create_project", **{"name": "shop", argument: "password=Ab3 " * 10_000})
    assert await Client(app)("list_projects") == {"projects": []}


async def test_creating_a_project_makes_it_the_active_one(app: App) -> None:
    client = Client(app)
    made = await client("create_project", name="shop", description="All of it")
    assert set(made) == {"id", "name", "description", "status", "created_at", "updated_at"}
    assert (made["name"], made["description"], made["status"]) == ("shop", "All of it", "active")
    assert (await client("get_current_project"))["id"] == made["id"]


async def test_without_a_project_the_current_one_is_a_sentence_and_no_error(app: App) -> None:
    text = await Client(app).text("get_current_project")
    assert text == "No project is currently active. Use switch_project to select one."


async def test_projects_are_listed_by_status_and_name(app: App) -> None:
    client = Client(app)
    assert await client("list_projects") == {"projects": []}
    for name in ("b", "a", "c"):
        await client("create_project", name=name)
    await client("archive_project", name="c")

    async def listed(**status: str) -> list[str]:
        return [p["name"] for p in (await client("list_projects", **status))["projects"]]

    assert await listed() == ["a", "b"]
    assert await listed(status="archived") == ["c"]
    assert await listed(status="all") == ["a", "b", "c"]


async def test_switching_is_for_one_session_alone(app: App) -> None:
    first, second = Client(app), Client(app)
    await first("create_project", name="one")
    await first("create_project", name="two")
    await second("switch_project", name="one")
    assert (await first("get_current_project"))["name"] == "two"
    assert (await second("get_current_project"))["name"] == "one"


async def test_a_session_without_state_is_told_to_name_the_project(app: App) -> None:
    client = Client(app, Session(stateful=False))
    made = await client("create_project", name="one")
    assert 'project="one"' in made["note"]
    assert 'project="one"' in (await client("switch_project", name="one"))["note"]
    with pytest.raises(NoActiveProject) as caught:
        await client("read_graph")
    assert "Pass `project`" in str(caught.value)
    assert await client("read_graph", project="one") == {"entities": [], "relations": []}


async def test_an_archived_project_refuses_until_it_is_restored(graph: Client) -> None:
    await entity(graph, "Ada")
    archived = await graph("archive_project", name="one")
    assert archived["status"] == "archived"
    with pytest.raises(NoActiveProject):
        await graph("read_graph")
    with pytest.raises(ProjectArchived):
        await graph("read_graph", project="one")
    with pytest.raises(ProjectArchived):
        await graph("switch_project", name="one")
    with pytest.raises(Conflict):
        await graph("archive_project", name="one")
    assert (await graph("restore_project", name="one"))["status"] == "active"
    with pytest.raises(NoActiveProject):
        await graph("read_graph")
    assert await graph.names("Ada", project="one") == ["Ada"]
    with pytest.raises(Conflict):
        await graph("restore_project", name="one")


async def test_a_deleted_project_is_gone(graph: Client) -> None:
    text = await graph.text("delete_project", name="one")
    assert text.startswith('Deleted project "one". It is in the trash. To restore it until 2')
    assert text.endswith('To remove it now, run `everkept purge project "one"`.')
    with pytest.raises(NotFound):
        await graph("switch_project", name="one")
    with pytest.raises(NotFound):
        await graph("delete_project", name="one")
    await graph("create_project", name="one")
    assert await graph("read_graph") == {"entities": [], "relations": []}


async def test_an_archived_project_can_be_deleted_and_keeps_its_name_until_then(graph: Client) -> None:
    await graph("archive_project", name="one")
    with pytest.raises(Conflict):
        await graph("create_project", name="one")
    await graph("delete_project", name="one")
    await graph("create_project", name="one")


@pytest.mark.parametrize("name", ["", "  ", "../x", "a/b", "a\\b", "a\nb", " a", "..", "x" * 101])
async def test_a_bad_project_name_is_refused_and_makes_nothing(app: App, name: str) -> None:
    client = Client(app)
    with pytest.raises(InvalidInput):
        await client("create_project", name=name)
    assert await client("list_projects", status="all") == {"projects": []}


async def test_unknown_projects_are_named_in_the_error(app: App) -> None:
    client = Client(app)
    for tool in ("switch_project", "archive_project", "restore_project", "delete_project"):
        with pytest.raises(NotFound) as caught:
            await client(tool, name="nowhere")
        assert caught.value.facts["name"] == "nowhere"


async def test_entities_are_created_with_their_first_observations(graph: Client) -> None:
    made = await entity(graph, "Ada", "person", "likes maths", "likes maths", "lives in London")
    assert made["created"] is True
    assert [o["content"] for o in made["observations"]] == ["likes maths", "lives in London"]
    assert {o["entity_id"] for o in made["observations"]} == {made["id"]}


async def test_creating_an_entity_again_adds_only_what_is_new_and_says_so(graph: Client) -> None:
    first = await entity(graph, "Shop  API", "service", "port 8443")
    again = await entity(graph, " shop api ", "Service", "port 8443", "in Python")
    assert again["id"] == first["id"]
    assert again["created"] is False
    assert [o["content"] for o in again["observations"]] == ["in Python"]
    assert await texts(graph, "SHOP API") == ["port 8443", "in Python"]


async def test_one_call_may_name_an_entity_twice(graph: Client) -> None:
    made = await graph(
        "create_entities",
        entities=[
            {"name": "Ada", "entity_type": "person", "observations": ["one"]},
            {"name": "ADA", "entity_type": "person", "observations": ["one", "two"]},
        ],
    )
    assert len(made["entities"]) == 1
    assert await texts(graph, "Ada") == ["one", "two"]


async def test_the_same_name_with_another_type_is_another_entity(graph: Client) -> None:
    planet = await entity(graph, "Mercury", "planet")
    metal = await entity(graph, "Mercury", "metal")
    assert planet["id"] != metal["id"]
    opened = await graph("open_nodes", names=["mercury"])
    assert {e["entity_type"] for e in opened["entities"]} == {"planet", "metal"}


async def test_a_name_that_fits_two_entities_is_chosen_by_type_or_id(graph: Client) -> None:
    planet = await entity(graph, "Mercury", "planet")
    await entity(graph, "Mercury", "metal")
    with pytest.raises(AmbiguousName) as caught:
        await graph("add_observations", observations=[{"entity_name": "Mercury", "contents": ["x"]}])
    assert {c["entity_type"] for c in caught.value.facts["candidates"]} == {"planet", "metal"}
    await graph(
        "add_observations",
        observations=[
            {"entity_name": "Mercury (metal)", "contents": ["liquid"]},
            {"entity_name": planet["id"], "contents": ["orbits"]},
        ],
    )
    assert await texts(graph, "mercury (Metal)") == ["liquid"]
    assert await texts(graph, planet["id"]) == ["orbits"]


@pytest.mark.parametrize("name", ["a" + " " * 450 + "b", "(" * 450, "x (" + " " * 400, "( )"])
async def test_a_name_of_an_odd_form_is_only_unknown(graph: Client, name: str) -> None:
    assert await graph("open_nodes", names=[name]) == {"entities": [], "not_found": [name]}


async def test_a_name_with_brackets_is_a_name_first(graph: Client) -> None:
    await entity(graph, "f (x)", "function")
    await graph("add_observations", observations=[{"entity_name": "f (x)", "contents": ["pure"]}])
    assert await texts(graph, "f (x)") == ["pure"]


async def test_observations_are_added_once_and_in_one_transaction(graph: Client) -> None:
    await entity(graph, "Ada", "person", "old")
    added = await graph("add_observations", observations=[{"entity_name": "Ada", "contents": ["old", "new", "new"]}])
    assert [o["content"] for o in added["observations"]] == ["new"]
    assert added["skipped"] == 2
    with pytest.raises(NotFound):
        await graph(
            "add_observations",
            observations=[
                {"entity_name": "Ada", "contents": ["never"]},
                {"entity_name": "Nobody", "contents": ["never"]},
            ],
        )
    assert await texts(graph, "Ada") == ["old", "new"]


async def test_relations_need_both_ends_and_are_unique(graph: Client) -> None:
    ada = await entity(graph, "Ada")
    bob = await entity(graph, "Bob")
    knows = {"from": "Ada", "to": "Bob", "relation_type": "knows"}
    made = await graph("create_relations", relations=[knows, knows])
    (relation,) = made["relations"]
    assert (relation["from"], relation["to"]) == ("Ada", "Bob")
    assert (relation["from_entity"], relation["to_entity"]) == (ada["id"], bob["id"])
    assert made["existed"] == 1
    assert await graph("create_relations", relations=[knows]) == {"relations": [], "existed": 1}
    with pytest.raises(NotFound) as caught:
        await graph("create_relations", relations=[knows | {"to": "Nobody"}])
    assert caught.value.facts["name"] == "Nobody"


async def test_an_entity_may_relate_to_itself(graph: Client) -> None:
    await entity(graph, "Ada")
    await graph("create_relations", relations=[{"from": "Ada", "to": "Ada", "relation_type": "is"}])
    opened = await graph("open_nodes", names=["Ada"])
    assert len(opened["entities"][0]["relations"]) == 1


async def test_opening_leaves_out_unknown_names_and_repeats_nothing(graph: Client) -> None:
    await entity(graph, "Ada")
    await entity(graph, "Bob")
    await graph("create_relations", relations=[{"from": "Ada", "to": "Bob", "relation_type": "knows"}])
    opened = await graph("open_nodes", names=["Bob", "Nobody", "bob"])
    (bob,) = opened["entities"]
    assert [(r["from"], r["relation_type"], r["to"]) for r in bob["relations"]] == [("Ada", "knows", "Bob")]


async def test_the_whole_graph_is_read_in_pages_by_name(graph: Client) -> None:
    for name in ("delta", "Alpha", "charlie", "bravo"):
        await entity(graph, name, "letter", f"about {name}")
    for source, target in (("Alpha", "delta"), ("delta", "Alpha")):
        await graph("create_relations", relations=[{"from": source, "to": target, "relation_type": "meets"}])
    names: list[str] = []
    relations: list[str] = []
    cursor: dict[str, Any] = {}
    while True:
        page = await graph("read_graph", limit=3, **cursor)
        names += [e["name"] for e in page["entities"]]
        relations += [r["from"] for r in page["relations"]]
        assert all(e["observations"] for e in page["entities"])
        if "next_cursor" not in page:
            break
        cursor = {"cursor": page["next_cursor"]}
    assert names == ["Alpha", "bravo", "charlie", "delta"]
    assert sorted(relations) == ["Alpha", "delta"]


async def test_deleting_entities_takes_what_hangs_on_them(graph: Client) -> None:
    await entity(graph, "Ada", "person", "likes maths")
    await entity(graph, "Bob")
    await graph("create_relations", relations=[{"from": "Bob", "to": "Ada", "relation_type": "knows"}])
    text = await graph.text("delete_entities", names=["Ada", "Nobody", "ada"])
    assert text == "Deleted 1 entity."
    assert await graph.names("maths") == []
    assert (await graph("read_graph"))["relations"] == []
    again = await entity(graph, "Ada", "person")
    assert again["created"] is True
    assert await texts(graph, "Ada") == []


async def test_observations_are_deleted_by_their_exact_text(graph: Client) -> None:
    await entity(graph, "Ada", "person", "Likes maths", "likes tea")
    deletion = {"entity_name": "Ada", "observations": ["likes maths", "likes tea"]}
    assert await graph.text("delete_observations", deletions=[deletion]) == "Deleted 1 observation."
    assert await texts(graph, "Ada") == ["Likes maths"]
    with pytest.raises(NotFound):
        await graph("delete_observations", deletions=[deletion | {"entity_name": "Nobody"}])


async def test_relations_are_deleted_and_unknown_ends_skipped(graph: Client) -> None:
    await entity(graph, "Ada")
    await entity(graph, "Bob")
    knows = {"from": "Ada", "to": "Bob", "relation_type": "knows"}
    await graph("create_relations", relations=[knows])
    gone = [knows, knows | {"to": "Nobody"}, knows | {"relation_type": "likes"}]
    assert await graph.text("delete_relations", relations=gone) == "Deleted 1 relation."
    assert (await graph("read_graph"))["relations"] == []


async def test_the_spelling_of_the_official_server_is_accepted(graph: Client) -> None:
    await graph("create_entities", entities=[{"name": "Ada", "entityType": "person", "observations": []}])
    await graph("add_observations", observations=[{"entityName": "Ada", "contents": ["x"]}])
    await graph("create_relations", relations=[{"from": "Ada", "to": "Ada", "relationType": "is"}])
    await graph("delete_observations", deletions=[{"entityName": "Ada", "observations": ["x"]}])
    await graph("delete_relations", relations=[{"from": "Ada", "to": "Ada", "relationType": "is"}])
    assert (await graph("delete_entities", entityNames=["Ada"]))["deleted"] == 1


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("redis NOT carts", ["Sessions"]),  # the other entity has the word in another observation
        ("redis NOT shop", ["Sessions"]),  # or in its name
        ("redis NOT (carts OR tokens)", []),
        ("redis AND carts", ["Shop API"]),  # one word in each of two observations
        ("redis AND elephants", []),
        ("elephants OR (redis NOT tokens)", ["Shop API"]),
        ('"redis runs" NOT carts', []),
    ],
)
async def test_and_and_not_apply_to_the_whole_entity(graph: Client, query: str, found: list[str]) -> None:
    await entity(graph, "Shop API", "service", "redis runs here", "keeps carts")
    await entity(graph, "Sessions", "service", "redis holds the tokens")
    assert await graph.names(query) == found


async def test_not_excludes_on_every_page(graph: Client) -> None:
    for number in range(6):
        await entity(graph, f"e{number}", "thing", "redis", "old" if number % 2 else "new")
    names: list[str] = []
    page: dict[str, Any] = {"next_cursor": None}
    while "next_cursor" in page:
        page = await graph("search_nodes", query="redis NOT old", limit=2, cursor=page["next_cursor"])
        names += [each["name"] for each in page["entities"]]
    assert sorted(names) == ["e0", "e2", "e4"]


async def test_opening_lists_the_names_that_were_not_found(graph: Client) -> None:
    await entity(graph, "Ada")
    opened = await graph("open_nodes", names=["Ada", "Bob", "Eve"])
    assert ([each["name"] for each in opened["entities"]], opened["not_found"]) == (["Ada"], ["Bob", "Eve"])
    assert "not_found" not in await graph("open_nodes", names=["Ada"])


async def test_the_times_that_a_write_returns_are_the_times_that_are_read(graph: Client) -> None:
    for fact in ("one", "two"):
        made = await entity(graph, "Ada", "person", fact)
        [read] = (await graph("open_nodes", names=["Ada"]))["entities"]
        assert (made["created_at"], made["updated_at"]) == (read["created_at"], read["updated_at"])


async def test_creating_an_archived_project_points_to_restore_project(app: App) -> None:
    client = Client(app)
    await client("create_project", name="old")
    with pytest.raises(Conflict) as caught:
        await client("create_project", name="old")
    assert ("switch_project" in str(caught.value), caught.value.retry_possible) == (True, False)
    await client("archive_project", name="old")
    with pytest.raises(Conflict) as caught:
        await client("create_project", name="old")
    assert ("restore_project" in str(caught.value), caught.value.retry_possible) == (True, False)
    with pytest.raises(Conflict) as caught:
        await client("archive_project", name="old")
    assert not caught.value.retry_possible


async def test_a_search_stays_inside_its_project(graph: Client) -> None:
    await entity(graph, "Ada")
    await graph("create_project", name="two")
    assert await graph.names("Ada") == []
    assert await graph.names("Ada", project="one") == ["Ada"]


@pytest.mark.parametrize(
    ("arguments", "argument"),
    [
        ({"entities": [{"name": "", "entity_type": "x"}]}, "entities[0].name"),
        ({"entities": [{"name": " \t", "entity_type": "x"}]}, "entities[0].name"),
        ({"entities": [{"name": "a\nb", "entity_type": "x"}]}, "entities[0].name"),
        ({"entities": [{"name": "a\0", "entity_type": "x"}]}, "entities[0].name"),
        ({"entities": [{"name": "a", "entity_type": "x\x1b"}]}, "entities[0].entity_type"),
        ({"entities": [{"name": "a" * 501, "entity_type": "x"}]}, "entities[0].name"),
        (
            {"entities": [{"name": "a", "entity_type": "x", "observations": ["y" * 10_000_000]}]},
            "entities[0].observations[0]",
        ),
        ({"entities": [{"name": "a", "entity_type": "x"}] * 10_000}, "entities"),
        ({"entities": [{"name": "a", "entity_type": "x", "observations": ["o"] * 1_000}] * 10}, "entities"),
        ({"entities": [{"name": 3, "entity_type": "x"}]}, "entities[0].name"),
        ({"entities": {"name": "a", "entity_type": "x"}}, "entities"),
        ({}, "entities"),
        ({"entities": [], "projet": "one"}, "projet"),
    ],
)
async def test_bad_input_is_named_and_changes_nothing(graph: Client, arguments: dict[str, Any], argument: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        await graph("create_entities", **arguments)
    assert caught.value.facts["argument"] == argument
    assert await graph("read_graph") == {"entities": [], "relations": []}


async def test_a_bad_item_among_good_ones_stores_none_of_them(graph: Client) -> None:
    good = {"name": "a", "entity_type": "x"}
    with pytest.raises(InvalidInput):
        await graph("create_entities", entities=[good, {"name": "", "entity_type": "x"}])
    assert await graph("read_graph") == {"entities": [], "relations": []}


async def test_a_batch_of_the_largest_size_is_stored_whole(graph: Client) -> None:
    many = [{"name": f"n{i}", "entity_type": "x", "observations": ["o"]} for i in range(1_000)]
    assert len((await graph("create_entities", entities=many))["entities"]) == 1_000
    assert len((await graph("read_graph", limit=1_000))["entities"]) == 1_000


TOKEN = "gh" + "p_" + "aB3dE6gH9jK2mN5pQ8rS1tU4vW7xY0zA3cD6"


async def test_a_secret_in_an_observation_is_masked_and_the_answer_says_so(graph: Client) -> None:
    made = await graph(
        "create_entities",
        entities=[{"name": "CI", "entity_type": "system", "observations": [f"uses {TOKEN}", "plain"]}],
    )
    assert [w["code"] for w in made["warnings"]] == ["secret_masked"]
    assert "github token" in made["warnings"][0]["message"]
    added = await graph(
        "add_observations", observations=[{"entity_name": "CI", "contents": ["password=hunter2", f"uses {TOKEN}"]}]
    )
    assert added["skipped"] == 1
    assert "password" in added["warnings"][0]["message"]
    assert await texts(graph, "CI") == ["uses [masked: github token]", "plain", "password=[masked: password]"]


async def test_without_a_secret_there_is_no_warning(graph: Client) -> None:
    made = await graph("create_entities", entities=[{"name": "a", "entity_type": "b"}])
    assert set(made) == {"entities"}
    added = await graph("add_observations", observations=[{"entity_name": "a", "contents": ["the token is safe"]}])
    assert set(added) == {"observations", "skipped"}


async def test_a_masked_observation_is_deleted_by_the_text_that_was_given(graph: Client) -> None:
    await entity(graph, "CI", "system", f"uses {TOKEN}", "plain")
    deletion = {"entity_name": "CI", "observations": [f"uses {TOKEN}"]}
    assert (await graph("delete_observations", deletions=[deletion]))["deleted"] == 1
    assert await texts(graph, "CI") == ["plain"]


async def test_secrets_are_stored_where_masking_is_switched_off(tmp_path: Path) -> None:
    flags = {"data_dir": tmp_path, "toolsets": "graph", "mask_secrets": False, "project": "one"}
    app = App(read_settings(flags, {}), library=MemoryLibrary())
    client = Client(app)
    assert "warnings" not in await entity(client, "CI", "system", f"uses {TOKEN}")
    assert await texts(client, "CI") == [f"uses {TOKEN}"]
    deletion = {"entity_name": "CI", "observations": [f"uses {TOKEN}"]}
    assert (await client("delete_observations", deletions=[deletion]))["deleted"] == 1
    await app.close()
