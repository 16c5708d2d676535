import pytest

from everkept.families.bank import toolset
from everkept.families.bank.model import (
    ALWAYS_OFFERED,
    MODE_TOOLS,
    MODES,
    TOOL_NAMES,
    BankOptions,
    Mode,
    get_mode,
    get_tool_names,
)


@pytest.mark.parametrize(
    ("mode", "tools"),
    [
        ("architect", {"log_decision", "graph_upsert_entity", "graph_link_entities"}),
        ("code", {"track_progress", "write_memory_bank_file", "batch_write_files"}),
        ("ask", {"search_memory_bank", "get_context_digest"}),
        ("debug", {"add_session_note", "graph_search"}),
        ("test", {"track_progress", "write_memory_bank_file", "batch_write_files"}),
    ],
)
def test_each_mode_offers_its_key_tools(mode: Mode, tools: set[str]) -> None:
    assert tools <= get_tool_names(mode)


def test_reading_choosing_a_store_and_another_mode_are_always_possible() -> None:
    for mode in MODES:
        assert {
            "initialize_memory_bank",
            "read_memory_bank_file",
            "batch_read_files",
            "switch_mode",
            "complete_umb",
            "select_store",
        } <= get_tool_names(mode)
        named = {"search_memory_bank", "get_context_digest"} if mode == "ask" else set[str]()  # what it is for
        assert ALWAYS_OFFERED & set(MODE_TOOLS[mode]) == named
        assert len(set(MODE_TOOLS[mode])) == len(MODE_TOOLS[mode])


def test_every_mode_leaves_something_out_and_no_two_are_alike() -> None:
    offered = [get_tool_names(mode) for mode in MODES]
    assert len(set(offered)) == len(MODES)
    assert all(tools < TOOL_NAMES for tools in offered)
    assert not {"log_decision", "graph_compact", "graph_delete_entity"} & get_tool_names("code")


def test_asking_does_not_write_files() -> None:
    assert not {"write_memory_bank_file", "graph_delete_entity", "restore_backup"} & get_tool_names("ask")


def test_what_the_session_chose_goes_before_the_option() -> None:
    options = BankOptions(None, mode="test")
    assert get_mode("ask", options) == "ask"
    assert get_mode(None, options) == "test"
    assert get_mode("unknown", BankOptions(None)) == "code"


def test_every_tool_of_the_bank_has_its_mode() -> None:
    families = [kind for kind in vars(toolset).values() if isinstance(kind, type)]
    tools = {name for kind in families for name, attribute in vars(kind).items() if hasattr(attribute, "__tool__")}
    assert tools == TOOL_NAMES
