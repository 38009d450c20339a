"""A node's token for the identity of its machine: once, for the right role, and only as the record or an operator allows it.

STS is moto's, over HTTP: it knows whose access key it is, as STS does, and verifies no signature, no date and no session token. That the
signature is SigV4 is shown against botocore's own; that STS refuses a wrong one is STS's to say (`test_what_sts_refuses_gets_no_token`)."""

from __future__ import annotations

import importlib.util
import json
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import boto3
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from moto.server import ThreadedMotoServer

from api.conftest import T0
from holdfast.api.agents.enrol import LIMIT_BYTES, LOGGED
from holdfast.api.app import create_app
from holdfast.api.callers.auth import hash_token
from holdfast.api.transport.server import build_server
from holdfast.config.sections import EnrolmentSection
from holdfast.head.sts import ANSWER_BYTES, Sts
from holdfast.model.access.enrolment import EnrolmentProof, StsIdentity
from holdfast.model.book import Book, NodeRecord, World
from holdfast.model.errors import Rejected, Unavailable
from holdfast.model.machine import CAN_NOTHING, Instance, ProviderView
from holdfast.model.policies.policy import Policy
from holdfast.model.slurm.cluster import ClusterView
from lifecycle.lifecycle_support import SCRIPTS, hyperpod_root, own_python, run_script, write

HEAD, ACCOUNT, REGION = "https://head:8460", "123456789012", "us-west-2"
ONE, TWO, NEW = "i-0000000000000001", "i-0000000000000002", "i-0000000000000009"
Keys = tuple[str, str, str]


def load() -> Any:
    spec = importlib.util.spec_from_file_location("lifecycle_enrol", SCRIPTS / "lib/enrol.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


enrol = load()


@pytest.fixture(scope="module")
def sts_url() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@cache
def keys(sts_url: str, session: str, role: str = "gpu-node") -> Keys:
    """Credentials as an instance gets them from its metadata."""
    client = boto3.client(
        "sts", endpoint_url=sts_url, region_name=REGION, aws_access_key_id="x", aws_secret_access_key="x"
    )
    made = client.assume_role(RoleArn=f"arn:aws:iam::{ACCOUNT}:role/{role}", RoleSessionName=session)["Credentials"]
    return made["AccessKeyId"], made["SecretAccessKey"], made["SessionToken"]


class Counted(Sts):
    """Counts the requests it gets."""

    asked = 0

    def identity(self, proof: EnrolmentProof) -> StsIdentity:
        self.asked += 1
        return super().identity(proof)


class Site:
    """The served API with enrolment on, and machines that ask."""

    def __init__(self, served: Any, sts_url: str) -> None:
        self.served, self.url = served, sts_url
        self.sts = Counted(sts_url)
        served.deps.enrolment = EnrolmentSection(True, (HEAD,), (f"{ACCOUNT}/gpu-node",), sts_url)
        served.deps.sts = self.sts
        served.world = World(T0, Policy(), self.book(), ClusterView("c", T0, {}, {}, {}))

    @staticmethod
    def book() -> Book:
        trial = ProviderView("ec2", CAN_NOTHING, T0, on_trial=(Instance(NEW, "n1", "running"),))
        return Book(nodes={"n1": NodeRecord("n1", ONE), "n2": NodeRecord("n2", TWO)}, provider=trial)

    def body(self, node: str, machine: str, role: str = "gpu-node", controller: str = HEAD) -> dict[str, Any]:
        now = (T0 + timedelta(seconds=self.served.clock.passed_s)).timetuple()
        host = urlsplit(self.url).netloc
        signed: dict[str, Any] = enrol.sign(keys(self.url, machine, role), REGION, host, controller, node, now)
        return signed

    def ask(self, node: str, machine: str, **how: str) -> Any:
        return self.send(self.body(node, machine, **how))

    def send(self, body: Mapping[str, Any]) -> Any:
        return self.served.call("POST", "/v1/enrol", None, json=body)


@pytest.fixture
def site(served: Any, sts_url: str) -> Iterator[Site]:
    yield Site(served, sts_url)
    served.deps.enrolment, served.deps.sts = EnrolmentSection(), None


def refused(answer: Any) -> str:
    assert answer.status_code == 403, answer.text
    message: str = answer.json()["error"]["message"]
    return message


def reports(served: Any, token: str, node: str) -> int:
    beat = {"version": 1, "node": node, "instance_id": "i", "boot_id": "b", "interval_s": 10.0, "all_ok": True}
    headers = {"Authorization": f"Bearer {token}"}
    status: int = served.call("POST", "/v1/heartbeats", None, json=beat, headers=headers).status_code
    return status


def test_the_machine_of_a_node_gets_its_token_once(site: Site) -> None:
    given = site.ask("n1", ONE).json()
    assert given["node"] == "n1"
    assert (reports(site.served, given["token"], "n1"), reports(site.served, given["token"], "n2")) == (200, 403)
    assert f"{ONE} has had one" in refused(site.ask("n1", ONE))
    assert site.ask("n1", NEW).status_code == 200, "launched for the node"
    assert [row.subject for row in site.served.store.tokens()].count("n1") == 3, "with the one that was there"


def test_an_operators_leave_is_for_one_machine_and_a_time(site: Site) -> None:
    store = site.served.store
    assert site.ask("n1", ONE).status_code == 200
    store.allow_enrolment("n1", T0 + timedelta(minutes=60))
    assert site.ask("n1", ONE).status_code == 200
    assert "has had one" in refused(site.ask("n1", ONE))
    assert "awaited" in refused(site.ask("n7", "i-0000000000000007"))
    store.allow_enrolment("n7", T0 + timedelta(minutes=60))
    assert f"{TWO} is the machine of n2" in refused(site.ask("n7", TWO)), "not another node's, whatever was allowed"
    assert site.ask("n7", "i-0000000000000007").status_code == 200
    store.allow_enrolment("n8", T0 + timedelta(minutes=60))
    site.served.clock.passed_s = 3601.0
    assert "awaited" in refused(site.ask("n8", "i-0000000000000008"))


def test_leave_that_was_not_needed_is_left(site: Site) -> None:
    site.served.store.allow_enrolment("n1", T0 + timedelta(minutes=60))
    assert [site.ask("n1", machine).status_code for machine in (ONE, ONE, ONE)] == [200, 200, 403]


@pytest.mark.parametrize(
    ("node", "machine", "how", "why"),
    [
        ("n1", TWO, {}, f"{TWO} is the machine of n2"),
        ("n1", "i-0000000000000005", {}, "not known as its machine"),
        ("n1", ONE, {"role": "other"}, f"{ACCOUNT}/other is none of enrolment.roles"),
        ("n1", "somebody", {}, "no instance of EC2"),
        ("n1", "i-short", {}, "no instance of EC2"),
    ],
)
def test_who_gets_none(site: Site, node: str, machine: str, how: dict[str, str], why: str) -> None:
    assert why in refused(site.ask(node, machine, **how))
    assert [row for row in site.served.store.tokens() if row.created_at > T0] == []
    assert site.ask("n1", ONE).status_code == 200, "nothing was used up"


def changed(body: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {**body, **fields}


@pytest.mark.parametrize(
    ("fields", "status", "why"),
    [
        ({"controller": "https://evil:8460"}, 403, "none of enrolment.names"),
        ({"date": "20260301T115459Z"}, 403, "counts for 300 s"),
        ({"date": "20260301T120501Z"}, 403, "counts for 300 s"),
        ({"date": "yesterday"}, 403, "date is none"),
        ({"authorization": "AWS4-HMAC-SHA256 nothing"}, 403, "no signature of AWS"),
        ({"node": "n9"}, 403, "awaited"),
        ({"node": "n1\r\nX: y"}, 422, "node"),
        ({"security_token": "a\r\nHost: evil"}, 422, "security_token"),
        ({"controller": f"{HEAD}\nX: y"}, 422, "controller"),
        ({"version": 99}, 422, "99"),
        ({"authorization": None}, 422, "authorization"),
    ],
)
def test_what_is_not_worth_a_question_leads_to_none(site: Site, fields: dict[str, Any], status: int, why: str) -> None:
    answer = site.send(changed(site.body("n1", ONE), **fields))
    assert answer.status_code == status, answer.text
    assert why in answer.json()["error"]["message"]
    assert site.sts.asked == 0


@pytest.mark.parametrize("without", ["x-holdfast-controller", "x-holdfast-node", "host"])
def test_a_signature_that_covers_less_is_none(site: Site, without: str) -> None:
    body = site.body("n1", ONE)
    body["authorization"] = body["authorization"].replace(f"{without};", "").replace(f";{without},", ",")
    assert "must cover" in refused(site.send(body))
    assert site.sts.asked == 0


@pytest.mark.slow
def test_no_more_questions_than_a_few_a_second(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    body = site.body("n1", "somebody")
    monkeypatch.setattr(Counted, "identity", lambda self, proof: (_ for _ in ()).throw(Rejected("no")))
    statuses = [site.send(body).status_code for _ in range(200)]
    assert set(statuses) == {403, 429}
    assert statuses.count(403) <= 61


@pytest.mark.slow
def test_strangers_do_not_fill_the_log(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(200):
        site.send(changed(site.body("n1", ONE), controller="https://elsewhere:8460"))
    lines = [record for record in caplog.records if "event=enrolment_refused" in record.getMessage()]
    assert 0 < len(lines) <= LOGGED + 2


def test_a_body_without_end_is_bounded(site: Site) -> None:
    answer = site.served.call("POST", "/v1/enrol", None, content=b" " * (LIMIT_BYTES + 1))
    assert answer.status_code == 413


def test_off_it_is_not_there_and_reads_nothing(served: Any) -> None:
    assert served.call("POST", "/v1/enrol", None, json={}).status_code == 404


def test_a_standby_gives_none(site: Site) -> None:
    site.served.deps.leader = lambda: False
    assert site.ask("n1", ONE).status_code == 503
    site.served.deps.leader = lambda: True
    site.served.world = None
    assert site.ask("n1", ONE).status_code == 503
    assert site.sts.asked == 0


def test_the_signature_is_botocores(sts_url: str) -> None:
    signed = enrol.sign(
        ("AKIDEXAMPLE0123456", "secret", "tok/en="), REGION, "sts.us-west-2.amazonaws.com", HEAD, "n1", time.gmtime()
    )
    headers = {
        "Content-Type": enrol.CONTENT_TYPE,
        "X-Holdfast-Controller": HEAD,
        "X-Holdfast-Node": "n1",
        "X-Amz-Date": signed["date"],
    }
    request = AWSRequest("POST", "https://sts.us-west-2.amazonaws.com/", headers=headers, data=enrol.BODY)
    request.context["timestamp"] = signed["date"]
    auth = SigV4Auth(Credentials("AKIDEXAMPLE0123456", "secret", "tok/en="), "sts", REGION)
    request.headers["X-Amz-Security-Token"] = "tok/en="
    signature = auth.signature(auth.string_to_sign(request, auth.canonical_request(request)), request)
    assert signed["authorization"].endswith(f"Signature={signature}")


class Twin(BaseHTTPRequestHandler):
    """A stub that answers as a test says."""

    status, answer, headers_out = 200, b"", dict[str, str]()
    asked: list[tuple[str, dict[str, str], bytes]] = []  # noqa: RUF012

    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        self.asked.append((self.path, {k.lower(): v for k, v in self.headers.items()}, self.rfile.read(length)))
        self.send_response(self.status)
        for name, value in self.headers_out.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(self.answer)))
        self.end_headers()
        self.wfile.write(self.answer)

    do_GET = do_POST  # noqa: N815

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def twin(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(Twin, "asked", [])
    server = ThreadingHTTPServer(("127.0.0.1", 0), Twin)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


PROOF = EnrolmentProof("n1", HEAD, "20260301T120000Z", "AWS4-HMAC-SHA256 x", "tok")
GOOD = f"<R><Arn>arn:aws:sts::{ACCOUNT}:assumed-role/gpu-node/{ONE}</Arn></R>"


def test_what_is_sent_to_sts_is_what_was_signed_and_nothing_else(twin: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Twin, "answer", GOOD.encode())
    assert Sts(twin).identity(PROOF) == StsIdentity(ACCOUNT, "gpu-node", ONE)
    ((path, headers, body),) = Twin.asked
    assert (path, body.decode()) == ("/", enrol.BODY)
    assert headers["x-holdfast-node"] == "n1"
    assert headers["x-holdfast-controller"] == HEAD
    assert headers["host"] == urlsplit(twin).netloc
    assert headers["content-type"] == enrol.CONTENT_TYPE


@pytest.mark.parametrize(
    ("status", "answer", "error"),
    [
        (403, "<ErrorResponse><Code>SignatureDoesNotMatch</Code></ErrorResponse>", Rejected),
        (302, "", Rejected),
        (500, "", Unavailable),
        (429, "", Unavailable),
        (200, "", Rejected),
        (200, "x" * (ANSWER_BYTES + 1), Unavailable),
        (200, f"<Arn>arn:aws:iam::{ACCOUNT}:user/me</Arn>", Rejected),
        (200, f"<Arn>arn:aws:sts::{ACCOUNT}:assumed-role/gpu-node/me</Arn>", Rejected),
        (200, GOOD + GOOD, Rejected),
        (200, f"<Arn>x</Arn>{GOOD}", Rejected),
    ],
)
def test_what_sts_refuses_gets_no_token(
    twin: str, monkeypatch: pytest.MonkeyPatch, status: int, answer: str, error: type[Exception]
) -> None:
    monkeypatch.setattr(Twin, "status", status)
    monkeypatch.setattr(Twin, "answer", answer.encode())
    monkeypatch.setattr(Twin, "headers_out", {"Location": f"{twin}/elsewhere"} if status == 302 else {})
    with pytest.raises(error):
        Sts(twin).identity(PROOF)
    assert len(Twin.asked) == 1, "no redirect is followed, and nothing is asked again"


def test_without_an_answer_a_node_asks_again(site: Site) -> None:
    body = site.body("n1", ONE)
    site.served.deps.sts = Sts("http://127.0.0.1:9")
    assert site.send(body).status_code == 503
    site.served.deps.sts = site.sts
    assert site.send(body).status_code == 200


class Metadata(BaseHTTPRequestHandler):
    """EC2's, with a role."""

    keys: Keys = ("", "", "")

    def do_PUT(self) -> None:
        self._say("session")

    def do_GET(self) -> None:
        path = self.path.removeprefix("/latest/meta-data/iam/security-credentials/")
        access, secret, token = self.keys
        found = json.dumps({"AccessKeyId": access, "SecretAccessKey": secret, "Token": token})
        self._say({"": "gpu-node", "gpu-node": found}.get(path, "us-west-2"))

    def _say(self, text: str) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.slow
def test_a_node_enrols_by_its_script_and_asks_no_second_time(
    site: Site, sts_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """enrol.sh, the metadata, a real server on loopback and STS; then the token works and is in no log."""
    node, machine = "ip-127-0-77-2", "i-00000000000000002"
    monkeypatch.setattr(Metadata, "keys", keys(sts_url, machine))
    metadata = ThreadingHTTPServer(("127.0.0.1", 0), Metadata)
    threading.Thread(target=metadata.serve_forever, args=(0.01,), daemon=True).start()
    book = Book(nodes={node: NodeRecord(node, machine)})
    world = World(T0, Policy(), book, ClusterView("c", T0, {}, {}, {}))
    monkeypatch.setattr(site.served.clock, "now", lambda: T0.now(T0.tzinfo))
    deps = replace(site.served.deps, world=lambda: world)
    server = build_server(create_app(deps), host="127.0.0.1", port=0)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    deps.enrolment = replace(deps.enrolment, names=(url,))
    root = own_python(hyperpod_root(tmp_path / "root"))
    told = {"TOKEN_FROM": f"enrol:{url}", "CONTROLLERS": url, "STS_HOST": urlsplit(sts_url).netloc}
    write(root / "etc/holdfast/enrol.conf", "".join(f"HOLDFAST_{key}={value}\n" for key, value in told.items()))
    settings = {"HOLDFAST_IMDS_URL": f"http://127.0.0.1:{metadata.server_port}"}
    try:
        first = run_script(SCRIPTS / "enrol.sh", root, "--now", settings=settings)
        assert first.returncode == 0, first.stderr
        token = (root / "etc/holdfast/agent.token").read_text().strip()
        again = run_script(SCRIPTS / "enrol.sh", root, "--now", settings=settings)
        assert again.returncode == 0, again.stderr
        assert site.sts.asked == 1
        assert (root / "etc/holdfast/agent.token").read_text().strip() == token
        found = site.served.store.find_token(hash_token(token))
        assert found is not None
        assert (found.role, found.subject) == ("agent", node)
        log = (root / "var/log/provision/provisioning.log").read_text()
        assert f"token of {node} from enrol" in log
        assert token not in log + first.stderr + first.stdout
        (root / "etc/holdfast/agent.token").unlink()
        lost = run_script(SCRIPTS / "enrol.sh", root, "--now", settings=settings)
        assert lost.returncode == 75
        assert "holdfast token allow" in lost.stderr
    finally:
        server.should_exit = True
        thread.join(10)
        metadata.shutdown()
        metadata.server_close()
