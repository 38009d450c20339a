"""The systemd units keep rights apart, and name what exists."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from pathlib import Path

import pytest

from holdfast.agent.sending.reporting import STATUS_FILE
from holdfast.config.agent import AgentConfig
from holdfast.config.controller import ControllerSettings
from holdfast.head.wiring import actor_lock, actor_socket, controller_lock, controller_socket

UNITS = Path(__file__).parents[1] / "lifecycle-scripts"
NAMES = ("holdfast-agent", "holdfast-controller", "holdfast-actor", "holdfast-quorum")

HIDES_THE_NODE = {
    "ProtectSystem",
    "ProtectHome",
    "PrivateTmp",
    "PrivateDevices",
    "ReadOnlyPaths",
    "ProtectKernelLogs",
    "RootDirectory",
}
"""In such a view the agent would judge another machine than the one that jobs see."""


def unit(name: str) -> dict[str, list[str]]:
    """Key → values of a unit, all sections together."""
    found: dict[str, list[str]] = {}
    for line in (UNITS / f"{name}.service").read_text().splitlines():
        key, mark, value = line.partition("=")
        if mark and not line.startswith(("#", "[")):
            found.setdefault(key, []).append(value)
    return found


def test_the_agent_sees_the_node_as_jobs_do() -> None:
    assert HIDES_THE_NODE & set(unit("holdfast-agent")) == set()
    assert unit("holdfast-agent")["Type"] == ["notify"]


def test_who_listens_holds_no_rights() -> None:
    controller, actor = unit("holdfast-controller"), unit("holdfast-actor")
    assert controller["User"] != actor["User"]
    assert "root" not in controller["User"] + actor["User"]
    assert controller["CapabilityBoundingSet"] == actor["CapabilityBoundingSet"] == [""]
    assert "169.254.169.254/32" in controller["IPAddressDeny"][0]
    assert "EnvironmentFile" not in controller
    assert "/etc/holdfast/actor" in controller["InaccessiblePaths"][0]


def test_who_listens_to_jobs_holds_no_rights_and_is_nobody_else() -> None:
    quorum = unit("holdfast-quorum")
    assert quorum["User"] == ["holdfast-quorum"]
    assert quorum["CapabilityBoundingSet"] == [""]
    assert "169.254.169.254/32" in quorum["IPAddressDeny"][0]
    assert "/etc/holdfast/actor" in quorum["InaccessiblePaths"][0]
    assert f"--user {unit('holdfast-controller')['User'][0]} " in quorum["ExecStartPre"][0], "the controller may speak"
    users = {
        words[1] for line in (UNITS / "holdfast-sysusers.conf").read_text().splitlines() if (words := line.split())
    }
    assert {unit(name)["User"][0] for name in ("holdfast-controller", "holdfast-actor", "holdfast-quorum")} <= users


def test_who_has_rights_does_not_listen() -> None:
    assert unit("holdfast-actor")["SocketBindDeny"] == ["any"]
    assert "IPAddressDeny" not in unit("holdfast-actor")


def test_the_head_nodes_services_share_the_store_by_their_group() -> None:
    entries = {
        words[1]: words
        for line in (UNITS / "holdfast-tmpfiles.conf").read_text().splitlines()
        if (words := line.split())
    }
    for name in ("holdfast-controller", "holdfast-actor"):
        assert unit(name)["UMask"] == ["0007"]
        assert "/var/lib/holdfast" in unit(name)["ReadWritePaths"][0].split()
    assert entries["/var/lib/holdfast/holdfast.db"][:3] == ["f", "/var/lib/holdfast/holdfast.db", "0660"]
    assert entries["/var/lib/holdfast"][2] == "2770"
    assert entries["/etc/holdfast/actor"][2:] == ["0700", "root", "root"]


def test_the_quorum_service_shares_nothing_with_the_others() -> None:
    """It listens to jobs. Neither the controller's database nor what is in controller.toml (its password) is accessible to it."""
    quorum = unit("holdfast-quorum")
    assert (quorum["Group"], quorum["UMask"], quorum["StateDirectoryMode"]) == (["holdfast-quorum"], ["0077"], ["0700"])
    assert "ReadWritePaths" not in quorum
    for path in ("/etc/holdfast/controller.toml", "/var/lib/holdfast", "/run/holdfast", "/etc/holdfast/actor"):
        assert f"-{path}" in quorum["InaccessiblePaths"][0].split()
    users = (UNITS / "holdfast-sysusers.conf").read_text().splitlines()
    assert [line for line in users if line.startswith("u holdfast-quorum")][0].split()[2] == "-:holdfast-quorum"  # noqa: RUF015
    pre, start = quorum["ExecStartPre"][0], quorum["ExecStart"][0]
    assert pre.startswith("+/opt/holdfast/bin/python -m holdfast.head quorum ")
    assert pre.rpartition(" ")[2] == start.rpartition("@")[2] == "/run/holdfast-quorum.arguments", "a folder of root's"


def test_each_of_the_head_nodes_services_has_a_folder_of_its_own_for_sockets_and_locks() -> None:
    """The group may enter and write nothing: a taken-over controller replaces no file of the actor's, and none of the root agent's."""
    entries = [line.split() for line in (UNITS / "holdfast-tmpfiles.conf").read_text().splitlines()]
    assert ["d", "/run/holdfast", "0755", "root", "root"] in entries
    for name in ("controller", "actor"):
        found = unit(f"holdfast-{name}")
        assert (found["RuntimeDirectory"], found["RuntimeDirectoryMode"]) == ([f"holdfast/{name}"], ["0750"])
        assert found["RuntimeDirectoryPreserve"] == ["yes"], "the next process reads there who was the last"
        assert "/run/holdfast" not in found["ReadWritePaths"][0].split()
        settings = ControllerSettings(Path("/etc/holdfast/controller.toml"))
        ours = {"controller": (controller_socket, controller_lock), "actor": (actor_socket, actor_lock)}[name]
        assert {str(path(settings).parent) for path in ours} == {f"/run/{found['RuntimeDirectory'][0]}"}
    assert "RuntimeDirectory" not in unit("holdfast-agent"), "containers have it mounted; it is there from boot on"


def test_the_actor_counts_in_a_folder_of_its_own() -> None:
    actor = unit("holdfast-actor")
    assert (actor["StateDirectory"], actor["StateDirectoryMode"]) == (["holdfast-actor"], ["0700"])
    assert actor["User"] not in [unit(name)["User"] for name in ("holdfast-controller", "holdfast-quorum")]


@pytest.mark.parametrize("name", NAMES)
def test_started_modules_exist(name: str) -> None:
    (command,) = unit(name)["ExecStart"]
    words = command.split()
    assert words[0] == "/opt/holdfast/bin/python"
    assert importlib.util.find_spec(f"{words[2]}.__main__") is not None


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here; ./dev setup does not install it")
@pytest.mark.slow
def test_systemd_understands_every_line(name: str, tmp_path: Path) -> None:
    text = (UNITS / f"{name}.service").read_text().replace("/opt/holdfast/bin/python", "/bin/true")
    copy = tmp_path / f"{name}.service"
    copy.write_text(text)
    done = subprocess.run(["systemd-analyze", "verify", copy], capture_output=True, text=True, timeout=30, check=False)
    about_ours = [line for line in done.stderr.splitlines() if copy.name in line]
    assert about_ours == []


@pytest.mark.parametrize("name", NAMES)
def test_a_stuck_process_is_started_again(name: str) -> None:
    """The watchdog distinguishes each from a living one, and its stacks go to the journal (SIGABRT)."""
    assert unit(name)["Type"] == ["notify"]
    assert unit(name)["WatchdogSec"] == ["60"]
    assert unit(name)["Restart"] == ["always"]
    assert "PYTHONFAULTHANDLER=1" in unit(name)["Environment"]
    assert unit(name)["StartLimitIntervalSec"] == ["0"], "it keeps trying, however long its dependency is away"


def test_the_agent_may_become_a_jobs_user() -> None:
    """It searches for a job's newest checkpoint with that user's rights, never with root's."""
    assert {"CAP_SETUID", "CAP_SETGID"} <= set(unit("holdfast-agent")["CapabilityBoundingSet"][0].split())


def test_active_tests_have_room_beside_the_agent() -> None:
    """They are its children: PyTorch takes gigabytes, a thread for each CPU, and EFA locked memory. What is too much ends alone."""
    agent = unit("holdfast-agent")
    assert agent["OOMPolicy"] == ["continue"]
    assert agent["MemoryMax"] == ["25%"]
    assert int(agent["TasksMax"][0]) >= 4096
    assert agent["LimitMEMLOCK"] == ["infinity"]


@pytest.mark.parametrize("name", ["holdfast-controller", "holdfast-actor", "holdfast-quorum"])
def test_nothing_on_the_head_node_can_take_all_of_it(name: str) -> None:
    """A controller of 4,096 nodes takes 300 MiB and some dozen threads."""
    bounds = unit(name)
    assert bounds["MemoryMax"][0] in ("25%", "50%")
    assert 256 <= int(bounds["TasksMax"][0]) <= 1024


def test_the_unit_that_shows_an_agent_as_not_reporting_watches_the_agents_own_file() -> None:
    path = dict(
        line.split("=", 1)
        for line in (UNITS / "holdfast-agent-reporting.path").read_text().splitlines()
        if "=" in line and not line.startswith("#")
    )
    assert path["PathChanged"] == str(AgentConfig().run_dir / STATUS_FILE)
    assert path["Unit"] == "holdfast-agent-reporting.service"
    assert any("holdfast-agent-reporting.path" in wants for wants in unit("holdfast-agent")["Wants"]), (
        "nothing to enable"
    )
    (command,) = unit("holdfast-agent-reporting")["ExecStart"]
    assert command.split()[1:5] == ["-m", "holdfast.agent", "check", "--running"]
    assert unit("holdfast-agent-reporting")["Type"] == ["oneshot"]


def test_a_reload_of_the_controller_is_the_signal_that_it_knows() -> None:
    """By the shell's own ``kill``: /bin/kill is of procps, which no minimal Debian has."""
    assert unit("holdfast-controller")["ExecReload"] == ['/bin/sh -c "kill -HUP $MAINPID"']
    assert "signal.SIGHUP" in (UNITS.parent / "daemon/holdfast/head/controller_main.py").read_text()
