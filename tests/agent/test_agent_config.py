"""agent.toml: strict, one clear line per mistake."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from holdfast.config.agent import AgentConfig, example, load_agent_config
from holdfast.model.errors import ConfigError


def write(folder: Path, text: str) -> Path:
    path = folder / "agent.toml"
    path.write_text(text)
    return path


def test_an_empty_file_is_the_defaults_with_the_short_host_name(tmp_path: Path) -> None:
    config = load_agent_config(write(tmp_path, ""))
    assert config.heartbeat_s is None, "the controller gives it"
    assert config.state_dir == Path("/var/lib/holdfast")
    assert config.node
    assert "." not in config.node


def test_relative_paths_count_from_the_folder_of_the_file(tmp_path: Path) -> None:
    config = load_agent_config(write(tmp_path, 'state_dir = "state"\ntoken_file = "token"\n'))
    assert config.state_dir == tmp_path / "state"
    assert config.token_file == tmp_path / "token"


def test_values_and_tables_are_read(tmp_path: Path) -> None:
    config = load_agent_config(
        write(tmp_path, 'heartbeat_s = 5\n[intervals]\n"gpu.thermal" = 2\n[nvml_env]\nA = "b"\n')
    )
    assert config.heartbeat_s == 5.0
    assert config.intervals == {"gpu.thermal": 2.0}
    assert config.nvml_env == {"A": "b"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hartbeat_s = 5", "unknown key 'hartbeat_s'; did you mean 'heartbeat_s'?"),
        ("zzz = 5", "unknown key 'zzz'; valid keys: act_on"),
        ('heartbeat_s = "5"', "heartbeat_s: expected a number, found '5'"),
        ("heartbeat_s = true", "heartbeat_s: expected a number, found True"),
        ("heartbeat_s = 0", "heartbeat_s: 0.0 is not between 0.2 and 60"),
        ("heartbeat_s = nan", "heartbeat_s: nan is not between 0.2 and 60"),
        ("gpu_count = 1.5", "gpu_count: expected a whole number, found 1.5"),
        ("state_dir = 5", "state_dir: expected a path (a string), found 5"),
        ("disk_paths = [1]", "disk_paths[0]: expected a string, found 1"),
        ("disk_paths = 1", "disk_paths: expected a list, found 1"),
        ("intervals = 1", "intervals: expected a table, found 1"),
        ('[intervals]\nx = "1"', "intervals.x: expected a number, found '1'"),
        ("[intervals]\nx = 0.1", "intervals.x: 0.1 is not at least 0.5"),
        ("controllers = []", "controllers: at least one URL is needed"),
        ('controllers = ["ftp://a"]', "controllers: expected http[s]://HOST[:PORT], found 'ftp://a'"),
        ('controllers = ["http://a:x"]', "controllers: not a URL: 'http://a:x'"),
        (
            'controllers = ["http://head:8460"]',
            "controllers: 'http://head:8460' would send this node's token unencrypted",
        ),
        ('controllers = ["http://10.0.0.5:8460"]', "https, or http on loopback alone"),
        ('node = "a b"', "node: not a node name: 'a b'"),
        ('log_format = "xml"', 'log_format: expected "text" or "json", found \'xml\''),
        ("a = [", "not TOML"),
    ],
)
def test_a_mistake_is_one_line_that_names_file_and_key(tmp_path: Path, text: str, message: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load_agent_config(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"agent\.toml: No such file"):
        load_agent_config(tmp_path / "agent.toml")


def test_the_example_is_valid_toml_and_means_the_defaults(tmp_path: Path) -> None:
    path = write(tmp_path, example())
    assert load_agent_config(path) == load_agent_config(write(tmp_path, ""))
    before_tables = example().partition("\n[")[0]
    commented = {line.split()[1] for line in before_tables.splitlines() if line.endswith(" =")}
    assert set(tomllib.loads(example())) | commented == set(AgentConfig.__dataclass_fields__)


def test_every_key_is_in_the_documentation() -> None:
    text = (Path(__file__).parents[2] / "docs" / "agent.md").read_text()
    assert [key for key in AgentConfig.__dataclass_fields__ if f"| `{key}` |" not in text] == []
