"""The HyperPod provider over real HTTP against the emulator; effects are counted there."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest

from holdfast.model.errors import NotFound, NotPermitted, Rejected, RepairsItself, Throttled, Unavailable
from holdfast.model.machine import Instance, NoticeKind
from holdfast.ports import Provider
from holdfast.practice.aws.client import EmulatorControl
from holdfast.practice.aws.faults import ApiFault
from holdfast.practice.aws.hyperpod_client import HyperpodControl
from holdfast.providers.hyperpod.adapter import HyperpodProvider
from holdfast.providers.hyperpod.settings import LEAD, OBSERVE
from support.hyperpod_pod import REBOOT, REPLACE, Pod

FAST = {"shutting_down_s": 0.0, "pending_s": 0.0, "deep_check_s": 0.0, "rebooting_s": 30.0, "list_lag_s": 0.0}
UNKNOWN_ID = "i-0123456789abcdef0"


@pytest.fixture
def make(aws: EmulatorControl, cluster: str, tmp_path: Path) -> Callable[..., Pod]:
    def make_pod(gpus: int = 3, **settings: Any) -> Pod:
        control = HyperpodControl(aws.endpoint, cluster)
        control.phases(**FAST)
        groups = [
            {"name": "head", "count": 1, "type": "ml.m5.xlarge", "node_type": "Controller"},
            {"name": "gpu", "count": gpus},
        ]
        ids = control.make(groups, **settings)
        return Pod(control, ids, control.last_call(), tmp_path)

    return make_pod


@pytest.fixture
def pod(make: Callable[..., Pod]) -> Pod:
    return make()


def await_new(provider: HyperpodProvider, pod: Pod) -> Instance:
    deadline = time.monotonic() + 10
    while True:
        seen = provider.instance_of(pod.node)
        if seen is not None and seen.instance_id != pod.old and seen.state == "running":
            return seen
        assert time.monotonic() < deadline, seen
        time.sleep(0.05)


def test_node_and_machine_are_joined_by_the_list(pod: Pod) -> None:
    provider: Provider = pod.open(page_size=2)
    seen = provider.instance_of(pod.node)
    assert seen is not None
    assert (seen.instance_id, seen.node, seen.state) == (pod.old, pod.node, "running")
    assert pod.node == "ip-" + seen.address.replace(".", "-")
    assert seen.launched_at is not None
    assert seen.launched_at.tzinfo is UTC
    assert provider.instance(pod.old) == seen
    assert len(pod.control.calls("ListClusterNodes", pod.since)) == 4  # two pages each
    assert provider.instance_of("ip-10-255-255-255") is None
    with pytest.raises(NotFound, match=UNKNOWN_ID):
        provider.instance(UNKNOWN_ID)


def test_address_is_asked_once_where_the_list_has_no_host_name(make: Callable[..., Pod]) -> None:
    pod = make(hostnames=False)
    provider = pod.open()
    for _ in range(2):
        seen = provider.instance_of(pod.node)
        assert seen is not None
        assert seen.instance_id == pod.old
    assert len(pod.control.calls("DescribeClusterNode", pod.since)) == len(pod.ids)
    assert pod.replace(pod.open()).state == "shutting-down"  # a fresh process learns the name before it acts


@pytest.mark.parametrize("continuous", [False, True])
def test_replacement_in_place_end_to_end(make: Callable[..., Pod], continuous: bool) -> None:
    pod = make(continuous=continuous)
    pod.control.phases(shutting_down_s=0.2, pending_s=0.3, deep_check_s=0.2)
    provider = pod.open()
    taken = pod.replace(provider)
    assert (taken.instance_id, taken.node, taken.state) == (pod.old, pod.node, "shutting-down")
    new = await_new(provider, pod)
    assert new.node == pod.node
    assert pod.replace(pod.open()).instance_id == new.instance_id  # asked again when all is over
    assert pod.effects() == [pod.old]
    with pytest.raises(NotFound):
        provider.instance(pod.old)


@pytest.mark.parametrize(
    ("phases", "state"),
    [
        ({"shutting_down_s": 60.0}, "shutting-down"),
        ({"pending_s": 60.0}, "between"),  # the old one is gone, the new one has no name yet
        ({"deep_check_s": 60.0}, "pending"),
        ({}, "running"),
    ],
)
def test_repeated_replacement_is_recognised_at_every_moment(pod: Pod, phases: dict[str, float], state: str) -> None:
    pod.control.phases(**phases)
    pod.replace(pod.open())
    for _ in range(2):
        try:
            seen = pod.replace(pod.open()).state  # a controller that forgot everything
        except Unavailable as error:
            seen = "between" if "neither" in str(error) else str(error)
        assert seen == state
    assert (len(pod.asked()), pod.effects()) == (1, [pod.old])


def test_late_list_does_not_lead_to_a_second_replacement(pod: Pod) -> None:
    pod.control.phases(list_lag_s=60.0, shutting_down_s=60.0)
    assert pod.replace(pod.open()).state == "shutting-down"
    again = pod.replace(pod.open())  # the list still says Running, HyperPod says InstanceIdInUse
    assert (again.instance_id, again.state) == (pod.old, "running")
    assert len(pod.asked()) == 2
    assert pod.effects() == [pod.old]


def test_lost_answer_is_under_way_and_not_repeated_by_itself(pod: Pod) -> None:
    pod.control.phases(shutting_down_s=30.0)
    pod.control.inject(ApiFault(REPLACE, "InternalFailure", status=500, after=True))
    with pytest.raises(Unavailable, match="InternalFailure"):
        pod.replace(pod.open(attempts=3))
    assert len(pod.asked()) == 1
    assert pod.replace(pod.open()).state == "shutting-down"
    assert (len(pod.asked()), pod.effects()) == (1, [pod.old])


@pytest.mark.parametrize(
    ("code", "error"),
    [("InvalidInstanceStatus", Unavailable), ("InternalServerError", Unavailable), ("InstanceIdNotFound", Unavailable)],
)
def test_refusal_inside_a_200_is_not_a_success(pod: Pod, code: str, error: type[Exception]) -> None:
    pod.control.refuse(pod.old, code)
    with pytest.raises(error, match=code):
        pod.replace(pod.open())
    assert pod.effects() == []
    assert pod.replace(pod.open()).state == "shutting-down"


@pytest.mark.parametrize("status", ["SystemUpdating", "DeepHealthCheckInProgress", "Pending"])
def test_machine_that_hyperpod_works_on_is_left_alone(pod: Pod, status: str) -> None:
    pod.control.set_status(pod.old, status)
    with pytest.raises(Unavailable, match=f"{status}.*ask again"):
        pod.replace(pod.open(resource_config=str(config_file(pod))))
    with pytest.raises(Unavailable, match=status):
        pod.open().reboot(pod.old)
    assert pod.asked() + pod.asked(REBOOT) == []


def test_failed_replacement_shows_and_takes_another(pod: Pod) -> None:
    pod.control.doom(pod.old, "EFA health checks did not run successfully")
    pod.replace(pod.open())
    failed = pod.open().instance_of(pod.node)
    assert failed is not None
    assert (failed.instance_id != pod.old, failed.state, failed.healthy) == (True, "running", False)
    pod.open().replace(pod.node, failed.instance_id, incident="inc", token="inc-2")
    third = pod.open().instance_of(pod.node)
    assert third is not None
    assert (third.instance_id not in (pod.old, failed.instance_id), third.healthy) == (True, None)
    assert pod.effects() == [pod.old, failed.instance_id]


@pytest.mark.parametrize("word", ["Automatic", ""])
def test_where_hyperpod_repairs_holdfast_only_watches(pod: Pod, word: str) -> None:
    provider = pod.open()
    assert provider.repairs_itself() is False
    pod.control.settings(node_recovery=word)  # changed behind a running controller's back
    assert provider.repairs_itself() is True
    with pytest.raises(RepairsItself, match="Holdfast watches"):
        pod.replace(provider)
    with pytest.raises(RepairsItself):
        provider.reboot(pod.old)
    assert pod.asked() + pod.asked(REBOOT) == []


def test_observe_acts_never_and_sees_what_hyperpod_does(pod: Pod) -> None:
    provider = pod.open(mode=OBSERVE)
    assert (provider.can.reboot, provider.can.replace_in_place, provider.can.status) == (False, False, True)
    with pytest.raises(RepairsItself, match="mode observe"):
        pod.replace(provider)
    pod.control.repair(pod.old, "replace")
    assert pod.old not in {node.instance_id for node in provider.nodes() if node.node == pod.node}
    assert pod.control.calls(REPLACE, pod.since) == []


def test_head_node_is_never_acted_on(make: Callable[..., Pod]) -> None:
    pod = make(slurm_config=False)  # an older cluster: its groups do not say it
    head, head_id = next(iter(pod.ids.items()))
    for provider in (pod.open(controller_groups=("head",)), pod.open(resource_config=str(config_file(pod)))):
        with pytest.raises(Rejected, match="head node"):
            provider.replace(head, head_id, incident="inc", token="t")
        with pytest.raises(Rejected, match="head node"):
            provider.reboot(head_id)
    assert pod.asked() + pod.asked(REBOOT) == []


def test_head_node_is_known_from_slurm_config(pod: Pod) -> None:
    head, head_id = next(iter(pod.ids.items()))
    with pytest.raises(Rejected, match="head node"):
        pod.open().replace(head, head_id, incident="inc", token="t")


def test_pair_of_node_and_machine_must_agree(pod: Pod) -> None:
    other = list(pod.ids)[2]
    with pytest.raises(Rejected, match=f"as {pod.node}, not as {other}"):
        pod.open().replace(other, pod.old, incident="inc", token="t")
    assert pod.asked() == []


@pytest.mark.parametrize(("status", "error"), [("Updating", Unavailable), ("Failed", Rejected)])
def test_cluster_out_of_service_takes_no_action(pod: Pod, status: str, error: type[Exception]) -> None:
    pod.control.settings(status=status)
    with pytest.raises(error, match=status):
        pod.replace(pod.open())
    assert pod.asked() == []


def test_reboot_keeps_the_machine_and_two_at_once_are_one(pod: Pod) -> None:
    provider = pod.open()
    provider.reboot(pod.old)
    provider.reboot(pod.old)
    assert pod.effects(REBOOT) == [pod.old]
    assert provider.instance(pod.old).state == "running"
    with pytest.raises(NotFound):
        provider.reboot(UNKNOWN_ID)


def test_throttling_is_ridden_out_when_reading_and_told_when_acting(pod: Pod) -> None:
    pod.control.inject(ApiFault("ListClusterNodes", "ThrottlingException", times=1))
    assert pod.open(attempts=3).instance_of(pod.node) is not None
    pod.control.inject(ApiFault(REPLACE, "ThrottlingException", times=1))
    with pytest.raises(Throttled):
        pod.replace(pod.open(attempts=3))
    assert (len(pod.asked()), pod.effects()) == (1, [])


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (ApiFault("DescribeCluster", "InternalFailure", status=500), Unavailable),
        (ApiFault("DescribeCluster", "AccessDeniedException"), NotPermitted),
        (ApiFault("ListClusterNodes", "ServiceUnavailable", status=503), Unavailable),
        (ApiFault("ListClusterNodes", delay_s=1.0), Unavailable),
        (ApiFault(REPLACE, "AccessDeniedException"), NotPermitted),
        (ApiFault(REPLACE, "ValidationException"), Rejected),
    ],
)
def test_nothing_is_done_on_missing_data(pod: Pod, fault: ApiFault, error: type[Exception]) -> None:
    pod.control.inject(fault)
    with pytest.raises(error):
        pod.replace(pod.open(read_timeout_s=0.4))
    assert pod.effects() == []


def test_wrong_cluster_is_rejected_and_no_node_is_missing(pod: Pod) -> None:
    with pytest.raises(Rejected, match="ResourceNotFound") as caught:
        pod.open(cluster="nowhere").instance_of(pod.node)
    assert not isinstance(caught.value, NotFound)


def config_file(pod: Pod) -> Path:
    file = pod.folder / "resource_config.json"
    file.write_text(json.dumps(pod.control.resource_config()))
    return file


def test_stale_resource_config_names_no_machine_wrongly(pod: Pod) -> None:
    provider = pod.open(resource_config=str(config_file(pod)))
    pod.control.repair(pod.old, "replace")
    seen = provider.instance_of(pod.node)
    assert seen is not None
    assert seen.instance_id != pod.old


def test_instance_names_come_from_resource_config(pod: Pod) -> None:
    provider = pod.open(resource_config=str(config_file(pod)), node_names="instance")
    seen = provider.instance_of("gpu-1")
    assert seen is not None
    assert seen.instance_id == pod.old
    provider.replace("gpu-1", pod.old, incident="inc", token="t")
    assert provider.instance_of("gpu-1") is None  # the new id is in no file yet: not known, and not guessed
    config_file(pod)
    fresh = provider.instance_of("gpu-1")
    assert fresh is not None
    assert fresh.instance_id != pod.old


@pytest.mark.parametrize("text", ["{torn", '{"ClusterConfig": {"ClusterName": "another"}}'])
def test_torn_or_foreign_resource_config_is_passed_over(pod: Pod, text: str, caplog: pytest.LogCaptureFixture) -> None:
    file = pod.folder / "resource_config.json"
    file.write_text(text)
    assert pod.open(resource_config=str(file)).instance_of(pod.node) is not None
    assert "resource_config_" in caplog.text


def test_what_hyperpod_cannot_is_rejected(pod: Pod) -> None:
    provider = pod.open()
    assert (provider.can.replace, provider.can.launch_first, provider.can.power_off_confirmed) == (True, False, False)
    assert provider.find_launched("t") is None
    calls: list[Callable[[], object]] = [
        lambda: provider.launch(pod.node, incident="inc", token="t"),
        lambda: provider.assign(pod.old, pod.node),
        lambda: provider.terminate(pod.old),
    ]
    for call in calls:
        with pytest.raises(Rejected, match="in place"):
            call()


@pytest.mark.parametrize("mode", [OBSERVE, LEAD])
def test_a_failure_is_what_hyperpod_says_by_itself(make: Callable[..., Pod], mode: str) -> None:
    """Reported in both modes, and no more once it is over; nothing is reported of a machine that is being worked on."""
    pod = make(continuous=mode == LEAD)
    provider = pod.open(mode=mode)
    other = list(pod.ids.values())[2]
    pod.control.set_status(other, "SystemUpdating", "an update")
    assert provider.notices() == ()
    pod.control.set_status(pod.old, "Failure", "EFA health check\nfailed")
    (notice,) = provider.notices()
    assert (notice.instance_id, notice.node, notice.kind) == (pod.old, pod.node, NoticeKind.IMPAIRED)
    assert (notice.code, notice.text, notice.at) == ("Failure", "EFA health check failed", None)
    pod.control.set_status(pod.old, "Running", "EFA health check failed")  # the message stays: evidence, no news
    assert provider.notices() == ()


def test_a_going_machine_that_the_file_has_forgotten_is_under_way(pod: Pod) -> None:
    """With names from the file, a repeated order may meet the old machine without its name."""
    file = pod.folder / "resource_config.json"
    file.write_text(json.dumps(pod.control.resource_config()))
    pod.control.phases(shutting_down_s=60.0)
    named = {"node_names": "instance", "resource_config": str(file)}
    first = pod.open(**named).replace("gpu-1", pod.old, incident="inc", token="inc-1")
    file.write_text(json.dumps(pod.control.resource_config()))
    assert pod.old not in file.read_text()
    again = pod.open(**named).replace("gpu-1", pod.old, incident="inc", token="inc-1")
    assert (again, again.node, again.state) == (first, "gpu-1", "shutting-down")
    assert pod.effects() == [pod.old]
