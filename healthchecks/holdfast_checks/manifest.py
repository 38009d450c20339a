"""Manifest of a good node: learned once, then every node is compared with it.

Only what is cheap to read and the same on all nodes of a kind goes in: hardware that can go missing (CPUs, memory), versions, the kernel
modules of GPUs and network, network file systems."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from holdfast_checks.probes.child import CHILDREN, Hung
from holdfast_checks.probes.mounts import covered, read_mounts
from holdfast_checks.probes.procfs import cpu_list, meminfo, modules, text
from holdfast_checks.registry import Context, NotGathered
from holdfast_checks.whole_file import write_whole

FILE = "manifest.json"
"""Name of a learned manifest in the agent's state folder."""

WATCHED_MODULES = frozenset(
    {
        "nvidia",
        "nvidia_uvm",
        "nvidia_peermem",
        "nvidia_fs",
        "gdrdrv",
        "efa",
        "ib_core",
        "ib_uverbs",
        "mlx5_core",
        "mlx5_ib",
        "rdma_cm",
        "lustre",
        "xpmem",
    }
)
"""Modules without which jobs are slower or do not start; others come and go."""
VERSIONED_MODULES = ("nvidia", "efa", "gdrdrv", "mlx5_core", "nvidia_fs", "lustre", "ena")
PACKAGES = re.compile(
    r"^(nvidia-fabric-?manager(-\d+)?|cuda-drivers(-fabricmanager)?(-\d+)?|libnccl2?|datacenter-gpu-manager(-4-core)?|efa|"
    r"libfabric1?(-aws)?|libnccl-ofi(-\w+)?|aws-ofi-nccl|slurmd|slurm-smd-slurmd|slurm-slurmd|munge|nvidia-container-toolkit)$"
)
"""Names of Debian and RPM packages whose versions matter to jobs."""
_RPM_NAMES = (
    "nvidia-fabric-manager",
    "nvidia-fabricmanager",
    "cuda-drivers",
    "libnccl",
    "datacenter-gpu-manager",
    "datacenter-gpu-manager-4-core",
    "efa",
    "libfabric-aws",
    "libnccl-ofi",
    "slurm-slurmd",
    "munge",
    "nvidia-container-toolkit",
)
_RPM = Path("usr/bin/rpm")
_RPM_DEADLINE_S = 10.0
_EFA_PACKAGE = re.compile(r"^([a-z][a-z0-9-]*?)[-_]v?(\d[\w.~+-]*?)(?:[._](?:amd64|arm64|x86_64|aarch64|noarch|all))?$")
_EFA_PACKAGES = Path("opt/amazon/efa_installed_packages")
_DPKG_STATUS = Path("var/lib/dpkg/status")
_DPKG_MOST_BYTES = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class NodeManifest:
    """What was seen of a node. A field that is empty or None is not compared."""

    cpus: int | None = None
    """CPUs online."""
    memory_kib: int | None = None
    """MemTotal."""
    governor: str = ""
    """CPU frequency governor."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """``kernel``, ``module NAME``, ``package NAME``."""
    modules: tuple[str, ...] = ()
    mounts: Mapping[str, str] = field(default_factory=dict)
    """Network file systems: mount point → type."""

    def dump(self) -> str:
        """As JSON; :func:`load_manifest` reads it."""
        return json.dumps({"version": 1, **asdict(self)}, indent=2, sort_keys=True) + "\n"


def learn_manifest(context: Context, root: Path = Path("/")) -> NodeManifest:
    """Read this node, which must be a good one. What cannot be read is left out. Raises NotGathered without procfs, OSError.

    ``root``: where packages are looked up."""
    settings = context.settings
    proc, sysfs = settings.host.proc, settings.sysfs
    mounts = read_mounts(proc)
    return NodeManifest(
        cpus=_online(sysfs),
        memory_kib=meminfo(proc).get("MemTotal"),
        governor=text(sysfs / "devices/system/cpu/cpu0/cpufreq/scaling_governor") or "",
        versions=versions(context, root),
        modules=tuple(sorted(modules(proc) & WATCHED_MODULES)),
        mounts={each.path: each.kind for each in mounts if each.remote and not covered(each.path, mounts)},
    )


def manifest_path(context: Context) -> Path | None:
    """The site's manifest, else where this node's own is; None: neither is configured."""
    settings = context.settings
    if settings.host.manifest is not None:
        return settings.host.manifest
    return settings.state_dir / FILE if settings.state_dir is not None else None


def manifest_of(context: Context) -> NodeManifest | None:
    """The manifest with which this node is compared; None: nothing was learned.

    Raises NotGathered for a file that is no manifest, and for the site's own where it is not there."""
    path = manifest_path(context)
    if path is None:
        return None
    try:
        return load_manifest(path)
    except FileNotFoundError:
        if context.settings.host.manifest is None:
            return None
        raise NotGathered(f"{path} is not there") from None


def save_manifest(manifest: NodeManifest, path: Path) -> None:
    """Write it so that a reader sees the old or the new one. Raises OSError."""
    write_whole(path, manifest.dump())


def load_manifest(path: Path) -> NodeManifest:
    """Raises OSError, and NotGathered for anything that :func:`save_manifest` did not write."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        if raw["version"] != 1:
            raise NotGathered(f"{path}: version {raw['version']!r} is not known")
        return NodeManifest(
            cpus=_whole(raw.get("cpus")),
            memory_kib=_whole(raw.get("memory_kib")),
            governor=str(raw.get("governor", "")),
            versions=_words(raw.get("versions", {})),
            modules=tuple(str(name) for name in raw.get("modules", ())),
            mounts=_words(raw.get("mounts", {})),
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise NotGathered(f"{path} is no manifest: {error}") from error


def _whole(value: Any) -> int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value <= 0):
        raise ValueError(f"{value!r} is no count")
    return value


def _words(value: Any) -> dict[str, str]:
    return {str(key): str(each) for key, each in value.items()}


def versions(context: Context, root: Path = Path("/")) -> dict[str, str]:
    """Kernel release, module and package versions; what is not there is left out."""
    settings = context.settings
    found = {"kernel": text(settings.host.proc / "sys/kernel/osrelease")}
    for name in VERSIONED_MODULES:
        found[f"module {name}"] = text(settings.sysfs / "module" / name / "version")
    packages = {
        **_efa_packages(root / _EFA_PACKAGES),
        **_debian_packages(root / _DPKG_STATUS),
        **_rpm_packages(root / _RPM),
    }
    found.update({f"package {name}": version for name, version in packages.items()})
    return {name: version for name, version in found.items() if version}


def _efa_packages(path: Path) -> dict[str, str]:
    """The list that the EFA installer leaves: comments with its own version, then all packages on one line."""
    found = {}
    for line in (text(path) or "").splitlines():
        if line.startswith("# EFA installer version:"):
            found["EFA installer"] = line.rpartition(":")[2].strip()
        elif not line.startswith("#"):
            matches = (_EFA_PACKAGE.match(word) for word in line.split())
            found.update({match[1]: match[2] for match in matches if match and PACKAGES.match(match[1])})
    return found


def _rpm_packages(command: Path) -> dict[str, str]:
    """Asked of rpm, where that is installed; nothing where it fails: its lock may be held."""
    if not command.exists():
        return {}
    argv = [str(command), "-q", "--qf", "%{NAME} %{VERSION}-%{RELEASE}\\n", *_RPM_NAMES]
    try:
        done = CHILDREN.run("rpm", argv, _RPM_DEADLINE_S, gentle=True)
    except OSError:
        return {}
    if isinstance(done, Hung):
        return {}
    pairs = (line.split() for line in done.text.splitlines())
    return {words[0]: words[1] for words in pairs if len(words) == 2 and words[0] in _RPM_NAMES}


def _debian_packages(path: Path) -> dict[str, str]:
    try:
        with path.open(encoding="utf-8", errors="replace") as lines:
            return dict(_chosen_packages(lines)) if path.stat().st_size < _DPKG_MOST_BYTES else {}
    except OSError:
        return {}


def _chosen_packages(lines: Iterable[str]) -> Iterable[tuple[str, str]]:
    name = ""
    installed = False
    for line in lines:
        if line.startswith("Package: "):
            name, installed = line[9:].strip(), False
        elif line.startswith("Status: "):
            installed = line.rstrip().endswith(" installed")
        elif line.startswith("Version: ") and installed and PACKAGES.match(name):
            yield name, line[9:].strip()


def _online(sysfs: Path) -> int | None:
    seen = text(sysfs / "devices/system/cpu/online")
    return len(cpu_list(seen)) if seen else None
