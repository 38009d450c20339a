"""Scripts that fail, hang, babble or lie: each ends in one clear line, and no process of them is left running."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from holdfast.model.errors import NotFound, NotPermitted, OutsideError, Rejected, Unavailable
from holdfast.model.machine import ProviderCan
from holdfast.providers import CommandSettings
from holdfast.providers.command.adapter import CommandProvider
from holdfast_checks import changeable
from holdfast_checks.probes import process_files

pytestmark = pytest.mark.slow
NOTHING = ProviderCan(reboot=False, replace=False, launch_first=False, status=False, power_off_confirmed=False)
CAPABLE = """[ "$1" = capabilities ] && echo '{"contract": 1, "verbs": ["status", "reboot", "replace"]}' && exit\n"""
Write = Callable[..., CommandProvider]
KNOWS = (
    CAPABLE
    + """[ "$1" = status ] && echo '{"machine": {"instance_id": "asset-1", "node": "n1", "state": "running"}}' && exit\n"""
)
"""Asked for a machine, by whatever name, it shows asset-1 as n1's."""


@pytest.fixture
def script(tmp_path: Path) -> Write:
    """Makes a provider of a shell script; all verbs but launch are declared."""

    def write(body: str, *, head: str = CAPABLE, deadline_s: float = 5.0) -> CommandProvider:
        file = tmp_path / "site.sh"
        file.write_text(f"#!/bin/sh\ncd {tmp_path}\n{head}{body}\n", encoding="utf-8")
        file.chmod(0o755)
        return CommandProvider(CommandSettings("c", (str(file),), deadline_s))

    return write


def running(pid: int) -> bool:
    """Whether the process is there and no zombie."""
    stat = process_files.stat(pid)
    return stat is not None and not stat.ended


def await_end(pid: int) -> None:
    deadline = time.monotonic() + 5
    while running(pid):
        assert time.monotonic() < deadline, f"{pid} still runs"
        time.sleep(0.02)


def test_at_the_deadline_the_whole_group_is_killed(script: Write, tmp_path: Path) -> None:
    provider = script('trap "" TERM; sleep 60 & echo $! >child; echo $$ >self; wait', head=KNOWS, deadline_s=1.0)
    began = time.monotonic()
    with pytest.raises(
        Unavailable, match="reboot asset-1: no answer within 1 s, it was killed: what was done is not known"
    ):
        provider.reboot("asset-1")
    assert time.monotonic() - began < 30
    for name in ("child", "self"):
        await_end(int((tmp_path / name).read_text()))


def test_what_a_script_leaves_behind_is_killed_and_not_waited_for(script: Write, tmp_path: Path) -> None:
    provider = script("sleep 60 & echo $! >child; echo '{}'", head=KNOWS)
    began = time.monotonic()
    provider.reboot("asset-1")
    assert time.monotonic() - began < 30
    await_end(int((tmp_path / "child").read_text()))


def test_endless_output_is_cut_and_no_answer(script: Write) -> None:
    provider = script("""printf '{"machine": null'; head -c 300000 /dev/zero | tr '\\0' ' '; echo '}'""")
    with pytest.raises(Unavailable, match="more than 65536 bytes of standard output"):
        provider.instance_of("n1")


def test_output_without_end_ends_at_the_deadline(script: Write) -> None:
    with pytest.raises(Unavailable, match="no answer within 1 s"):
        script("exec cat /dev/zero", deadline_s=1.0).reboot("asset-1")


def test_much_on_standard_error_is_no_fault(script: Write) -> None:
    assert script("""head -c 300000 /dev/zero >&2; echo '{"machine": null}'""").instance_of("n1") is None


def test_a_script_that_reads_nothing_is_no_fault(script: Write) -> None:
    assert script("""exec <&-; echo '{"machine": null}'""").instance_of("n1") is None


@pytest.mark.parametrize("answer", ["", "done", '{"machine": {"state": "on"}}', "{}"])
def test_garbage_is_one_clear_line(script: Write, answer: str, caplog: pytest.LogCaptureFixture) -> None:
    provider = script(f"echo '{answer}'")
    with caplog.at_level(logging.WARNING), pytest.raises(Unavailable) as caught:
        provider.replace("n1", "asset-1", incident="inc", token="inc-1")
    assert str(caught.value).startswith("provider command: status inc-1: ")
    assert "\n" not in str(caught.value)
    assert [record.getMessage().split()[:2] for record in caplog.records] == [
        ["event=provider_command_failed", "verb=status"]
    ]


@pytest.mark.parametrize(
    ("status", "kind"), [(110, Rejected), (112, NotPermitted), (115, Unavailable), (7, Unavailable)]
)
def test_an_exit_status_is_the_ports_error(script: Write, status: int, kind: type[OutsideError]) -> None:
    with pytest.raises(kind, match="provider command: reboot asset-1: rack 3 is dark") as caught:
        script(f"echo rack 3 is dark >&2; exit {status}", head=KNOWS).reboot("asset-1")
    assert type(caught.value) is kind


def test_not_found_by_status_is_no_machine(script: Write, caplog: pytest.LogCaptureFixture) -> None:
    provider = script("exit 111")
    assert provider.instance_of("n1") is None
    assert provider.find_launched("inc-1") is None
    with pytest.raises(NotFound, match="knows no machine asset-1"):
        provider.instance("asset-1")
    assert caplog.records == []


def test_a_site_that_is_away_is_not_a_machine_that_is_gone(script: Write) -> None:
    """NotFound counts as powered off where a node is fenced."""
    provider = script("echo inventory is away >&2; exit 1")
    with pytest.raises(Unavailable):
        provider.instance("asset-1")
    with pytest.raises(Unavailable):
        provider.instance_of("n1")


def test_no_such_script(tmp_path: Path) -> None:
    provider = CommandProvider(CommandSettings("c", (str(tmp_path / "nowhere"),)))
    with pytest.raises(Unavailable, match="nowhere: cannot be run: No such file"):
        provider.instance_of("n1")
    assert provider.can == NOTHING


def test_a_script_without_the_mode_to_run(tmp_path: Path) -> None:
    (tmp_path / "site.sh").write_text("#!/bin/sh\n")
    with pytest.raises(NotPermitted, match=r"site\.sh: may not be run"):
        CommandProvider(CommandSettings("c", (str(tmp_path / "site.sh"),))).instance_of("n1")


@pytest.mark.parametrize("opened", ["site.sh", "."])
@pytest.mark.parametrize("by", ["itself", "an interpreter"])
def test_a_script_that_anybody_could_replace_is_not_run(script: Write, tmp_path: Path, opened: str, by: str) -> None:
    """It would run with the actor's rights: those of a Slurm administrator."""
    provider = script("touch ran; echo '{}'")
    if by == "an interpreter":
        provider = CommandProvider(CommandSettings("c", ("/bin/sh", str(tmp_path / "site.sh")), 5.0))
    (tmp_path / opened).chmod(0o777)
    with pytest.raises(NotPermitted, match="may be written by everybody: it is not run"):
        provider.instance_of("n1")
    assert provider.can == NOTHING
    assert not (tmp_path / "ran").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_a_script_that_is_another_users_is_not_run(script: Write, tmp_path: Path) -> None:
    provider = script("touch ran; echo '{}'")
    os.chown(tmp_path / "site.sh", 65534, 65534)
    with pytest.raises(NotPermitted, match="belongs to uid 65534"):
        provider.instance_of("n1")
    assert not (tmp_path / "ran").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_a_script_of_who_owns_holdfasts_code_is_run(
    script: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where root runs the practice out of a developer's checkout."""
    provider = script("echo '{}'")
    code = tmp_path / "changeable.py"
    for theirs in (code, tmp_path / "site.sh"):
        theirs.touch()
        os.chown(theirs, 65534, 65534)
    monkeypatch.setattr(changeable, "__file__", str(code))
    assert provider.can.reboot


def test_a_script_without_a_first_line(tmp_path: Path) -> None:
    (tmp_path / "site.sh").write_text("echo\n")
    (tmp_path / "site.sh").chmod(0o755)
    with pytest.raises(Unavailable, match="cannot be run: Exec format error"):
        CommandProvider(CommandSettings("c", (str(tmp_path / "site.sh"),))).instance_of("n1")


def test_while_the_script_fails_it_can_do_nothing_and_is_asked_again(
    script: Write, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    head = "[ -e ready ] || { echo not mounted yet >&2; exit 1; }\n" + CAPABLE
    provider = script("echo '{}'", head=head)
    assert provider.can == NOTHING
    assert "not mounted yet" in caplog.text
    with pytest.raises(Unavailable, match="not mounted yet"):
        provider.reboot("asset-1")
    (tmp_path / "ready").touch()
    assert (provider.can.reboot, provider.can.status, provider.can.launch_first, provider.can.replace_in_place) == (
        True, True, False, True,
    )  # fmt: skip
    (tmp_path / "ready").unlink()
    assert provider.can.reboot  # asked once


def test_an_undeclared_verb_is_rejected_and_never_run(script: Write, tmp_path: Path) -> None:
    provider = script("echo $1 >>asked; echo '{}'")
    with pytest.raises(Rejected, match="does not declare the verb launch"):
        provider.launch("n1", incident="inc", token="inc-1")
    with pytest.raises(Rejected, match="does not declare the verb terminate"):
        provider.terminate("asset-1")
    assert not (tmp_path / "asked").exists()


def test_ids_that_agents_choose_never_reach_the_script_unless_they_are_words(script: Write, tmp_path: Path) -> None:
    provider = script("echo $1 >>asked; exit 111")
    for call in (provider.instance, provider.reboot):
        with pytest.raises(Rejected) as caught:
            call("../../etc/passwd")
        assert not isinstance(caught.value, NotFound)
    assert not (tmp_path / "asked").exists()


def test_one_token_reboots_once(tmp_path: Path, site_module: ModuleType) -> None:
    file = tmp_path / "site.json"
    site_module.new_site(file, {"n1": "asset-1"})
    script = Path(__file__).parent / "site_script.py"
    provider = CommandProvider(CommandSettings("c", ("/usr/bin/env", "python3", str(script), str(file), "in-place")))
    for token in ("inc-1", "inc-1", "inc-2"):
        provider.reboot("asset-1", incident="inc", token=token)
    assert [done["token"] for done in site_module.effects(file, "reboot")] == ["inc-1", "inc-2"]


def test_a_launch_that_works_in_place_is_refused(script: Write, tmp_path: Path) -> None:
    """Else the controller would next terminate the old machine, which is the new one."""
    head = """[ "$1" = capabilities ] &&
        echo '{"contract": 1, "verbs": ["status", "launch", "assign", "terminate"]}' && exit\n"""
    answer = """{"machine": {"instance_id": "asset-1", "node": "n1", "state": "%s", "token": "%s", "incident": "%s"}}"""
    body = (
        f"""[ "$1$4" = statusinc-1 ] && echo '{{"machine": null}}' && exit\nprintf '{answer}\\n' running "$4" "$5" """
    )
    with pytest.raises(Rejected, match=r"launch gave asset-1, which serves n1: .* declares replace"):
        script(body, head=head).launch("n1", incident="inc", token="inc-1")


def test_a_machine_that_carries_the_token_is_not_replaced_again(script: Write, tmp_path: Path) -> None:
    """Also by a script that does not check: a lost answer costs nothing."""
    answer = """{"machine": {"instance_id": "asset-1", "node": "n1", "state": "pending", "token": "%s", "incident": "inc"}}"""
    body = f"""case $1 in
        replace) echo $4 >>replaced; exit 1 ;;
        status) [ -z "$4" -o -e replaced ] && printf '{answer}' "$4" || echo '{{"machine": null}}' ;;
        esac"""
    provider = script(body)
    with pytest.raises(Unavailable, match="exit status 1: what was done is not known"):
        provider.replace("n1", "asset-1", incident="inc", token="inc-1")
    for _ in range(2):
        assert provider.replace("n1", "asset-1", incident="inc", token="inc-1").state == "pending"
    assert (tmp_path / "replaced").read_text() == "inc-1\n"


def test_a_token_that_made_a_machine_for_another_node_is_refused(script: Write) -> None:
    answer = """{"machine": {"instance_id": "asset-2", "node": "n2", "state": "running", "token": "inc-1"}}"""
    with pytest.raises(Rejected, match="token inc-1 made asset-2 for 'n2', not n1"):
        script(f"echo '{answer}'").replace("n1", "asset-1", incident="inc", token="inc-1")
