"""The shipped script for BMCs, run as it is over a fake ``ipmitool``; the contract suite has the rest."""

from __future__ import annotations

from typing import Any, Protocol

import pytest

from holdfast.model.errors import NotPermitted, OutsideError, Rejected, Unavailable
from holdfast.providers.command.adapter import CommandProvider
from holdfast.providers.command.settings import CommandSettings

pytestmark = pytest.mark.slow


class Bmcs(Protocol):
    @property
    def folder(self) -> Any: ...
    @property
    def settings(self) -> CommandSettings: ...
    def set(self, bmc: str, state: str) -> None: ...
    def calls(self) -> list[str]: ...


def effects(bmcs: Bmcs) -> list[str]:
    """The commands sent apart from the state query, with the BMC."""
    words = [call.split() for call in bmcs.calls()]
    return [f"{w[w.index('-H') + 1]} {w[-1]}" for w in words if w[-1] != "status"]


@pytest.fixture
def provider(bmcs: Bmcs) -> CommandProvider:
    return CommandProvider(bmcs.settings)


def test_power_is_the_state_and_proof_of_it(provider: CommandProvider, bmcs: Bmcs) -> None:
    assert provider.can.power_off_confirmed
    bmcs.set("bmc1", "off")
    assert provider.instance("asset-1").state == "stopped"
    assert provider.instance("asset-10").state == "running"


def test_a_machine_without_an_asset_tag_goes_by_its_node(provider: CommandProvider) -> None:
    found = provider.instance_of("n3")
    assert found is not None
    assert found.instance_id == "n3"


def test_the_account_is_not_in_the_arguments(provider: CommandProvider, bmcs: Bmcs) -> None:
    provider.reboot("asset-1")
    assert "secret" not in " ".join(bmcs.calls())


@pytest.mark.parametrize(("power", "how"), [("on", "cycle"), ("off", "on")])
def test_a_reboot_fits_the_power(provider: CommandProvider, bmcs: Bmcs, power: str, how: str) -> None:
    bmcs.set("bmc1", power)
    provider.reboot("asset-1")
    assert effects(bmcs) == [f"bmc1 {how}"]


def test_one_token_is_one_reboot(bmcs: Bmcs) -> None:
    for token in ("inc-1", "inc-1", "inc-2"):
        CommandProvider(bmcs.settings).reboot("asset-1", token=token)
    assert effects(bmcs) == ["bmc1 cycle", "bmc1 cycle"]


def test_without_a_token_each_call_is_a_reboot(provider: CommandProvider, bmcs: Bmcs) -> None:
    provider.reboot("asset-1")
    provider.reboot("asset-1")
    assert len(effects(bmcs)) == 2


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("Error: Unable to establish IPMI v2 / RMCP+ session", Unavailable),
        ("RAKP 2 HMAC is invalid", NotPermitted),
        ("Set Chassis Power Control to Cycle failed: Insufficient privilege level", NotPermitted),
    ],
)
def test_a_bmc_that_fails_says_why(bmcs: Bmcs, provider: CommandProvider, line: str, kind: type[OutsideError]) -> None:
    bmcs.set("bmc1", line)
    for call in (lambda: provider.instance("asset-1"), lambda: provider.reboot("asset-1", token="inc-1")):
        with pytest.raises(kind, match=f"BMC bmc1 of n1: .*{line.rsplit(maxsplit=1)[-1]}") as caught:
            call()
        assert type(caught.value) is kind


def test_a_reboot_that_failed_may_be_repeated(bmcs: Bmcs, provider: CommandProvider) -> None:
    (bmcs.folder / "refuses").touch()
    with pytest.raises(Unavailable, match="BMC bmc1 of n1: busy"):
        provider.reboot("asset-1", token="inc-1")
    (bmcs.folder / "refuses").unlink()
    provider.reboot("asset-1", token="inc-1")
    assert effects(bmcs) == ["bmc1 cycle", "bmc1 cycle"]


def test_no_list_of_machines_is_no_news_about_a_machine(
    bmcs: Bmcs, provider: CommandProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_IPMI_HOSTS", "/nonexistent/hosts")
    with pytest.raises(Unavailable, match="cannot read /nonexistent/hosts"):
        provider.instance("asset-1")


def test_a_state_folder_that_cannot_be_written_reboots_nothing(
    bmcs: Bmcs, provider: CommandProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_IPMI_STATE", "/dev/null/state")
    with pytest.raises(Unavailable, match="cannot write to /dev/null/state"):
        provider.reboot("asset-1", token="inc-1")
    assert effects(bmcs) == []


def test_it_replaces_nothing(provider: CommandProvider) -> None:
    assert not provider.can.replace_in_place
    with pytest.raises(Rejected):
        provider.replace("n1", "asset-1", incident="inc", token="inc-1")
