"""Identification of the node: role, name and machine id from the files and services that each kind of cluster has."""

from __future__ import annotations

import ast
import copy
import importlib.util
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from lifecycle.lifecycle_support import OURS, PROVISIONING, RESOURCE, SCRIPTS, amazon_root, hyperpod_root, write

SOURCE = SCRIPTS / "lib/machine.py"


def load() -> Any:
    spec = importlib.util.spec_from_file_location("lifecycle_machine", SOURCE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


machine = load()


def facts(root: Path, bundle: Path | str = "", imds: str = "", **environ: str) -> dict[str, str]:
    return dict(
        machine.describe(machine.Machine(str(root), imds, str(bundle), {"HOLDFAST_HOSTNAME": "host-7.x", **environ}))
    )


def with_resource(root: Path, resource: object) -> Path:
    write(root / "opt/ml/config/resource_config.json", json.dumps(resource))
    return root


@pytest.mark.parametrize("name", ["machine.py", "enrol.py"])
def test_it_needs_no_newer_python_than_an_image_has(name: str) -> None:
    ast.parse((SOURCE.parent / name).read_text(), feature_version=(3, 6))


def test_hyperpod_worker(tmp_path: Path) -> None:
    bundle = tmp_path / "bundle"
    write(bundle / "provisioning_parameters.json", json.dumps(PROVISIONING))
    assert facts(hyperpod_root(tmp_path), bundle) == {
        "kind": "hyperpod",
        "role": "compute",
        "source": "provisioning_parameters.json",
        "node": "ip-127-0-77-2",
        "instance": "i-00000000000000002",
        "group": "gpu",
        "cluster": "c1",
        "region": "us-west-2",
        "controllers": "https://10.1.0.5:8460,https://10.1.0.6:8460",
    }


def test_the_file_of_the_lifecycle_scripts_above_the_bundle_is_found_too(tmp_path: Path) -> None:
    bundle = tmp_path / "scripts/holdfast"
    bundle.mkdir(parents=True)
    write(tmp_path / "scripts/provisioning_parameters.json", json.dumps(PROVISIONING))
    assert facts(hyperpod_root(tmp_path), bundle)["role"] == "compute"


@pytest.mark.parametrize(("group", "role"), [("head", "controller"), ("login", "login"), ("gpu", "compute")])
def test_role_by_group(tmp_path: Path, group: str, role: str) -> None:
    resource = copy.deepcopy(RESOURCE)
    resource["InstanceGroups"] = [{"Name": group, "Instances": [{"InstanceId": "i-1", "CustomerIpAddress": OURS}]}]
    write(tmp_path / "b/provisioning_parameters.json", json.dumps(PROVISIONING))
    assert facts(with_resource(tmp_path, resource), tmp_path / "b")["role"] == role


@pytest.mark.parametrize(("kind", "role"), [("Controller", "controller"), ("Login", "login"), ("Compute", "compute")])
def test_the_newer_slurm_config_goes_first(tmp_path: Path, kind: str, role: str) -> None:
    instance = {"InstanceId": "i-1", "CustomerIpAddress": OURS}
    group = {"Name": "gpu", "SlurmConfig": {"NodeType": kind, "PartitionNames": ["dev"]}, "Instances": [instance]}
    write(tmp_path / "b/provisioning_parameters.json", json.dumps(PROVISIONING))
    told = facts(with_resource(tmp_path, RESOURCE | {"InstanceGroups": [group]}), tmp_path / "b")
    assert (told["role"], told["source"]) == (role, "SlurmConfig")


def test_the_head_is_known_by_its_address_without_any_parameters(tmp_path: Path) -> None:
    resource = copy.deepcopy(RESOURCE) | {"SlurmConfig": {"PrimaryControllerIp": OURS}}
    assert facts(with_resource(tmp_path, resource))["role"] == "controller"


def test_two_groups_that_fit_are_no_answer(tmp_path: Path) -> None:
    twice = [{"Name": n, "Instances": [{"InstanceId": f"i-{n}", "CustomerIpAddress": OURS}]} for n in ("a", "b")]
    told = facts(with_resource(tmp_path, RESOURCE | {"InstanceGroups": twice}))
    assert (told["role"], told["instance"], told["node"]) == ("unknown", "", "host-7")


def test_slurm_may_use_instance_names(tmp_path: Path) -> None:
    assert facts(hyperpod_root(tmp_path), HOLDFAST_HOSTNAME="gpu-1")["node"] == "gpu-1"


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"InstanceGroups": 3}', '{"InstanceGroups": [{"Instances": [null]}]}']
)
def test_a_broken_file_is_no_error(tmp_path: Path, text: str) -> None:
    write(tmp_path / "opt/ml/config/resource_config.json", text)
    told = facts(tmp_path)
    assert (told["role"], told["node"]) == ("unknown", "host-7")


def test_what_has_a_gpu_is_a_worker_where_nothing_else_tells(tmp_path: Path) -> None:
    write(tmp_path / "dev/nvidiactl", "")
    assert facts(tmp_path)["role"] == "compute"


def test_parallelcluster_knows_its_name_before_slurmd_runs(tmp_path: Path) -> None:
    told = facts(amazon_root(tmp_path))
    assert (told["kind"], told["role"], told["node"]) == ("parallelcluster", "compute", "queue1-st-p5-1")
    assert (told["instance"], told["region"], told["cluster"]) == ("i-0123456789abcdef0", "eu-west-1", "pc")


@pytest.mark.parametrize("path", ["etc/default/slurmd", "etc/sysconfig/slurmd"])
def test_slurmd_may_have_been_given_a_name(tmp_path: Path, path: str) -> None:
    write(tmp_path / path, "SLURMD_OPTIONS='--conf-server 10.0.0.1 -N gpu-17'\n")
    assert facts(tmp_path)["node"] == "gpu-17"


class Metadata(BaseHTTPRequestHandler):
    """IMDSv2: a token first."""

    def do_PUT(self) -> None:
        self._answer(200 if self.headers["X-aws-ec2-metadata-token-ttl-seconds"] else 400, "TOKEN")

    tags: ClassVar[dict[str, str]] = {}
    """Paths of tags, where the instance lets the service show them."""

    def do_GET(self) -> None:
        known = {
            "/latest/meta-data/instance-id": "i-0aaaaaaaaaaaaaaaa",
            "/latest/meta-data/placement/region": "us-east-2",
        } | self.tags
        allowed = self.headers["X-aws-ec2-metadata-token"] == "TOKEN"
        self._answer(200 if allowed and self.path in known else 401, known.get(self.path, ""))

    def _answer(self, status: int, text: str) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def imds() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Metadata) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_plain_ec2_asks_the_metadata_service(tmp_path: Path, imds: str) -> None:
    told = facts(tmp_path, imds=imds)
    assert (told["kind"], told["instance"], told["region"]) == ("ec2", "i-0aaaaaaaaaaaaaaaa", "us-east-2")
    assert told["node"] == "host-7"


def test_a_replacement_takes_the_name_that_holdfast_has_given_it(
    tmp_path: Path, imds: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Metadata, "tags", {"/latest/meta-data/tags/instance/holdfast:node": "n3"})
    assert facts(tmp_path, imds=imds)["node"] == "n3"
    write(tmp_path / "etc/default/slurmd", "SLURMD_OPTIONS='-N n4'\n")
    assert facts(tmp_path, imds=imds)["node"] == "n4", "slurmd's own settings go first"


def test_no_metadata_service_is_a_plain_machine(tmp_path: Path) -> None:
    write(tmp_path / "sys/devices/virtual/dmi/id/board_asset_tag", "Not Specified")
    assert facts(tmp_path, imds="http://127.0.0.1:9")["kind"] == "plain"
