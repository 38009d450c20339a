"""A daemon that cannot start: only a wrong configuration keeps its unit from restarting it (RestartPreventExitStatus=2)."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.head import actor_main, controller_main
from holdfast.model.errors import ConfigError, HoldfastError, Unavailable


@pytest.mark.parametrize(("error", "status"), [(Unavailable("no database yet"), 1), (ConfigError("store.url"), 2)])
@pytest.mark.parametrize(("process", "builder"), [(controller_main, "build_controller"), (actor_main, "build_actor")])
def test_a_database_that_does_not_answer_yet_is_no_wrong_configuration(
    process: object, builder: str, error: HoldfastError, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "controller.toml"
    path.write_text(f'[run]\ndir = "{tmp_path}/run"\n')

    def fails(_settings: object) -> None:
        raise error

    monkeypatch.setattr(process, builder, fails)
    assert process.run(path) == status  # type: ignore[attr-defined]
