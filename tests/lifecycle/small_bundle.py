"""A bundle with nothing to unpack, and machines for it: what on_create.sh decides, without an installation."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from lifecycle.lifecycle_support import OURS, PROVISIONING, RESOURCE, SCRIPTS, fake_command, run_script, write

SHARE = "/opt/share"
"""Where such a machine has the scripts of its release."""


def bundle(tmp_path: Path, conf: str = "", *, controller: bool = True) -> Path:
    """A bundle whose programs need no unpacking: the tests check what the settings become."""
    made = shutil.copytree(SCRIPTS / "lib", tmp_path / "bundle/lib").parent
    write(made / "lib/release.sh", 'install_release() { mkdir -p "$R/etc/holdfast"; return 1; }\n')
    share = f"SHARE={SHARE}\n"
    units = (
        share + "install_controller_units() { return 1; }\ninstall_agent_units() { return 1; }\nunit_enable() { :; }\n"
    )
    write(made / "lib/units.sh", units + 'bring_up() { echo "$*" >>"$R/up"; }\n')
    write(made / "enrol.sh", "exit 0\n")
    write(made / "holdfast.conf", conf)
    write(made / "provisioning_parameters.json", json.dumps(PROVISIONING))
    shutil.copy(SCRIPTS / "on_create.sh", made)
    if controller:
        write(made / "for-the-head", "")
    return made


def machine(tmp_path: Path, group: str) -> Path:
    """A machine of HyperPod in this group."""
    resource = json.loads(json.dumps(RESOURCE))
    for each in resource["InstanceGroups"]:
        each["Instances"][0]["CustomerIpAddress"] = OURS if each["Name"] == group else "10.9.9.9"
    write(tmp_path / "root/opt/ml/config/resource_config.json", json.dumps(resource))
    return tmp_path / "root"


def on_create(made: Path, root: Path, aws: str = "exit 255") -> str:
    path = fake_command(made.parent / "bin", "aws", f'echo "$*" >>"$0.calls"\n{aws}')
    return run_script(made / "on_create.sh", root, path=path).stderr
