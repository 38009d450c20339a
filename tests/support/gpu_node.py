"""The real agent on a node with emulated GPUs, and the machine into which faults are injected."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from holdfast.practice.cluster.machine import PracticeMachine
from holdfast.practice.cluster.processes import Processes
from holdfast.practice.cluster.spec import Spec
from holdfast.practice.faults import all_faults
from holdfast.practice.nvml import state
from holdfast.practice.nvml.build import environment
from holdfast_checks.known import all_checks
from support.agent_bench import FakeController, Folder, Json

INTERVAL_S = 0.5


def gpu_machine(folder: Path, gpus: int, minors: Sequence[int] | None = None) -> PracticeMachine:
    """A machine with emulated GPUs on which nothing runs."""
    spec = Spec("t", ("n1",), gpus, "", 1, "127.0.0", 0, (0,), 0, (0,), 0, "")
    machine = PracticeMachine(spec, folder, "n1", Processes(folder), {})
    machine.host.folder.mkdir(parents=True)
    state.write(machine.host.nvml_state, state.default_state("n1", gpus, 0, minors=tuple(minors) if minors else None))
    return machine


class GpuNode:
    """A running agent that runs the checks of GPUs alone, twice a second, and acts on all of them."""

    def __init__(
        self,
        folder: Folder,
        controller: FakeController,
        library: Path,
        *,
        gpus: int,
        minors: Sequence[int] | None = None,
    ) -> None:
        self.folder = folder
        self.controller = controller
        self.machine = gpu_machine(folder.path, gpus, minors)
        self.state = self.machine.host.nvml_state
        self.spool = folder.path / "spool"
        self.spool.mkdir()
        self.library = library
        self._configure(gpus)
        self.process: subprocess.Popen[bytes] = folder.start()
        try:
            controller.wait(lambda: bool(controller.items("inventory")))
        except AssertionError:
            self.close()
            raise
        self.gpus = {int(gpu["minor"]): gpu for gpu in controller.items("inventory")[0]["gpus"].values()}
        self.uuids = {int(gpu["minor"]): uuid for uuid, gpu in controller.items("inventory")[0]["gpus"].items()}

    def _configure(self, gpus: int) -> None:
        others = [name for name in all_checks() if not name.startswith("gpu.")]
        intervals = "\n".join(f'"{name}" = {INTERVAL_S}' for name in all_checks() if name.startswith("gpu."))
        env = "\n".join(f'{key} = "{value}"' for key, value in environment(self.library, self.state).items())
        self.folder.write_config(
            f'controllers = ["{self.controller.url}"]\ngpu_count = {gpus}\nnvml_library = "{self.library}"\n'
            f'nvml_deadline_s = 1.5\ndisabled_checks = {json.dumps(others)}\nact_on = ["*"]\n'
            f'[intervals]\n{intervals}\n[network]\nslurmd_spool = "{self.spool}"\n[nvml_env]\n{env}'
        )

    def inject(self, fault: str, value: str = "", gpu: int = 0) -> None:
        """As ``holdfast practice inject``."""
        all_faults()[fault].apply(self.machine, value, gpu)

    def heal(self, fault: str) -> None:
        """As ``holdfast practice heal``, of one fault."""
        heal = all_faults()[fault].heal
        assert heal is not None
        heal(self.machine)

    def items_of(self, check: str, kind: str = "finding") -> list[Json]:
        """What the agent reported of one check."""
        return [item for item in self.controller.items(kind) if item["check"] == check]

    def findings(self, check: str) -> list[tuple[str, str]]:
        """(code, component) of each finding."""
        return [(item["code"], item["component"]) for item in self.items_of(check)]

    def wait_for(self, kind: str, check: str, component: str) -> None:
        """Wait until the agent has reported it."""
        self.controller.wait(lambda: any(item["component"] == component for item in self.items_of(check, kind)))

    def wait_for_code(self, check: str, component: str, code: str) -> Json:
        """The finding, once the agent has reported it."""
        try:
            self.controller.wait(lambda: (code, component) in self.findings(check))
        except AssertionError:
            known = [(item["check"], item["code"], item["component"]) for item in self.controller.items("finding")]
            raise AssertionError(f"no {check} {code} of {component}, but {known}") from None
        return next(i for i in self.items_of(check) if (i["code"], i["component"]) == (code, component))

    def kill_nvml_child(self, signal_number: int) -> None:
        """End the process that talks to NVML as if it had crashed in the library."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        for pid in map(int, children):
            if b"nvml_child" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal_number)

    def close(self) -> None:
        """End the agent and check that it logged no error."""
        self.process.kill()
        self.process.wait()
        assert "Traceback" not in self.folder.agent_log
