"""What EC2's instance metadata reports, judged; and the client, against the emulated service."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from holdfast.agent.sources.machine_id import machine_id
from holdfast.config.agent import AgentConfig
from holdfast.model.errors import ConfigError
from holdfast.practice.aws import imds_state
from holdfast.practice.aws.imds import TOKEN, TTL, Imds
from holdfast_checks.known import all_checks
from holdfast_checks.probes import imds
from holdfast_checks.probes.imds import ImdsDocument, look, on_ec2
from holdfast_checks.probes.imds_users import DEADLINE_S, MetadataReached, addresses, try_as_user
from holdfast_checks.registry import Context, NotApplicable, NotGathered, Sample, SampleChange
from holdfast_checks.result import Remedy, Result, Severity, Verdict
from holdfast_checks.runner import Samples, run
from holdfast_checks.settings import CheckSettings
from holdfast_checks.settings.cloud import CloudSettings

SPOT = "cloud.interruption"
AT = datetime(2026, 11, 20, 12, 2, tzinfo=UTC)


def judged(check: str, document: object) -> Result:
    text = document if isinstance(document, str) or document is None else json.dumps(document)
    (result,) = all_checks()[check].judge(SampleChange(None, Sample(ImdsDocument(text), 0.0)))
    return result


def event(code: str, at: str, **more: str) -> dict[str, str]:
    """In the form of AWS's documentation."""
    plain = {
        "NotBefore": at,
        "Code": code,
        "Description": "scheduled",
        "EventId": "instance-event-0d5",
        "State": "active",
    }
    return {**plain, "NotAfter": at, **more}


@pytest.mark.parametrize("action", ["terminate", "stop", "hibernate"])
def test_an_interruption_is_fatal_and_says_when(action: str) -> None:
    found = judged(SPOT, {"action": action, "time": "2026-11-20T12:02:00Z"})
    assert (found.severity, found.remedy, found.code) == (Severity.FATAL, Remedy.REPLACE, action)
    assert found.evidence == {"notice": "interruption", "goes_at": AT.isoformat()}


def test_an_interruption_without_a_time_is_one_all_the_same() -> None:
    found = judged(SPOT, {"action": "hibernate"})
    assert (found.severity, dict(found.evidence)) == (Severity.FATAL, {"notice": "interruption"})


@pytest.mark.parametrize(
    ("check", "document", "verdict"),
    [
        (SPOT, None, Verdict.OK),
        (SPOT, {"action": "dance", "time": "2026-11-20T12:02:00Z"}, Verdict.UNKNOWN),
        (SPOT, "<html>", Verdict.UNKNOWN),
        (SPOT, [], Verdict.UNKNOWN),
        (SPOT, "[" * 100_000, Verdict.UNKNOWN),
        ("cloud.rebalance", None, Verdict.OK),
        ("cloud.rebalance", {"noticeTime": "2026-11-20T12:02:00Z"}, Verdict.DEGRADED),
        ("cloud.maintenance", None, Verdict.OK),
        ("cloud.maintenance", [], Verdict.OK),
        ("cloud.maintenance", {}, Verdict.UNKNOWN),
        ("cloud.maintenance", [7, {"Code": "instance-stop"}], Verdict.OK),
        ("cloud.maintenance", [event("a-new-word", "21 Jan 2027 09:00:43 GMT")], Verdict.OK),
        ("cloud.maintenance", [event("instance-stop", "21 Jan 2027 09:00:43 GMT", State="completed")], Verdict.OK),
        (
            "cloud.maintenance",
            [event("instance-stop", "21 Jan 2027 09:00:43 GMT", Description="[Canceled] scheduled")],
            Verdict.OK,
        ),
    ],
)
def test_what_counts_and_what_does_not(check: str, document: object, verdict: Verdict) -> None:
    assert judged(check, document).verdict is verdict


def test_the_first_event_to_come_counts() -> None:
    later, sooner = (
        event("system-reboot", "22 Jan 2027 09:00:43 GMT"),
        event("instance-retirement", "1 Jan 2027 09:00:43 GMT", EventId="instance-event-1"),
    )
    found = judged("cloud.maintenance", [later, sooner])
    assert (found.severity, found.code) == (Severity.WARNING, "instance-retirement")
    assert found.evidence == {
        "notice": "stop",
        "goes_at": "2027-01-01T09:00:43+00:00",
        "event_id": "instance-event-1",
    }


# The client


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    for name in ("i-0a", "i-0b"):
        (tmp_path / "machines" / name).mkdir(parents=True)
        (tmp_path / "machines" / name / "instance_id").write_text(f"{name}\n")
    (tmp_path / "run").mkdir()
    return tmp_path


@pytest.fixture
def service(cluster: Path) -> Iterator[Imds]:
    server = Imds(cluster)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


class Metadata(BaseHTTPRequestHandler):
    """The service as a user meets it: tokens, and perhaps documents without one."""

    answers: ClassVar[dict[str, int]] = {}

    def do_PUT(self) -> None:
        self.send_response(self.answers[self.command])
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_GET(self) -> None:
        self.do_PUT()

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can try it as another user")
@pytest.mark.parametrize(
    ("put", "get", "code"),
    [(200, 401, "open"), (403, 200, "open"), (200, 200, "open"), (403, 403, ""), (404, 401, "")],
)
def test_a_user_who_reaches_the_metadata_is_told_to_an_operator(put: int, get: int, code: str) -> None:
    answers = type("Answers", (Metadata,), {"answers": {"PUT": put, "GET": get}})
    with ThreadingHTTPServer(("127.0.0.1", 0), answers) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            check = all_checks()["cloud.metadata"]
            (found,) = run(check, context(f"http://127.0.0.1:{server.server_port}"))
        finally:
            server.shutdown()
            thread.join()
    assert found.code == code
    if code:
        assert (found.severity, found.remedy) == (Severity.WARNING, Remedy.HUMAN)
        assert "holdfast-metadata.service" in found.summary
        assert ("IMDSv1" in found.summary) is (get == 200)
    else:
        assert found.verdict is Verdict.OK


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can try it as another user")
def test_a_service_that_is_not_there_or_hangs_is_closed() -> None:
    """Silence within a second for each try; it delays nothing."""
    with socket.create_server(("127.0.0.1", 0)) as hangs:
        port = hangs.getsockname()[1]
        began_s = time.monotonic()
        assert try_as_user([f"http://127.0.0.1:{port}", "http://127.0.0.1:1"]) == MetadataReached()
        assert time.monotonic() - began_s < DEADLINE_S


def test_it_is_tried_as_a_user_without_rights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also by the other address of EC2, where the firmware names EC2; never elsewhere, nor where jobs may use the role."""
    assert addresses(imds.URL) == ("http://169.254.169.254", "http://[fd00:ec2::254]")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    check = all_checks()["cloud.metadata"]
    with pytest.raises(NotGathered, match="only root"):
        check.gather(context("http://127.0.0.1:1"))
    with pytest.raises(NotApplicable, match="jobs_use_role"):
        check.gather(Context(CheckSettings(cloud=CloudSettings(imds="http://127.0.0.1:1", jobs_use_role=True))))
    with pytest.raises(NotApplicable, match="no instance metadata"):
        check.gather(context(""))
    assert check.observe
    assert check.severity is Severity.WARNING, "no list of a site's makes it act upon a node"


def context(url: str) -> Context:
    return Context(CheckSettings(cloud=CloudSettings(imds=url)))


def of(service: Imds, name: str = "i-0a") -> Context:
    return context(f"{service.url}/machines/{name}")


def test_each_machine_hears_of_its_own_interruption_alone(service: Imds, cluster: Path) -> None:
    check, samples = all_checks()[SPOT], Samples()
    assert run(check, of(service), samples)[0].verdict is Verdict.OK
    imds_state.change(cluster / "machines" / "i-0a", spot=imds_state.spot("terminate", AT))
    (found,) = run(check, of(service), samples)
    assert (found.code, found.evidence["goes_at"]) == ("terminate", AT.isoformat())
    assert run(check, of(service, "i-0b"))[0].verdict is Verdict.OK
    imds_state.change(cluster / "machines" / "i-0a", spot=None)
    assert run(check, of(service), samples)[0].verdict is Verdict.OK
    assert len(service.tokens) == 2, "one token a machine, kept"


def test_maintenance_as_the_emulator_writes_it(service: Imds, cluster: Path) -> None:
    planned = imds_state.event("system-reboot", "scheduled reboot", AT, AT + timedelta(hours=1), "instance-event-7")
    imds_state.change(cluster / "machines" / "i-0a", scheduled=[planned])
    (found,) = run(all_checks()["cloud.maintenance"], of(service))
    assert (found.code, found.evidence["goes_at"], found.evidence["notice"]) == (
        "system-reboot",
        AT.isoformat(),
        "reboot",
    )


def test_forgotten_tokens_are_asked_for_anew(service: Imds) -> None:
    check, samples = all_checks()[SPOT], Samples()
    run(check, of(service), samples)
    service.tokens.clear()
    assert run(check, of(service), samples)[0].verdict is Verdict.OK


@pytest.mark.slow
def test_a_service_that_does_not_answer_is_asked_ever_more_rarely(
    service: Imds, cluster: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(imds, "DEADLINE_S", 0.1)
    check, samples = all_checks()[SPOT], Samples()
    imds_state.change(cluster / "machines" / "i-0a", away=True)
    for _ in range(2):
        assert run(check, of(service), samples)[0].verdict is Verdict.SKIPPED
    began = time.monotonic()
    for _ in range(20):
        assert run(check, of(service), samples)[0].verdict is Verdict.SKIPPED
    assert time.monotonic() - began < 10 * imds.DEADLINE_S, "half of what asking each time would take"
    kept = samples.before(SPOT)
    assert kept is not None
    assert 5 < kept.facts.quiet_until_s - time.monotonic() <= imds.QUIET_MAX_S
    assert look(replace(of(service), before=Sample(replace(kept.facts, misses=50, quiet_until_s=0.0), 0.0)), "x").misses


def test_metadata_that_is_switched_off_is_no_fault(service: Imds) -> None:
    (found,) = run(all_checks()[SPOT], context(f"{service.url}/nobody"))
    assert found.verdict is Verdict.SKIPPED


@pytest.mark.parametrize("url", ["", "ftp://127.0.0.1", "file:///etc/passwd", "127.0.0.1"])
def test_what_is_no_address_is_not_asked(url: str) -> None:
    assert run(all_checks()[SPOT], context(url))[0].verdict is Verdict.SKIPPED


def test_only_a_machine_of_ec2_is_asked(tmp_path: Path) -> None:
    settings = CheckSettings(sysfs=tmp_path)
    assert not on_ec2(settings)
    with pytest.raises(NotApplicable, match="not a machine of EC2"):
        look(Context(settings), "instance-id")
    folder = tmp_path / "class" / "dmi" / "id"
    folder.mkdir(parents=True)
    (folder / "sys_vendor").write_text("Supermicro\n")
    assert not on_ec2(settings)
    (folder / "sys_vendor").write_text("Amazon EC2\n")
    assert on_ec2(settings)
    (folder / "sys_vendor").write_text("Xen\n")
    (folder / "bios_version").write_text("4.11.amazon\n")
    assert on_ec2(settings)


def test_no_proxy_is_used(service: Imds, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert run(all_checks()[SPOT], of(service))[0].verdict is Verdict.OK


def test_the_agents_machine_id_can_be_asked_for(service: Imds, cluster: Path) -> None:
    config = AgentConfig(instance_id="imds", cloud=CloudSettings(imds=f"{service.url}/machines/i-0b"))
    assert machine_id(config) == "i-0b"
    assert machine_id(AgentConfig(instance_id="i-0c")) == "i-0c"
    assert machine_id(AgentConfig()) == ""
    away = replace(config, cloud=CloudSettings(imds="http://127.0.0.1:9"))
    with pytest.raises(ConfigError, match=r"instance id: http://127\.0\.0\.1:9 does not answer"):
        machine_id(away, patience_s=0.0)


# The emulator's own manners


def _raw(service: Imds, method: str, path: str, **headers: str) -> tuple[int, str]:
    return imds._request(service.url, method, path, {k.replace("_", "-"): v for k, v in headers.items()})


def test_the_emulator_is_as_strict_as_the_real_service(service: Imds) -> None:
    token_path, id_path = "/machines/i-0a/latest/api/token", "/machines/i-0a/latest/meta-data/instance-id"
    put = {TTL.replace("-", "_"): "60"}
    assert _raw(service, "GET", id_path)[0] == 401
    assert _raw(service, "GET", id_path, **{TOKEN.replace("-", "_"): "made up"})[0] == 401
    assert _raw(service, "PUT", token_path)[0] == 400
    assert _raw(service, "PUT", token_path, **{TTL.replace("-", "_"): "21601"})[0] == 400
    assert _raw(service, "PUT", token_path, **put, X_Forwarded_For="10.0.0.1")[0] == 403
    status, token = _raw(service, "PUT", token_path, **put)
    with_token = {TOKEN.replace("-", "_"): token}
    assert (status, _raw(service, "GET", id_path, **with_token)) == (200, (200, "i-0a"))
    assert _raw(service, "GET", "/machines/i-0a/latest/meta-data/spot/instance-action", **with_token)[0] == 404
    assert _raw(service, "GET", "/machines/i-0b/latest/meta-data/instance-id", **with_token)[0] == 401
    assert _raw(service, "GET", "/machines/../etc/latest/meta-data/instance-id", **with_token)[0] == 401
