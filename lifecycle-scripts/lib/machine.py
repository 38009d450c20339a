"""Identify this machine. Prints ``key=value`` lines: kind, role, node, instance, group, cluster, region, controllers, source.

Standard library only and no newer than Python 3.6: it runs with whatever interpreter a fresh image has. Everything is
looked up again each time, so nothing is lost with a root volume. A value that cannot be had is left empty; never an error.
"""

import ipaddress
import json
import os
import re
import socket
import sys
import urllib.error
import urllib.request

_PLAIN = re.compile(r"[^A-Za-z0-9._:/,\[\]-]")
_INSTANCE = re.compile(r"^i-[0-9a-f]{8,17}$")
_ROLES = {"compute": "compute", "controller": "controller", "head": "controller", "headnode": "controller"}
_ROLES.update({"computefleet": "compute", "worker": "compute", "login": "login", "loginnode": "login"})
_CONTROLLER_PORT = 8460
_IMDS_TIMEOUT_S = 2.0


class Machine:
    """Reads under ``root``; ``imds`` is the metadata service's address, empty where there is none to ask."""

    def __init__(self, root, imds, bundle, environ):
        self.root, self.imds, self.bundle, self.environ = root, imds, bundle, environ

    def text(self, path):
        """A small file's text without blanks at its ends; empty when it cannot be read."""
        try:
            with open(self.root + path, encoding="utf-8", errors="replace") as file:
                return file.read(4 * 1024 * 1024).strip()
        except OSError:
            return ""

    def json(self, path, root=None):
        """A JSON object; empty when there is none or it is broken."""
        try:
            with open((self.root if root is None else root) + path, encoding="utf-8") as file:
                found = json.load(file)
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def keys(self, path):
        """A shell-like KEY=value file."""
        lines = (line.partition("=") for line in self.text(path).splitlines() if not line.startswith("#"))
        return {key.strip(): value.strip().strip("'\"") for key, sign, value in lines if sign}

    def has_gpu(self):
        """Whether an NVIDIA or Neuron device is there."""
        devices = ("/dev/nvidiactl", "/proc/driver/nvidia", "/dev/neuron0")
        return any(os.path.exists(self.root + each) for each in devices)

    def metadata(self, path):
        """One IMDSv2 path; empty when it does not answer."""
        if not self.imds:
            return ""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            ask = urllib.request.Request(self.imds + "/latest/api/token", method="PUT")  # noqa: S310
            ask.add_header("X-aws-ec2-metadata-token-ttl-seconds", "60")
            token = opener.open(ask, timeout=_IMDS_TIMEOUT_S).read().decode()
            get = urllib.request.Request(self.imds + "/latest/meta-data/" + path)  # noqa: S310
            get.add_header("X-aws-ec2-metadata-token", token)
            return opener.open(get, timeout=_IMDS_TIMEOUT_S).read().decode().strip()
        except urllib.error.HTTPError:
            return ""  # it is there, and has nothing of this name
        except (OSError, ValueError):
            self.imds = ""  # one wait is enough
            return ""


def is_ours(address):
    """Whether this machine has the IPv4 address: only an own one can be bound."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.bind((str(ipaddress.IPv4Address(address)), 0))
    except (OSError, ValueError):
        return False
    return True


def rows(value):
    """The objects of what should be a list of objects."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def find_own(resource):
    """(group, instance) of this machine in resource_config.json; two empty ones when none or several fit."""
    pairs = [(g, i) for g in rows(resource.get("InstanceGroups")) for i in rows(g.get("Instances"))]
    for key in ("CustomerIpAddress", "AgentIpAddress"):
        fits = [pair for pair in pairs if is_ours(pair[1].get(key) or "")]
        if len(fits) == 1:
            return fits[0]
    return {}, {}


def hyperpod_role(group, instance, resource, provisioning):
    """(role, source). The newer SlurmConfig goes before the bundle's provisioning_parameters.json."""
    kind = (group.get("SlurmConfig") or {}).get("NodeType") if isinstance(group.get("SlurmConfig"), dict) else None
    if kind and str(kind).lower() in _ROLES:
        return _ROLES[str(kind).lower()], "SlurmConfig"
    name = group.get("Name")
    if name and name == provisioning.get("controller_group"):
        return "controller", "provisioning_parameters.json"
    if name and name == provisioning.get("login_group"):
        return "login", "provisioning_parameters.json"
    workers = {each.get("instance_group_name") for each in rows(provisioning.get("worker_groups"))}
    if name and name in workers:
        return "compute", "provisioning_parameters.json"
    if instance.get("CustomerIpAddress") in controller_addresses(resource):
        return "controller", "PrimaryControllerIp"
    return "", ""


def controller_addresses(resource):
    """Addresses of the head nodes, the primary one first."""
    slurm = resource.get("SlurmConfig")
    if not isinstance(slurm, dict):
        return []
    others = slurm.get("SecondaryControllerIps")
    return [a for a in [slurm.get("PrimaryControllerIp"), *(others if isinstance(others, list) else [])] if a]


def hyperpod_node(instance, host):
    """Slurm's name: ip-10-1-2-3, or the instance's name where Slurm is configured to use those."""
    name, address = instance.get("InstanceName") or "", instance.get("CustomerIpAddress") or ""
    if name and host == name:
        return name
    return "ip-" + address.replace(".", "-") if address else ""


def hyperpod(machine, host):
    path = machine.environ.get("SAGEMAKER_RESOURCE_CONFIG_PATH") or "/opt/ml/config/resource_config.json"
    resource = machine.json(path)
    if not resource and not os.path.isdir(machine.root + "/opt/sagemaker_cluster"):
        return {}
    group, instance = find_own(resource)
    provisioning = machine.json("/provisioning_parameters.json", root=machine.bundle) or machine.json(
        "/../provisioning_parameters.json", root=machine.bundle
    )
    role, source = hyperpod_role(group, instance, resource, provisioning)
    cluster = resource.get("ClusterConfig") if isinstance(resource.get("ClusterConfig"), dict) else {}
    arn = str(cluster.get("ClusterArn") or "").split(":")
    return {
        "kind": "hyperpod",
        "role": role,
        "source": source,
        "node": hyperpod_node(instance, host),
        "instance": instance.get("InstanceId") or "",
        "group": group.get("Name") or "",
        "cluster": cluster.get("ClusterName") or "",
        "region": arn[3] if len(arn) > 3 else "",
        "controllers": ",".join(f"https://{address}:{_CONTROLLER_PORT}" for address in controller_addresses(resource)),
    }


def parallelcluster(machine):
    config = machine.keys("/etc/parallelcluster/cfnconfig")
    if not config:
        return {}
    role = _ROLES.get(config.get("cfn_node_type", "").lower(), "")
    return {
        "kind": "parallelcluster",
        "role": role,
        "source": "cfnconfig" if role else "",
        "node": machine.text("/etc/parallelcluster/slurm_plugin/slurm_nodename") if role == "compute" else "",
        "cluster": config.get("stack_name", ""),
        "region": config.get("cfn_region", ""),
        "controllers": "",
    }


def slurmd_name(machine):
    """The name in slurmd's own options (-N NAME), on Debian's and on Red Hat's path."""
    for path in ("/etc/default/slurmd", "/etc/sysconfig/slurmd"):
        found = re.search(r"(?:^|\s)-N\s*(\S+)", machine.keys(path).get("SLURMD_OPTIONS", ""))
        if found:
            return found.group(1)
    return ""


def tagged_name(machine, instance):
    """The tag that Holdfast gives a machine on EC2, where the launch template lets the metadata service show tags."""
    return machine.metadata("tags/instance/holdfast:node") if instance else ""


def instance_id(machine):
    """From the firmware (Nitro machines), the metadata service, or cloud-init's memory of this boot; in this order."""
    for read in (
        lambda: machine.text("/sys/devices/virtual/dmi/id/board_asset_tag"),
        lambda: machine.metadata("instance-id"),
        lambda: machine.text("/run/cloud-init/.instance-id"),
    ):
        found = read()
        if _INSTANCE.match(found):
            return found
    return ""


def describe(machine):
    """All lines, in a fixed order."""
    host = (machine.environ.get("HOLDFAST_HOSTNAME") or socket.gethostname()).split(".")[0]
    told = hyperpod(machine, host) or parallelcluster(machine)
    instance = told.get("instance") or instance_id(machine)
    role, source = told.get("role", ""), told.get("source", "")
    if not role:
        role, source = ("compute", "it has an accelerator") if machine.has_gpu() else ("unknown", "nothing says so")
    named = machine.environ.get("HOLDFAST_NODE") or told.get("node") or slurmd_name(machine)
    node = named or tagged_name(machine, instance) or host
    return [
        ("kind", told.get("kind") or ("ec2" if instance else "plain")),
        ("role", role),
        ("source", source),
        ("node", node),
        ("instance", instance),
        ("group", told.get("group", "")),
        ("cluster", told.get("cluster", "")),
        ("region", told.get("region") or (machine.metadata("placement/region") if instance else "")),
        ("controllers", told.get("controllers", "")),
    ]


def main():
    environ = os.environ
    imds = environ.get("HOLDFAST_IMDS_URL", "http://169.254.169.254")
    machine = Machine(environ.get("HOLDFAST_ROOT", ""), imds, sys.argv[1] if len(sys.argv) > 1 else "", environ)
    for key, value in describe(machine):
        sys.stdout.write("{}={}\n".format(key, (str(value) if key == "source" else _PLAIN.sub("", str(value)))))


if __name__ == "__main__":
    main()
