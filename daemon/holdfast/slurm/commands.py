"""The commands twin of the Scheduler port: ``scontrol`` and ``squeue`` in the text forms that 22.05 to 26.05 all print.

``docs/slurm-notes.md`` lists what was tried, version by version."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from holdfast.model.background import Topology
from holdfast.model.errors import NotFound, Rejected, Unavailable
from holdfast.model.slurm.cluster import HOLDING_STATES, ClusterView, Job, Node, Partition, Reservation
from holdfast.slurm import parse, records, squeue
from holdfast.slurm.job_listing import MOST_ALONE, JobListing, Stillness
from holdfast.slurm.run import Commands

_LOG = logging.getLogger(__name__)
_CRED_EXPIRE_S = 120
"""slurm.conf(5), AuthInfo: cred_expire's default."""
_JOB_HOLD_FLAGS = "FLEX,IGNORE_JOBS,NO_HOLD_JOBS_AFTER"
"""Without OVERLAP: a job in a reservation with FLEX and OVERLAP may start on what any other reservation keeps (docs/slurm-notes.md)."""
_HOLD_FLAGS = f"{_JOB_HOLD_FLAGS},OVERLAP"
_SPARE_FLAGS = "IGNORE_JOBS,OVERLAP"
_MAINT_FLAGS = "MAINT,IGNORE_JOBS,OVERLAP"
_TASKS_PER_NODE = re.compile(r"\bNtasksPerN:B:S:C=(\d+):")
_KEEPS_RESERVATION = frozenset({"PENDING", "RUNNING", "SUSPENDED"})


@dataclass(frozen=True, slots=True)
class _Constants:
    """Cluster-wide settings of slurm.conf; a change needs a restart of slurmctld."""

    cluster: str
    cred_expire_s: int
    slurmd_port: int
    """Default port, for nodes without their own Port setting: scontrol prints none for those."""


def _constants_of(config: Mapping[str, str]) -> _Constants:
    options = dict(part.partition("=")[::2] for part in config.get("AuthInfo", "").split(","))
    expire, port = options.get("cred_expire", ""), config.get("SlurmdPort", "")
    return _Constants(
        cluster=config.get("ClusterName", ""),
        cred_expire_s=int(expire) if expire.isdigit() else _CRED_EXPIRE_S,
        slurmd_port=int(port) if port.isdigit() else parse.SLURMD_PORT,
    )


class SlurmCommands:
    """Implements :class:`holdfast.ports.Scheduler`. Safe to call from several threads at a time."""

    def __init__(
        self,
        *,
        env: Mapping[str, str] | None = None,
        deadline_s: float = 10.0,
        clock_skew_s: float = 0.25,
        now: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """``env``: SLURM_CONF and PATH where they are not this process's own. ``deadline_s``: of each command.

        ``clock_skew_s``: how far slurmd's clocks may be ahead of slurmctld's, see :meth:`release`."""
        self._commands = Commands(env, deadline_s)
        self._clock_skew_s = clock_skew_s
        self._now = now
        self._sleep = sleep
        self._constant: _Constants | None = None
        self._parsed: dict[tuple[int, str], Node] = {}
        self._nodes: dict[str, Node] = {}
        self._listing: JobListing | None = None
        self._stillness = Stillness()

    def view(self) -> ClusterView:
        cluster = self._cluster()
        read_at = datetime.fromtimestamp(self._now(), UTC)
        nodes = self.all_nodes()
        reservations = self.all_reservations()
        return ClusterView(
            cluster=cluster,
            read_at=read_at,
            nodes=nodes,
            jobs=self.jobs(),
            reservations=reservations,
        )

    def all_nodes(self) -> dict[str, Node]:
        """All nodes by name. A record that reads as it did the last time is not parsed again: few of thousands do not."""
        printed = records.nodes(self._scontrol("show", "node", "-o"))
        before, known, port = self._nodes, self._parsed, self._constants().slurmd_port
        self._parsed = {(port, key): known.get((port, key)) or parse.node(key, port) for key in _keys(printed)}
        nodes = {node.name: node for node in self._parsed.values()}
        imitated = [name for name, theirs in printed.items() if len(theirs) > 1]
        for number, name in enumerate(imitated):
            _LOG.warning("event=node_imitated node=%s: the text of a node reads like its record", name)
            nodes[name] = self.node(name) if number < MOST_ALONE else before.get(name, nodes[name])
        self._nodes = nodes
        return nodes

    def all_reservations(self) -> dict[str, Reservation]:
        """All reservations by name."""
        found = [parse.reservation(line) for line in records.lines(self._scontrol("show", "reservation", "-o"))]
        return {reservation.name: reservation for reservation in found}

    def jobs(self) -> dict[int, Job]:
        """All jobs by id."""
        return self._all_jobs()

    def node(self, name: str) -> Node:
        found = self._scontrol("show", "node", name, "-o").strip()
        if not found.startswith("NodeName="):
            raise NotFound(f"no node {name}")
        shown = parse.node(found, self._constants().slurmd_port)
        if shown.name != name:  # scontrol takes lists such as n[1-5], and a verb would be for all of them
            raise NotFound(f"no node is called {name!r}")
        return shown

    def job(self, job_id: int) -> Job:
        found = self._jobs(job_id)
        if job_id not in found:
            raise NotFound(f"Slurm knows no job {job_id}")
        return found[job_id]

    def components(self, job_id: int) -> tuple[Job, ...]:
        found = self._jobs(job_id)  # scontrol shows all of them with their leader
        if job_id not in found:
            raise NotFound(f"Slurm knows no job {job_id}")
        return tuple(job for number, job in found.items() if job_id in (number, job.het_leader))

    def jobs_on(self, node: str) -> tuple[Job, ...]:
        """See the port. One command for a node that no job holds, one more for each job there, up to eight."""
        try:
            found = self._jobs_of_node(node)
        except NotFound:
            self.node(node)
            # squeue knows the nodes of slurm.conf alone; a dynamic one it calls invalid (tried on 22.05)
            found = self._all_jobs()
        return tuple(job for job in found.values() if node in job.nodes and job.state in HOLDING_STATES)

    def version(self) -> str:
        return self.config()["SLURM_VERSION"]

    def config(self) -> dict[str, str]:
        found = parse.config(self._scontrol("show", "config"))
        if "ClusterName" in found:
            self._constant = _constants_of(found)
        return found

    def partitions(self) -> tuple[Partition, ...]:
        return parse.partitions(self._scontrol("show", "partition", "--oneliner"))

    def topology(self) -> Topology:
        try:
            return parse.topology(self._scontrol("show", "topology"))
        except Rejected:  # some releases refuse the question where none is configured
            _LOG.debug("event=no_topology", exc_info=True)
            return Topology()

    def drain(self, node: str, reason: str) -> None:
        self._scontrol("update", f"NodeName={node}", "State=DRAIN", f"Reason={records.printable(reason)}")

    def undrain(self, node: str) -> None:
        # RESUME would end what others began meanwhile: a DOWN, a reboot, a power-down
        state = "RESUME" if self.node(node).down else "UNDRAIN"
        try:
            self._scontrol("update", f"NodeName={node}", f"State={state}")
        except NotFound:
            raise
        except Rejected:
            # Slurm refuses RESUME for a node that is in service; then there is nothing to do.
            if self.node(node).out_of_service:
                raise

    def set_instance_id(self, node: str, instance_id: str) -> None:
        try:
            self._scontrol("update", f"NodeName={node}", f"InstanceId={records.printable(instance_id)}")
        except NotFound:
            raise
        except Rejected as refused:
            if "not supported" not in str(refused):
                raise
            _LOG.debug("event=no_instance_id node=%s error=%s", node, refused)

    def set_down(self, node: str, reason: str, *, drain: bool = True) -> None:
        # DRAIN first: a crash between the two leaves a node that takes no job. DOWN keeps the flag.
        if drain:
            self.drain(node, reason)
        self._scontrol("update", f"NodeName={node}", "State=DOWN", f"Reason={records.printable(reason)}")

    def power_down(self, node: str, reason: str) -> None:
        # Not POWER_DOWN_FORCE, which kills jobs: a job may have started since the caller looked.
        self._power(node, "State=POWER_DOWN_ASAP", f"Reason={records.printable(reason)}")

    def power_up(self, node: str) -> None:
        self._power(node, "State=POWER_UP")

    def _power(self, node: str, *change: str) -> None:
        try:
            self._scontrol("update", f"NodeName={node}", *change)
        except Rejected as refused:
            # 26.05 looks at the node's power actions before its name: it says "Invalid power action" of an unknown node, too.
            if "invalid power action" in str(refused).lower():
                self.node(node)  # raises NotFound
            raise

    def requeue(self, job_id: int) -> None:
        self._scontrol("requeue", self._name(job_id))

    def release(self, job_id: int, *, reservation: str | None = None) -> None:
        """See the port. Waits up to a second or so for the restart to be safe.

        slurmd refuses a batch job whose credential was made in the second in which it last killed that job, or earlier
        (``Job … already killed, do not launch batch job``), and slurmctld then ends the job as FAILED. So the start
        lies in a later second than the end of the last run, by ``clock_skew_s`` at least."""
        for job in self.components(job_id):
            if job.state == "COMPLETING":
                # Slurm takes the update, and sets BeginTime afresh once the job has completed.
                raise Rejected(f"job {job.key} is still COMPLETING on {parse.fold(job.nodes)}")
            if job.state != "PENDING":
                raise Rejected(f"job {job.key} is {job.state}, not PENDING")
            self._await_next_second(job)
        place = [f"ReservationName={reservation}"] if reservation else []
        self._update_job(job_id, *place, "StartTime=now")

    def delay_start(self, job_id: int, delay_s: int) -> None:
        self._update_job(job_id, f"StartTime=now+{delay_s}")

    def set_array_throttle(self, array_job_id: int, most: int | None) -> None:
        if most is not None and most < 1:
            raise Rejected(f"array {array_job_id}: a throttle of {most} is none")  # 0 means "no limit" to Slurm
        self._scontrol("update", f"JobId={array_job_id}", f"ArrayTaskThrottle={most or 0}")

    def hold(self, job_id: int, reason: str) -> None:
        pending = self.job(job_id).state == "PENDING"  # Slurm holds only these; a failed one comes back held, too
        # An administrator's hold (``hold``) its owner could not release; these two the owner can (tried on 22.05).
        self._scontrol("uhold" if pending else "requeuehold", self._name(job_id))
        self.tell_owner(job_id, reason)

    def set_excluded_nodes(self, job_id: int, nodes: tuple[str, ...]) -> None:
        # An update of a leader's id holds for all components of its heterogeneous job (tried on 22.05).
        name = f"{job_id}+0" if self.job(job_id).het_leader == job_id else self._name(job_id)
        self._scontrol("update", f"JobId={name}", f"ExcNodeList={parse.fold(nodes)}")

    def set_num_nodes(self, job_id: int, nodes: int) -> None:
        # Of --ntasks-per-node Slurm keeps the last run's NumTasks: with another number of nodes it never starts (tried on 22.05).
        # What a user's own text may say here changes that user's own job alone.
        per_node = _TASKS_PER_NODE.search(self._scontrol("show", "job", str(job_id), "-o"))
        tasks = nodes * int(per_node[1]) if per_node is not None else 0
        self._update_job(job_id, f"NumNodes={nodes}-{nodes}", *([f"NumTasks={tasks}"] if tasks else []))

    def set_job_reservation(self, job_id: int, reservation: str | None) -> None:
        self._update_job(job_id, f"ReservationName={reservation or ''}")

    def tell_owner(self, job_id: int, text: str) -> None:
        self._update_job(job_id, f"AdminComment={records.printable(text)}")

    def create_reservation(
        self,
        name: str,
        nodes: tuple[str, ...],
        *,
        users: tuple[str, ...],
        duration_s: int | None,
        hold_for_job: bool = False,
        over: str | None = None,
        maint: bool = False,
    ) -> None:
        """See the port. Slurm creates overlapping reservations where either has OVERLAP, a flag that cannot be removed; so the reservation
        that a job's hold may overlap has it."""
        if self._exists(name, nodes):
            return
        hold_flags = _HOLD_FLAGS if over is None else _JOB_HOLD_FLAGS
        words = (
            "create",
            "reservation",
            f"ReservationName={name}",
            f"Nodes={parse.fold(nodes)}",
            f"Users={','.join(users)}",
            "StartTime=now",
            f"Duration={_duration(duration_s)}",
            f"Flags={_MAINT_FLAGS if maint else hold_flags if hold_for_job else _SPARE_FLAGS}",
        )
        try:
            self._scontrol(*words)
        except Rejected:
            if self._exists(name, nodes):
                return
            if over is None or not self._let_overlap(over, nodes):
                raise
            self._scontrol(*words)

    def _let_overlap(self, name: str, nodes: Sequence[str]) -> bool:
        """Whether the reservation has some of these nodes and had no OVERLAP until now: an operator or an earlier release created it."""
        try:
            there = self.reservation(name)
        except NotFound:
            return False
        if "OVERLAP" in there.flags or not set(there.nodes) & set(nodes):
            return False
        self._scontrol("update", f"ReservationName={name}", "Flags+=OVERLAP")
        return True

    def set_reservation_nodes(self, name: str, nodes: tuple[str, ...]) -> None:
        if nodes:
            self._scontrol("update", f"ReservationName={name}", f"Nodes={parse.fold(nodes)}")
        else:
            self.reservation(name)
            self.delete_reservation(name)

    def delete_reservation(self, name: str) -> None:
        """See the port. Slurm refuses while a job runs in it, and holds a pending one afterwards: both are taken out
        first."""
        states = squeue.states_in(self._commands.run, name)
        for job_id in sorted(job_id for job_id, state in states.items() if state in _KEEPS_RESERVATION):
            self.set_job_reservation(job_id, None)
        try:
            self._scontrol("delete", f"ReservationName={name}")
        except NotFound:
            _LOG.debug("event=reservation_gone reservation=%s", name)

    def reservation(self, name: str) -> Reservation:
        return parse.reservation(self._one(self._scontrol("show", "reservation", name, "-o"), f"no reservation {name}"))

    def reboot(self, node: str, reason: str | None) -> None:
        # Not ASAP: that would set and afterwards clear DRAIN. A drained node takes no job and is rebooted once idle.
        words = () if reason is None else (f"reason={records.printable(reason)}",)
        self._scontrol("reboot", *words, node)

    def _all_jobs(self) -> dict[int, Job]:
        listing = self._job_listing()
        plain = self._scontrol("show", "job", "-o") if self._stillness.may_last else ""
        if (still := self._stillness.jobs(plain)) is not None:
            return still
        text = self._scontrol("show", "job", "-d", "-o")
        jobs = listing.read(text, squeue.rows_of(self._commands.run, text))
        self._stillness.read(jobs, text, plain)
        return jobs

    def _jobs(self, job_id: int) -> dict[int, Job]:
        """The job's records: of an array's id all its elements', of a heterogeneous job's leader all components'."""
        text = self._scontrol("show", "job", str(job_id), "-d", "-o")
        return self._new_listing().read(text, squeue.rows_of(self._commands.run, text, "-j", str(job_id)))

    def _jobs_of_node(self, node: str) -> dict[int, Job]:
        """Raises NotFound where squeue does not know the node."""
        return self._new_listing().read("", squeue.holders_of(self._commands.run, node))

    def _job_listing(self) -> JobListing:
        self._listing = self._listing or self._new_listing()
        return self._listing

    def _new_listing(self) -> JobListing:
        return JobListing(self._cluster(), self._now, self._alone)

    def _alone(self, job_id: int) -> str | None:
        """What scontrol prints of one job; None: the job is gone, or Slurm does not answer."""
        try:
            return self._scontrol("show", "job", str(job_id), "-d", "-o")
        except (NotFound, Unavailable):
            return None

    def _await_next_second(self, job: Job) -> None:
        """Until the second after the job's last end has come on every node's clock.

        A requeued job's earliest start is its end plus cred_expire plus one."""
        cred_expire_s = self._constants().cred_expire_s
        if job.restarts and job.eligible_time:
            ended = job.eligible_time.timestamp() - cred_expire_s - 1
            wait_s = min(ended + 1 + self._clock_skew_s - self._now(), 2.0)
            if wait_s > 0:
                self._sleep(wait_s)

    def _constants(self) -> _Constants:
        """The settings as of the last read of slurm.conf, by any caller."""
        return self._constant or _constants_of(self.config())

    def _cluster(self) -> str:
        name = self._constants().cluster
        if not name:
            raise Unavailable("scontrol show config names no cluster")
        return name

    def _exists(self, name: str, nodes: Sequence[str]) -> bool:
        try:
            present = self.reservation(name)
        except NotFound:
            return False
        if set(present.nodes) != set(nodes):
            raise Rejected(f"reservation {name} exists with other nodes: {parse.fold(present.nodes)}")
        return True

    def _update_job(self, job_id: int, *changes: str) -> None:
        self._scontrol("update", f"JobId={self._name(job_id)}", *changes)

    def _name(self, job_id: int) -> str:
        """The name that a verb must use, so that it means only this job.

        The last element of an array to start bears the array's own id, which every verb takes for all elements (tried on
        22.05: a requeue of that one stopped its healthy siblings), and so does the record of those that have not started."""
        found = squeue.array_of(self._commands.run, job_id)
        if found is None:
            return str(job_id)
        array, tasks = found
        if not tasks.isdigit():
            tasks = self._tasks(job_id, array)
        return f"{array}_{tasks}" if tasks.isdigit() else f"{array}_[{tasks}]"

    def _tasks(self, job_id: int, array: str) -> str:
        """Of one record; squeue's line of those that have not started has the requeued ones too. What a user forges here names elements of
        that user's own array."""
        text = self._scontrol("show", "job", str(job_id), "-o")
        found = re.search(rf"^JobId={job_id} ArrayJobId={array} ArrayTaskId=([0-9,:-]+)", text, re.MULTILINE)
        if found is None:
            raise Unavailable(f"job {job_id} has changed in the meantime")
        return found[1]

    def _scontrol(self, *argv: str) -> str:
        return self._commands.run("scontrol", "-a", *argv)

    @staticmethod
    def _one(text: str, missing: str) -> str:
        found = records.lines(text)
        if not found:
            raise NotFound(missing)
        return found[0]


def _keys(printed: Mapping[str, list[str]]) -> list[str]:
    """Of each node's first record."""
    return [records.node_key(theirs[0]) for theirs in printed.values()]


def _duration(seconds: int | None) -> str:
    if seconds is None:
        return "UNLIMITED"
    minutes = max(1, -(-seconds // 60))
    return f"{minutes // 1440}-{minutes % 1440 // 60:02d}:{minutes % 60:02d}:00"
