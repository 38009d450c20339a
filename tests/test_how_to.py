"""The how-to pages: every setting in them is one, every path of the repository exists."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from holdfast.config.agent import load_agent_config
from holdfast.config.controller import read

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").glob("how-to-*.md"))
KINDS = {
    "how-to-ec2.md": ["ec2", "asg"],
    "how-to-hyperpod.md": ["hyperpod"],
    "how-to-on-premises.md": ["command"],
    "how-to-parallelcluster.md": ["parallelcluster"],
}


JOBS = ["how-to-elastic-loop.md", "how-to-elastic-sbatch.md", "how-to-elastic-slurm.md"]
"""Pages for those who train, and what their jobs need of Slurm."""
CHORES = [
    "how-to-check-policy.md",
    "how-to-containers.md",
    "how-to-tls.md",
    "how-to-tokens.md",
    "how-to-api.md",
    "how-to-propose.md",
]
"""Pages for one chore at any kind of site."""


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", [*PAGES, ROOT / "docs/install.md"], ids=lambda page: page.stem)
def test_every_block_of_settings_is_read(page: Path, tmp_path: Path) -> None:
    for name in ("tls.pem", "tls.key", "ca.pem"):
        (tmp_path / name).touch()
    kinds = []
    for text in blocks(page, "toml"):
        settings = text.replace("/etc/holdfast", str(tmp_path))
        if text.startswith("node ="):
            (tmp_path / "agent.toml").write_text(settings)
            load_agent_config(tmp_path / "agent.toml")
        else:
            kinds.append(read(tomllib.loads(settings), tmp_path / "controller.toml").provider)
    if page.name in KINDS:
        assert kinds == KINDS[page.name]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_file_that_is_named_exists(page: Path) -> None:
    named = set(re.findall(r"(?:lifecycle-scripts|slurm-plugins|docs)/[\w./-]*\w", page.read_text()))
    assert named or page.name in (*JOBS, *CHORES)
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_there_is_a_page_for_each_kind_of_site() -> None:
    assert [page.name for page in PAGES] == sorted([*KINDS, *JOBS, *CHORES])
