import os
from pathlib import Path

import pytest

from everkept.errors import EverkeptError, InvalidInput, Refused
from everkept.settings import Settings, choose_toolsets, list_warnings, read_settings

AS_DOCUMENTED = """---
deployment_mode: embedded-file
db_path: ~/.claude/surrealdb-memory/data
namespace: memory
database: default
embedding_model: all-MiniLM-L6-v2
embedding_dimensions: 384
max_memories_per_session: 100
consolidation_on_shutdown: true
log_level: info
---

# SurrealDB Memory Configuration

## Remote Mode Settings (only used when deployment_mode is "remote")

```yaml
remote_url: ws://localhost:8000
remote_user: root
remote_pass: root
```
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "config.md"


def read(file: Path, text: str) -> Settings:
    file.write_text(text, encoding="utf-8")
    if os.name == "posix":
        file.chmod(0o600)
    return read_settings({"config": str(file)}, {})


def error(file: Path, text: str) -> EverkeptError:
    with pytest.raises(EverkeptError) as caught:
        read(file, text)
    assert str(file) in str(caught.value)
    assert "hunter2" not in f"{caught.value} {caught.value.to_envelope()}"
    return caught.value


def test_the_documented_file_of_surrealdb_memory_is_honoured(file: Path) -> None:
    settings = read(file, AS_DOCUMENTED)
    assert settings.deployment_mode == "embedded-file"
    assert settings.data_dir == Path.home() / ".claude" / "surrealdb-memory" / "data"
    assert settings.embedding_model == "everkept-minilm-1"
    assert settings.max_memories_per_session == 100
    assert settings.consolidation_on_shutdown is True
    assert settings.log_level == "info"
    assert (settings.engine, settings.namespace, settings.database) == ("sqlite", "memory", "default")
    assert settings.database_url is None


@pytest.mark.parametrize("mode", ["remote", "local-server"])
def test_the_block_in_the_body_counts_in_the_modes_of_a_server(file: Path, mode: str) -> None:
    settings = read(file, AS_DOCUMENTED.replace("embedded-file", mode))
    assert (settings.engine, settings.deployment_mode) == ("surreal", mode)
    assert settings.database_url == "ws://localhost:8000"
    assert (settings.database_user, settings.database_password) == ("root", "root")


@pytest.mark.parametrize("heading", ["## Database", "Not a heading", "# Remote\n\n## Remote Mode Settings"])
def test_a_yaml_block_counts_under_any_heading(file: Path, heading: str) -> None:
    settings = read(file, f"---\ndeployment_mode: remote\n---\n{heading}\n\n```yaml\nremote_url: ws://a.example\n```\n")
    assert (settings.deployment_mode, settings.database_url) == ("remote", "ws://a.example")


def test_every_yaml_block_with_a_setting_counts_and_examples_of_other_things_do_not(file: Path) -> None:
    example = "```yaml\nservices:\n  db:\n    image: surrealdb\n```"
    settings = read(file, f"---\nport: 1\n---\n{example}\n```yml\nlog_level: debug\n```\n```yaml\nproject: shop\n```\n")
    assert (settings.port, settings.log_level, settings.project) == (1, "debug", "shop")
    twice = error(file, "---\nport: 1\n---\n\n```yaml\nport: 2\n```\n")
    assert (twice.facts["line"], twice.facts["argument"]) == (6, "port")


def test_the_block_in_the_body_asks_for_no_server(file: Path) -> None:
    settings = read(file, AS_DOCUMENTED.replace("deployment_mode: embedded-file\n", ""))
    assert (settings.engine, settings.deployment_mode) == ("sqlite", "embedded-file")
    assert settings.database_url is None


@pytest.mark.parametrize("key", ["remote_url", "database_url"])
def test_what_stands_in_the_body_must_not_stand_at_the_top_too(file: Path, key: str) -> None:
    found = error(file, AS_DOCUMENTED.replace("---\n", f"---\n{key}: ws://a\n", 1))
    assert (found.facts["line"], found.facts["argument"]) == (19, "remote_url")
    assert f"`{key}` in line 2" in found.message


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        ("deployment_mode: embedded-memory", "deployment_mode", "embedded-memory"),
        ("embedding_model: none", "embedding_model", "none"),
        ("max_memories_per_session: 7", "max_memories_per_session", 7),
        ("consolidation_on_shutdown: false", "consolidation_on_shutdown", False),
        ("log_level: warn", "log_level", "warning"),
        ("mask_secrets: no", "mask_secrets", False),
        ("recall_time_limit: 0.5", "recall_time_limit", 0.5),
        ("project: 'my shop'", "project", "my shop"),
        ("project:", "project", None),
        ("toolsets: [memories, graph]", "toolsets", "memories,graph"),
        ("toolsets:\n  - graph", "toolsets", "graph"),
        ("read-only: on", "read_only", True),
        ("engine: surreal", "engine", "surreal"),
        ("engine: surreal\nnamespace: other", "namespace", "other"),
        ("engine: surreal\ndatabase: my-own_1", "database", "my-own_1"),
        ("remote_url: wss://a.example", "database_url", "wss://a.example"),
        ("database_url: wss://a.example", "deployment_mode", "remote"),
        ("database_timeout: 3", "database_timeout", 3.0),
    ],
)
def test_each_key_is_honoured(file: Path, line: str, name: str, value: object) -> None:
    settings = read(file, f"---\n{line}\n---\n")
    assert getattr(settings, name) == value
    assert choose_toolsets(settings)


def test_a_model_in_a_folder_has_dimensions_of_its_own(file: Path) -> None:
    settings = read(file, "---\nembedding_model: models/e5\nembedding_dimensions: 768\n---\n")
    assert settings.embedding_model == str(file.parent / "models" / "e5")
    with pytest.raises(Refused):
        read(file, "---\nembedding_model: models/e5\nembedding_dimensions: many\n---\n")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("namespace: other", "engine to surreal"),
        ("database: other", "engine to surreal"),
        ("embedding_dimensions: 768", "384"),
        ("remote_user: root", "database_url"),
        ("remote_pass: hunter2", "database_url"),
        ("database_ca: ca.pem", "database_url"),
    ],
)
def test_what_would_have_no_effect_is_refused(file: Path, line: str, reason: str) -> None:
    refused = error(file, f"---\n{line}\n---\n")
    assert isinstance(refused, Refused)
    assert refused.facts["line"] == 2
    assert refused.facts["argument"] == line.split(":")[0]
    assert reason in refused.message


def test_beside_an_embedded_mode_the_remote_keys_are_left_alone(file: Path) -> None:
    text = "---\ndeployment_mode: embedded-file\nremote_url: ws://x\nremote_pass: x\n---\n"
    settings = read(file, text)
    assert (settings.deployment_mode, settings.engine) == ("embedded-file", "sqlite")
    assert settings.database_url is None


def test_a_flag_can_take_the_place_of_a_mode_that_lacks_its_address(file: Path) -> None:
    file.write_text("---\ndeployment_mode: remote\n---\n", encoding="utf-8")
    assert read_settings({"config": file, "deployment_mode": "embedded-memory"}, {}).config == file


@pytest.mark.parametrize(
    ("text", "line", "key"),
    [
        ("---\n\nport: eighty\n---\n", 3, "port"),
        ("---\nlog_level: loud\n---\n", 2, "log_level"),
        ("---\ntoolsets: [graph, magic]\n---\n", 2, "toolsets"),
        ("---\nhost: [a, b]\n---\n", 2, "host"),
        ("---\nport: 1\nread_only: x\n---\n", 3, "read_only"),
        ("---\nport: 1\n# again\nport: 2\n---\n", 4, "port"),
        ("---\ndata_dir: a\ndb_path: b\n---\n", 3, "db_path"),
        ("---\nembeding_model: none\n---\n", 2, "embeding_model"),
        ("---\nconfig: other.md\n---\n", 2, "config"),
        ("---\ndeployment_mode: remote\n---\n", 2, "deployment_mode"),
        ("---\nremote_url: ws://a\ndatabase_url: ws://b\n---\n", 3, "database_url"),
        ("---\nremote_url: localhost:8000\n---\n", 2, "remote_url"),
        ("---\nremote_pass: [hunter2, b]\n---\n", 2, "remote_pass"),
    ],
)
def test_a_bad_entry_is_named_with_its_line(file: Path, text: str, line: int, key: str) -> None:
    found = error(file, text)
    assert isinstance(found, InvalidInput)
    assert (found.facts["line"], found.facts["argument"]) == (line, key)
    assert found.facts["file"] == str(file)
    assert f"line {line}" in found.message


def test_the_nearest_known_key_is_suggested(file: Path) -> None:
    assert "`embedding_model`" in str(error(file, "---\nembeding_model: none\n---\n"))
    text = AS_DOCUMENTED.replace("remote_user", "remote_usr")
    assert "`remote_user`" in str(error(file, text))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("port: 1\n", 1),
        ("---\nport: 1\n", 2),
        ("---\nport 1\n---\n", 2),
        ("---\nport:\n  nested: 1\n---\n", 3),
        (AS_DOCUMENTED.replace("remote_user: root", "remote_user"), 19),
    ],
)
def test_a_file_that_cannot_be_read_is_told_with_its_line(file: Path, text: str, line: int) -> None:
    assert error(file, text).facts["line"] == line


def test_a_file_without_settings_is_fine(file: Path) -> None:
    assert read(file, "\n").port == 8081
    assert read(file, "---\n---\n").port == 8081
    assert read(file, "\ufeff---\r\nport: 1\r\n---\r\n# Words\r\n").port == 1


def test_a_file_in_another_encoding_is_refused(file: Path) -> None:
    file.write_bytes(b"---\nproject: caf\xe9\n---\n")
    with pytest.raises(InvalidInput):
        read_settings({"config": str(file)}, {})


def test_a_relative_folder_belongs_to_the_file(file: Path) -> None:
    assert read(file, "---\ndata_dir: data\n---\n").data_dir == file.parent / "data"


@pytest.mark.parametrize("text", [AS_DOCUMENTED, AS_DOCUMENTED.replace("remote_", "database_")])
def test_a_password_that_others_can_read_is_warned_of(file: Path, text: str) -> None:
    if os.name != "posix":
        return  # other systems have no such bits
    settings = read(file, text.replace("database_pass", "database_password"))
    assert list_warnings(settings) == ()
    for mode in (0o640, 0o604, 0o644):
        file.chmod(mode)
        (warning,) = list_warnings(settings)
        assert f"chmod 600 {file}" in warning
        assert "root" not in warning.replace(str(file), "")
    file.write_text("---\nport: 1\nremote_pass:\n---\n", encoding="utf-8")
    assert list_warnings(read_settings({"config": file}, {})) == ()
    file.unlink()
    assert list_warnings(settings) == ()
