"""The process of the emulated metadata service: ``python -m holdfast.practice.cluster.metadata FOLDER``.

A spot machine whose time has come is terminated, or loses power where the cluster has no emulated EC2."""

from __future__ import annotations

import logging
import signal
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path

from holdfast import logs
from holdfast.practice.aws import imds_state
from holdfast.practice.aws.imds import Imds
from holdfast.practice.cluster.cluster import Practice
from holdfast_checks.whole_file import write_whole

log = logging.getLogger("holdfast.practice.cluster.metadata")

_TICK_S = 0.2


class Reaper:
    """Interrupt spot machines when their time has come."""

    def __init__(self, cluster: Path) -> None:
        self._cluster = cluster

    def look(self, now: datetime) -> list[str]:
        """Interrupt the machines that are due. Returns their instance ids."""
        gone = []
        for file in sorted({p.resolve() for p in self._cluster.glob(f"*/*/{imds_state.FILE}")}):
            machine, said = file.parent, imds_state.read(file.parent)
            due = said.get("spot")
            if not due or said.get("gone") or datetime.fromisoformat(due["time"]) > now:
                continue
            imds_state.change(machine, gone=True)
            gone.append((machine / "instance_id").read_text(encoding="utf-8").strip())
            self._take(machine, gone[-1])
        return gone

    def _take(self, machine: Path, instance_id: str) -> None:
        log.info("event=spot_machine_goes instance=%s folder=%s", instance_id, machine.name)
        endpoint = self._cluster / "aws" / "endpoint"
        if endpoint.exists():
            _terminate(endpoint.read_text(encoding="utf-8").strip(), instance_id)
        practice = Practice.load(self._cluster)
        for node in practice.nodes:
            if practice.machine(node).host.folder.resolve() == machine:
                practice.machine(node).power_off()


def _terminate(endpoint: str, instance_id: str) -> None:
    """Terminate by EC2, where it knows the machine; it does not know HyperPod's."""
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - only with an emulator

    from holdfast.practice.aws.seed import open_ec2  # noqa: PLC0415

    try:
        open_ec2(endpoint).terminate_instances(InstanceIds=[instance_id])
    except (ClientError, BotoCoreError) as error:
        log.warning("event=not_terminated instance=%s error=%s", instance_id, error)


def main(cluster: Path) -> int:
    """Serve until SIGTERM; a restarted service keeps its address."""
    logs.set_up()
    known = cluster / "run" / imds_state.ENDPOINT
    server = Imds(cluster, int(known.read_text().rpartition(":")[2]) if known.exists() else 0)
    write_whole(known, server.url + "\n")
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    threading.Thread(target=server.serve_forever, args=(_TICK_S,), daemon=True).start()
    reaper = Reaper(cluster)
    while not stop.wait(_TICK_S):
        reaper.look(datetime.now(UTC))
    server.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
