"""How the doctor asks a provider: by reading, and by dry runs where it can; no error that it meets is raised."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import pytest

from holdfast.doctor.gather.provider_edge import NO_SUCH_NODE, examine, metadata_options
from holdfast.model.errors import InsufficientCapacity, NotFound, NotPermitted, OutsideError, Rejected, Unavailable
from holdfast.model.machine import Instance, MetadataOptions, ProviderCan
from holdfast.ports import Provider

CAN = ProviderCan(reboot=True, replace=True, launch_first=False, status=True, power_off_confirmed=False)


class Reading:
    """The reading calls of the port; those named fail."""

    name = "some"

    def __init__(self, fails: Mapping[str, OutsideError] | None = None, machine: str = "i-1") -> None:
        self._fails, self._machine = dict(fails or {}), machine
        self.asked: list[str] = []

    def _say(self, what: str) -> None:
        if what in self._fails:
            raise self._fails[what]

    @property
    def can(self) -> ProviderCan:
        self._say("can")
        return CAN

    def repairs_itself(self) -> bool:
        self._say("repairs_itself")
        return True

    def notices(self) -> tuple[object, ...]:
        self._say("notices")
        return ()

    def on_trial(self) -> tuple[object, ...]:
        self._say("on_trial")
        return ()

    def instance_of(self, node: str) -> Instance | None:
        self.asked.append(node)
        self._say("instance_of")
        return Instance(self._machine, node, "running") if node == "n2" and self._machine else None


class Dry(Reading):
    """A provider that checks its rights, too."""

    errors: Mapping[str, OutsideError | None]

    def permissions(self, instance_id: str) -> Mapping[str, OutsideError | None]:
        assert instance_id == "i-1"
        return self.errors


def provider(fake: Reading) -> Provider:
    return cast(Provider, fake)


def test_one_that_answers() -> None:
    fake = Reading()
    found = examine(provider(fake), ("n1", "n2", "n3"))
    assert (found.problem, found.denied, found.refused) == ("", {}, {})
    assert (found.can, found.repairs) == (CAN, True)
    assert fake.asked == ["n1", "n2"], "one machine is enough"


@pytest.mark.parametrize("call", ["can", "repairs_itself", "notices", "on_trial", "instance_of"])
def test_whatever_fails_is_told_and_not_raised(call: str) -> None:
    assert examine(provider(Reading({call: Unavailable("no route")}))).problem == "no route"
    denied = examine(provider(Reading({call: NotPermitted("AccessDenied")})))
    assert denied.problem == ""
    assert list(denied.denied.values()) == ["AccessDenied"]
    assert examine(provider(Reading({call: NotFound("nothing there")}))).denied == {}, "it answered"
    assert list(examine(provider(Reading({call: Rejected("two machines")}))).refused.values()) == ["two machines"]


def test_dry_runs_tell_rights_from_other_obstacles() -> None:
    fake = Dry()
    fake.errors = {
        "RebootInstances": None,
        "RunInstances": NotPermitted("UnauthorizedOperation"),
        "CreateTags": Rejected("InvalidParameter"),
        "RunInstances again": InsufficientCapacity("none now"),
    }
    found = examine(provider(fake), ("n2",))
    assert found.denied == {"RunInstances": "UnauthorizedOperation"}
    assert found.refused == {"CreateTags": "InvalidParameter"}


def test_without_a_machine_nothing_is_tried() -> None:
    fake = Dry(machine="")
    fake.errors = {"RunInstances": NotPermitted("never asked")}
    assert examine(provider(fake), ("n2",)).denied == {}
    assert fake.asked == ["n2", NO_SUCH_NODE]


class Showing(Reading):
    """A provider that reports how it serves instance metadata."""

    def metadata_options(self, instance_id: str) -> MetadataOptions | None:
        self.asked.append(instance_id)
        self._say("metadata_options")
        return MetadataOptions(tokens_required=True, hop_limit=2)


def test_how_this_machines_metadata_is_served_is_asked_where_it_can_be() -> None:
    assert metadata_options(provider(Showing()), "i-9") == MetadataOptions(tokens_required=True, hop_limit=2)
    assert metadata_options(provider(Showing({"metadata_options": NotPermitted("denied")})), "i-9") is None
    assert metadata_options(provider(Reading()), "i-9") is None
    assert metadata_options(None, "i-9") is None
    fake = Showing()
    assert metadata_options(provider(fake), "") is None
    assert fake.asked == []
