"""Processes of this node as Slurm and the kernel know them. I/O only."""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from holdfast.agent.node.job_cgroup import named_in
from holdfast.model.errors import Rejected, Unavailable
from holdfast_checks.probes import process_files
from holdfast_checks.probes.slurmd import WantedSlurmd, find, may_run, of_others

log = logging.getLogger(__name__)

SCONTROL_TIMEOUT_S = 5.0
_SEEN = "JobID:0 ,State:0 ,RestartCnt:0"
"""squeue fields; width 0: in full length."""
_NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
"""Name of one node; no list (``n[1-5]``) and no option."""
_WHERE = "NodeList:0 ,NodeAddr:0 ,Port:0"
_NO_STEPS = re.compile(
    r"^(?:There are no steps for job \d{1,10}|No job steps exist|(?:Job|Step)Id=[\w.+]{1,80} does not exist)"
    r" on (?:this node\.|node \S{1,255})$"
)
"""Messages of scontrol (22.05 and later): job without processes on the node, node without a job, job on such a node."""
_LISTPIDS_HEAD = "PID "
RUN_OVER = frozenset({"COMPLETING", "PENDING", "REQUEUED"})
"""States in which the run that held this node is over."""
_STEPD_NAMES = frozenset({"slurmstepd", "slurmstepd-wlm"})
"""Names of the executable; Debian installs it with the suffix."""
_KEEPS_THE_SCOPE = ["infinity"]
"""Its only argument where it serves no job: with cgroup/v2 (22.05 and later) slurmd starts one for good, to keep the scope of all steps."""
_TITLE = re.compile(r"^slurmstepd: \[(?P<job>\d+)\.(?P<step>[a-z0-9+]+)\]")
_SCOPE = re.compile(r"/(?P<node>[^/]+)_slurmstepd\.scope/")
_STEP_CGROUP = re.compile(r"^(?P<step>.*/step_[a-z0-9+]+)(?:/|$)")


@dataclass(frozen=True, slots=True)
class Stepd:
    """One slurmstepd. Pid and start time together identify a process uniquely."""

    pid: int
    started_ticks: int
    job_id: int
    step: str


@dataclass(frozen=True, slots=True)
class EpilogProcess:
    """An epilog that slurmd runs, identified by pid and start time."""

    pid: int
    started_ticks: int


@dataclass(frozen=True, slots=True)
class JobInSlurm:
    """The job as slurmctld shows it."""

    state: str
    restarts: int


def start_ticks(pid: int) -> int | None:
    """Start time in clock ticks since boot; None: the process is gone."""
    stat = process_files.stat(pid)
    return stat.started_ticks if stat is not None else None


def in_job_since_ticks(pid: int) -> int | None:
    """Latest possible start of this process's job on the node: the start of the slurmstepd above the process, else its own.

    In clock ticks since boot, as :func:`start_ticks`. None: the process is gone."""
    own = start_ticks(pid)
    if own is None:
        return None
    try:
        above = psutil.Process(pid).parents()
    except psutil.Error:
        return own
    steps = (step for process in above if (step := _stepd(process.pid, frozenset({0, os.geteuid()}))) is not None)
    return min((own, *(step.started_ticks for step in steps)))


def now_ticks() -> int:
    """Now, in clock ticks since boot."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))


def age_s(process: Stepd | EpilogProcess) -> float:
    """Age of the process; 0.0 when it is gone."""
    if start_ticks(process.pid) != process.started_ticks:
        return 0.0
    return time.clock_gettime(time.CLOCK_BOOTTIME) - process.started_ticks / os.sysconf("SC_CLK_TCK")


def handles(pid: int, number: signal.Signals) -> bool:
    """Whether the process has its own handler for the signal (SigCgt in /proc/PID/status)."""
    try:
        lines = process_files.text(pid, "status").split("\n")
    except OSError:
        return False
    masks = [int(line.split()[1], 16) for line in lines if line.startswith("SigCgt:")]
    return bool(masks and masks[0] >> (number - 1) & 1)


def owner_of(pid: int) -> int | None:
    """Effective uid of the process; None: it is gone."""
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return None


def started_by_slurm(pid: int) -> bool:
    """Whether it is a task that a slurmstepd of root or of the agent's user started directly: its uid is the job's."""
    stat = process_files.stat(pid)
    if stat is None:
        return False
    try:
        executable = process_files.executable(stat.parent)
    except OSError:
        return False
    return executable in _STEPD_NAMES and owner_of(stat.parent) in (0, os.geteuid())


class SlurmNode:
    """This node's slurmd, its steps and its jobs' processes."""

    def __init__(self, node: str, pid_file: Path | None, scontrol: str, slurm_conf: Path | None) -> None:
        self._node = node
        self._wanted = WantedSlurmd(node, pid_file, slurm_conf)
        self._scontrol = scontrol
        self._env = {**os.environ, **({"SLURM_CONF": str(slurm_conf)} if slurm_conf else {})}

    def job_pids(self, job_id: int | None = None) -> Mapping[int, frozenset[int]]:
        """Job → its processes on this node, as slurmd reports them; of one job or of all. Blocks for up to 5 s.

        A node without such a job gives an empty mapping. Raises Unavailable when slurmd does not answer."""
        command = [self._scontrol, "listpids", "*" if job_id is None else str(job_id), self._node]
        done = self._run(command)
        said = (done.stdout + done.stderr).strip()
        if done.returncode != 0 and not _has_nothing_there(said):
            raise Unavailable(f"scontrol listpids: {said[:200]}")
        return parse_listpids(done.stdout)

    def _run(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        try:
            return subprocess.run(
                command,
                capture_output=True,
                encoding="utf-8",
                errors="replace",  # a user's text may be anything
                timeout=SCONTROL_TIMEOUT_S,
                env=self._env,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise Unavailable(f"{command[0]} did not answer within {SCONTROL_TIMEOUT_S:g} s") from error
        except OSError as error:
            raise Unavailable(f"{command[0]}: {error.strerror}") from error

    def stepds(self, job_id: int | None = None) -> list[Stepd]:
        """slurmstepd processes of this node's slurmd, proved by owner, executable and parent, not by their title alone.

        Raises Unavailable when slurmd cannot be identified, since nothing can be proved then."""
        try:
            slurmd = self.slurmd()
            parents = {slurmd.pid, slurmd.ppid()}
        except psutil.Error as error:
            raise Unavailable(f"slurmd is gone: {error}") from error
        uid = _owner_of_slurmd(slurmd)
        steps = (_stepd(pid, frozenset({uid}), parents) for pid in psutil.pids())
        return [step for step in steps if step is not None and job_id in (None, step.job_id)]

    def has_slurmd(self) -> bool:
        """Whether any process, of any user, may be this node's slurmd."""
        return may_run(self._wanted)

    def strays(self) -> list[str]:
        """Traces of a job on this machine, found without slurmd: a slurmstepd that is not another node's, a process in a job's cgroup.

        Those of a simulated cluster's other nodes are recognized by the process that started their slurmd."""
        others = self._others()
        traces = (_trace(pid, others, self._node) for pid in psutil.pids())
        return [trace for trace in traces if trace is not None]

    def _others(self) -> frozenset[int]:
        """Slurmds of other nodes on this machine, and the processes that started them."""
        pids = of_others(self._wanted)
        started = {stat.parent for pid in pids if (stat := process_files.stat(pid)) is not None}
        return pids | started - {1}

    def epilogs(self, job_id: int) -> list[EpilogProcess]:
        """Epilogs of the job that this node's slurmd runs, proved by parent, owner and slurmd's variables in their environment.

        Raises Unavailable when slurmd cannot be identified."""
        try:
            slurmd = self.slurmd()
            children = slurmd.children()
        except psutil.Error as error:
            raise Unavailable(f"slurmd is gone: {error}") from error
        uid, found = _owner_of_slurmd(slurmd), []
        for child in children:
            ticks = start_ticks(child.pid)
            if ticks is not None and _is_epilog(child, uid, job_id):
                found.append(EpilogProcess(child.pid, ticks))
        return found

    def show(self, what: str, name: str = "") -> str:
        """``scontrol -o show``: one record a line, of this name or of all. Blocks for up to 5 s.

        Raises Unavailable, also when there is no such record."""
        done = self._run([self._scontrol, "-o", "show", what, *([name] if name else [])])
        if done.returncode != 0:
            raise Unavailable(f"scontrol show {what} {name}: {(done.stderr or done.stdout).strip()[:200]}")
        return done.stdout

    def squeue(self, job_id: int, *, each: bool) -> str:
        """Id, state and restarts of a job and its related records, one a line, without any user's text. Blocks for up to 5 s.

        ``each``: a line for each of an array's elements. Raises Unavailable, also when there is no such job."""
        done = self._run(
            [self._beside("squeue"), "-h", "-a", "-t", "all", *(["-r"] if each else []), "-j", str(job_id), "-O", _SEEN]
        )
        if done.returncode != 0:
            raise Unavailable(f"squeue -j {job_id}: {(done.stderr or done.stdout).strip()[:200]}")
        return done.stdout

    def address_of(self, name: str) -> tuple[str, int]:
        """Address and port of a node's slurmd, as slurmctld shows them; only that node is read. Blocks for up to 5 s.

        Raises Rejected where Slurm has no node of exactly this name, Unavailable."""
        if _NODE_NAME.fullmatch(name) is None:
            raise Rejected(f"{name[:80]!r} is not the name of one node")
        done = self._run([self._beside("sinfo"), "-h", "-a", "-N", "-n", name, "-O", _WHERE])
        if done.returncode != 0:
            raise Unavailable(f"sinfo -n {name}: {(done.stderr or done.stdout).strip()[:200]}")
        for line in done.stdout.splitlines():  # one for each partition
            words = line.split()
            if len(words) == 3 and words[0] == name and words[2].isdigit():
                return words[1], int(words[2])
        raise Rejected(f"Slurm has no node {name}")

    def _beside(self, command: str) -> str:
        """Path of another command in scontrol's installation."""
        return str(Path(self._scontrol).with_name(command)) if os.sep in self._scontrol else command

    @property
    def node(self) -> str:
        return self._node

    def slurmd(self) -> psutil.Process:
        """The node's slurmd. Raises Unavailable."""
        pid = find(self._wanted)
        if pid is None:
            raise Unavailable(f"no slurmd of {self._node} among the processes")
        return psutil.Process(pid)


def job_seen(slurm: SlurmNode, job_id: int) -> JobInSlurm:
    """The job as slurmctld shows it. Raises Unavailable when it does not answer. An array element may have its own line only where each
    one has."""
    for each in (False, True):
        found = re.findall(rf"^{job_id} (\w+) (\d+)$", slurm.squeue(job_id, each=each), re.MULTILINE)
        if len(found) == 1:
            return JobInSlurm(found[0][0], int(found[0][1]))
    raise Unavailable(f"squeue does not say how job {job_id} is")


def _has_nothing_there(said: str) -> bool:
    """Whether scontrol's output is only this message: together with another error, "no job" may be the consequence of that error."""
    lines = [line.strip() for line in said.split("\n")]
    told = [line for line in lines if line and not line.startswith(_LISTPIDS_HEAD)]
    return bool(told) and all(_NO_STEPS.match(line) for line in told)


def parse_listpids(text: str) -> dict[int, frozenset[int]]:
    """Parse ``scontrol listpids``: a head line, then PID JOBID STEPID LOCALID GLOBALID; -1 means not known."""
    found: dict[int, set[int]] = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) >= 3 and words[0].isdigit() and words[1].isdigit():
            found.setdefault(int(words[1]), set()).add(int(words[0]))
    return {job: frozenset(pids) for job, pids in found.items()}


def _owner_of_slurmd(slurmd: psutil.Process) -> int:
    uid = owner_of(slurmd.pid)
    if uid is None:
        raise Unavailable("slurmd is gone")
    return uid


def _stepd(pid: int, uids: frozenset[int], parents: Collection[int] | None = None) -> Stepd | None:
    """The step of a slurmstepd that one of these users owns and one of these parents started; None: it is none, or is gone.

    The title is read last: any process may have such a title, of any length."""
    ticks = start_ticks(pid)
    try:
        if process_files.executable(pid) not in _STEPD_NAMES or owner_of(pid) not in uids:
            return None
        if parents is not None and psutil.Process(pid).ppid() not in parents:
            return None
        title = " ".join(process_files.words(Path(f"/proc/{pid}")))
    except (OSError, psutil.Error):
        return None
    match = _TITLE.match(title)
    if match is None or ticks is None or start_ticks(pid) != ticks:
        return None
    return Stepd(pid, ticks, int(match["job"]), match["step"])


def _trace(pid: int, others: frozenset[int], node: str) -> str | None:
    """Short text on the job that this process shows; None: no job, or the process is gone."""
    ours = frozenset({0, os.geteuid()})
    try:
        if process_files.executable(pid) in _STEPD_NAMES:
            stat = process_files.stat(pid)
            if (stat is not None and stat.parent in others) or owner_of(
                pid
            ) not in ours:  # a user may give any program this name
                return None
            if process_files.words(Path(f"/proc/{pid}"))[1:] != _KEEPS_THE_SCOPE:
                step = _stepd(pid, ours)
                return f"slurmstepd {pid}" + (f" of job {step.job_id}" if step else "")
        cgroups = process_files.text(pid, "cgroup")
    except OSError:
        return None
    jobs = sorted({each.job.job_id for each in named_in(cgroups) if may_be_of(each.path, node)})
    return f"process {pid} of job {jobs[0]}" if jobs else None


def may_be_of(cgroup: str, node: str) -> bool:
    """Whether the cgroup may be this node's: its path names no other node of a simulated cluster (``n2_slurmstepd.scope``)."""
    named_node = _SCOPE.search(cgroup)
    return named_node is None or named_node["node"] == node


def _is_epilog(process: psutil.Process, uid: int, job_id: int) -> bool:
    try:
        if owner_of(process.pid) != uid or process.status() == psutil.STATUS_ZOMBIE:
            return False
        said = process_files.environ(Path(f"/proc/{process.pid}"))
    except (psutil.Error, OSError):
        return False
    return said.get("SLURM_SCRIPT_CONTEXT") == "epilog_slurmd" and said.get("SLURM_JOB_ID") == str(job_id)


def live_tasks(step: Stepd) -> int:
    """Number of processes that the step still has. Raises Unavailable."""
    return len(task_pids(step))


def task_pids(step: Stepd) -> frozenset[int]:
    """Processes that the step still has: its descendants, or those in its cgroup. Zombies are not live. Raises Unavailable."""
    try:
        children = psutil.Process(step.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return frozenset()
    except psutil.Error as error:
        raise Unavailable(f"processes below slurmstepd {step.pid} cannot be listed: {error}") from error
    below = {child.pid for child in children if _lives(child)}
    return frozenset(below | (_step_cgroup_pids(step.pid) - {step.pid}))


def _lives(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
    except psutil.Error:
        return True


def _step_cgroup_pids(pid: int) -> set[int]:
    try:
        lines = process_files.text(pid, "cgroup").split("\n")
    except OSError:
        return set()
    pids: set[int] = set()
    for line in lines:
        controllers, _, path = line.partition(":")[2].partition(":")
        match = _STEP_CGROUP.match(path)
        if match is None:
            continue
        root = Path("/sys/fs/cgroup") / controllers if controllers else Path("/sys/fs/cgroup")
        for folder, _folders, files in os.walk(f"{root}{match['step']}"):
            if "cgroup.procs" in files:
                pids |= _pids_in(Path(folder) / "cgroup.procs")
    return pids


def _pids_in(path: Path) -> set[int]:
    try:
        return {int(word) for word in path.read_text(encoding="ascii").split()}
    except OSError:
        return set()


def send_signal(pid: int, number: signal.Signals, started_ticks: int | None) -> bool:
    """Signal exactly this process through a pidfd; False: it is gone, or another process has its pid by now."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        if started_ticks is not None and start_ticks(pid) != started_ticks:
            return False
        signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)
    return True
