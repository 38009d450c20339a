"""What every twin of the Scheduler port must do, tested against a real Slurm. A twin's test module subclasses it and
gives ``open``; ``test_commands_contract.py`` does so for the commands twin."""

from __future__ import annotations

import os
import pwd
import re
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast.decisions.common.node_drains import is_marked
from holdfast.model.background import Topology
from holdfast.model.book import NodeMark
from holdfast.model.errors import NotFound, Rejected, Unavailable
from holdfast.model.slurm.cluster import Job, Partition
from holdfast.ports import Scheduler
from holdfast.practice import Injector, Practice
from support.practice import eventually

OBEDIENT = "trap 'exit 0' TERM\nsrun sleep 300"
STUBBORN = "trap '' TERM\nsleep 2 & wait\nsleep 2"
OWNER_NAME = "bin"
"""A user that exists on every system. Not ``nobody``: Slurm 26.05 makes no reservation for that one."""
OWNER = pwd.getpwnam(OWNER_NAME).pw_uid
DECISIVE = re.compile(
    r"\b(?:JobId|JobName|UserId|Account|QOS|Requeue|Restarts|BatchFlag|JobState|Reason|ExitCode|SubmitTime|EligibleTime|"
    r"StartTime|EndTime|Partition|NodeList|NumNodes|OverSubscribe|Exclusive|Nodes|CPU_IDs|Mem|GRES)=\S*"
)
"""Every field on which a record is trusted, in less than the 1024 characters that Slurm gives a name."""
ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root for jobs of other users")


class SchedulerContract:
    """Every method of the port."""

    def open(self, env: Mapping[str, str], deadline_s: float = 4.0) -> Scheduler:
        """The twin under test, for the cluster that these variables name."""
        raise NotImplementedError

    @pytest.fixture
    def slurm(self, practice: Practice) -> Scheduler:
        return self.open(practice.command_env())

    def running(self, slurm: Scheduler, practice: Practice, *args: str, script: str = OBEDIENT) -> Job:
        job_id = practice.sbatch(script, *args, uid=OWNER if os.geteuid() == 0 else None)
        eventually(lambda: slurm.job(job_id).state == "RUNNING")
        return slurm.job(job_id)

    def until_pending(self, slurm: Scheduler, job_id: int) -> Job:
        eventually(lambda: slurm.job(job_id).state == "PENDING")
        return slurm.job(job_id)

    def released(self, slurm: Scheduler, job_id: int, reservation: str | None = None) -> None:
        def accepted() -> bool:
            try:
                slurm.release(job_id, reservation=reservation)
            except NotFound:
                raise
            except Rejected:
                return False
            return True

        eventually(accepted)

    # Reading

    def test_version_and_config(self, slurm: Scheduler, practice: Practice) -> None:
        assert slurm.version().split(".")[0].isdigit()
        config = slurm.config()
        assert config["ClusterName"] == practice.spec.name
        assert config["JobRequeue"] == "1"
        assert config["SlurmctldPort"] == str(practice.spec.slurmctld_port)

    def test_view_of_an_idle_cluster(self, slurm: Scheduler, practice: Practice) -> None:
        view = slurm.view()
        assert view.cluster == practice.spec.name
        assert tuple(view.nodes) == practice.nodes
        assert view.reservations == {}
        node = view.nodes["n2"]
        assert (node.base_state, node.flags, node.reason) == ("IDLE", frozenset(), "")
        assert (node.address, node.port) == (practice.spec.address("n2"), practice.spec.slurmd_port("n2"))
        assert (node.gpu_count, node.partitions) == (8, ("train",))
        assert node.boot_time is not None
        assert node.slurmd_start_time is not None
        assert node == slurm.node("n2")

    def test_partitions_and_who_gives_way(self, slurm: Scheduler, practice: Practice) -> None:
        (train,) = slurm.partitions()
        assert train == Partition("train", "OFF", 10, 0, practice.nodes)

    def test_no_topology_where_none_is_configured(self, slurm: Scheduler) -> None:
        assert slurm.topology() == Topology()

    def test_job_with_the_gpus_that_it_holds(self, slurm: Scheduler, practice: Practice) -> None:
        first = self.running(slurm, practice, "-N1", "-w", "n1", "--gres=gpu:2")
        second = self.running(
            slurm, practice, "-N2", "-w", "n1,n2", "--gres=gpu:3", "--job-name=it is", "--comment=a b=c"
        )
        assert first.gpu_indices == {"n1": frozenset({0, 1})}
        assert set(second.nodes) == {"n1", "n2"}
        assert {node: len(held) for node, held in second.gpu_indices.items()} == {"n1": 3, "n2": 3}
        assert not second.gpu_indices["n1"] & first.gpu_indices["n1"]
        assert (second.name, second.comment) == ("it is", "a b=c")
        assert not first.exclusive
        assert (second.state, second.restarts, second.requeueable) == ("RUNNING", 0, True)
        assert second.required_nodes == ("n1", "n2")
        assert abs(second.key.submit_time.timestamp() - time.time()) < 30
        view = slurm.view()
        assert [job.key.job_id for job in view.jobs_on("n1")] == [first.key.job_id, second.key.job_id]
        assert [job.key.job_id for job in view.jobs_on("n2")] == [second.key.job_id]
        assert view.nodes["n1"].base_state == "MIXED"

    @ROOT
    def test_whose_job_it_is(self, slurm: Scheduler, practice: Practice) -> None:
        job = self.running(slurm, practice, "-N1")
        assert (job.uid, job.user) == (OWNER, OWNER_NAME)

    def test_a_name_cannot_forge_another_job(self, slurm: Scheduler, practice: Practice) -> None:
        victim = self.running(slurm, practice, "-N1", "-w", "n1")
        record = practice.command("scontrol", "show", "job", "-d", "-o", str(victim.key.job_id)).strip()
        forged = " ".join(DECISIVE.findall(record.partition(" Command=")[0].replace("n1", "n5")))
        forger = practice.sbatch(
            "sleep 60", "-N1", "-w", "n2", f"--job-name=x\n{forged}\n", f"--comment=y\n{forged}\nz"
        )
        eventually(lambda: slurm.job(forger).state == "RUNNING")
        view = slurm.view()
        assert view.jobs[victim.key.job_id].nodes == ("n1",)
        assert view.jobs[forger].nodes == ("n2",)
        assert view.jobs_on("n5") == ()

    def test_array_and_heterogeneous_jobs(self, slurm: Scheduler, practice: Practice) -> None:
        array = practice.sbatch("sleep 60", "--array=3-4", "-N1")
        eventually(lambda: len([job for job in slurm.view().jobs.values() if job.state == "RUNNING"]) == 2)
        elements = [job for job in slurm.view().jobs.values() if job.state == "RUNNING"]
        assert sorted(job.array_task_id or 0 for job in elements) == [3, 4]
        assert array in {job.key.job_id for job in elements}
        leader = practice.sbatch("#!/bin/sh\n#SBATCH -N1\n#SBATCH hetjob\n#SBATCH -N1\nsleep 60\n")
        eventually(lambda: slurm.job(leader).state == "RUNNING")
        parts = [job for job in slurm.view().jobs.values() if job.het_leader == leader]
        assert [job.key.job_id for job in parts] == [leader, leader + 1]

    def test_a_heterogeneous_job_goes_by_its_leader(self, slurm: Scheduler, practice: Practice) -> None:
        leader = practice.sbatch("#!/bin/sh\n#SBATCH -N1\n#SBATCH hetjob\n#SBATCH -N1\nexec sleep 60\n")

        def both(state: str, restarts: int) -> bool:
            parts = [slurm.job(leader), slurm.job(leader + 1)]
            return [(part.state, part.restarts) for part in parts] == [(state, restarts)] * 2

        eventually(lambda: both("RUNNING", 0))
        with pytest.raises(Rejected):
            slurm.requeue(leader + 1)
        slurm.requeue(leader)
        eventually(lambda: both("PENDING", 1))
        slurm.set_excluded_nodes(leader, ("n4",))
        slurm.set_excluded_nodes(leader + 1, ("n4", "n5"))
        slurm.set_excluded_nodes(leader, ("n3",))
        assert [slurm.job(leader).excluded_nodes, slurm.job(leader + 1).excluded_nodes] == [("n3",), ("n4", "n5")]
        slurm.release(leader)
        eventually(lambda: both("RUNNING", 1))

    def test_a_step_for_one_element_of_an_array_leaves_the_others_alone(
        self, slurm: Scheduler, practice: Practice
    ) -> None:
        """The last element to start bears the id of the whole array, and Slurm takes that id for all of them."""
        array = practice.sbatch(OBEDIENT, "--array=0-2", "-N1")
        eventually(lambda: len(self.elements(slurm, array)) == 3)
        base = slurm.job(array)
        others = [job for job in self.elements(slurm, array) if job.key.job_id != array]
        assert base.array_task_id is not None
        slurm.tell_owner(array, "you alone")
        slurm.requeue(array)
        eventually(lambda: slurm.job(array).state == "PENDING" and slurm.job(array).restarts == 1)
        slurm.set_excluded_nodes(array, ("n5",))
        slurm.hold(array, "held alone")
        assert slurm.job(array).reason.startswith("JobHeld")
        assert slurm.job(array).excluded_nodes == ("n5",)
        for other in others:
            now = slurm.job(other.key.job_id)
            assert (now.state, now.restarts, now.key) == ("RUNNING", 0, other.key)
            assert (now.excluded_nodes, now.admin_comment) == ((), "")

    def test_an_arrays_throttle_and_who_waits_in_it(self, slurm: Scheduler, practice: Practice) -> None:
        array = practice.sbatch(OBEDIENT, "--array=2-5%1", "-N1", "--exclusive", "--comment=holdfast elastic=2:6 of=1")
        eventually(lambda: len(self.elements(slurm, array)) == 1)
        first, waiting = self.elements(slurm, array)[0], slurm.job(array)
        assert (first.array_job_id, first.array_task_id, first.array_tasks_waiting) == (array, 2, ())
        assert (waiting.array_job_id, waiting.array_task_id, waiting.array_tasks_waiting) == (array, None, (3, 4, 5))
        assert (first.array_throttle, waiting.array_throttle) == (1, 1)
        slurm.set_array_throttle(array, 2)
        eventually(lambda: len(self.elements(slurm, array)) == 2)
        assert slurm.job(array).array_throttle == 2
        with pytest.raises(Rejected):
            slurm.set_array_throttle(array, 0)
        with pytest.raises(NotFound):
            slurm.set_array_throttle(99999, 2)
        slurm.set_array_throttle(array, None)
        eventually(lambda: len(self.elements(slurm, array)) == 4)
        assert slurm.job(array).array_throttle is None

    def test_elements_of_an_array_are_delayed_and_released(self, slurm: Scheduler, practice: Practice) -> None:
        """A requeued element is shown, and released, separately; so are all that have not started, by their one record."""
        array = practice.sbatch(OBEDIENT, "--array=2-5%1", "-N1", "--exclusive")
        eventually(lambda: len(self.elements(slurm, array)) == 1)
        slurm.delay_start(array, 3600)
        slurm.set_array_throttle(array, None)
        first = self.elements(slurm, array)[0].key.job_id
        with pytest.raises(Rejected):
            slurm.delay_start(first, 60)
        slurm.requeue(first)
        requeued = self.until_pending(slurm, first)
        eventually(lambda: slurm.job(first).reason == "BeginTime")
        view = slurm.view()
        assert (view.jobs[first].array_task_id, view.jobs[first].restarts, requeued.array_job_id) == (2, 1, array)
        waiting = view.jobs[array]
        assert waiting.array_tasks_waiting == (3, 4, 5)
        assert waiting.eligible_time is not None
        assert waiting.eligible_time.timestamp() - time.time() > 3500
        assert all(node.base_state == "IDLE" for node in view.nodes.values())
        slurm.set_excluded_nodes(array, ("n5",))
        assert (slurm.job(array).excluded_nodes, slurm.job(first).excluded_nodes) == (("n5",), ())
        slurm.set_excluded_nodes(array, ())
        left = view.nodes[self.last_node(slurm, practice)].last_busy_time
        assert left is not None
        assert abs(left.timestamp() - time.time()) < 20
        self.released(slurm, first)
        eventually(lambda: [job.key.job_id for job in self.elements(slurm, array)] == [first])
        self.released(slurm, array)
        eventually(lambda: len(self.elements(slurm, array)) == 4)

    def last_node(self, slurm: Scheduler, practice: Practice) -> str:
        """The node that a job left last."""
        nodes = slurm.view().nodes
        return max(practice.nodes, key=lambda name: getattr(nodes[name].last_busy_time, "timestamp", float)())

    def elements(self, slurm: Scheduler, array: int) -> list[Job]:
        """The running elements of the only array there is."""
        jobs = [job for job in slurm.view().jobs.values() if job.array_task_id is not None and job.key.job_id >= array]
        return [job for job in jobs if job.state == "RUNNING"]

    def test_the_jobs_of_one_node_are_those_of_the_view(self, slurm: Scheduler, practice: Practice) -> None:
        """Also with forged records, elements of an array, a heterogeneous job's components, and a job that ends there."""
        forger = "--job-name=x\nJobId=77 JobState=RUNNING NodeList=n1\nRUNNING"
        first = self.running(slurm, practice, "-N2", "-w", "n1,n2", "--gres=gpu:1", forger)
        array = practice.sbatch(OBEDIENT, "--array=0-1", "-N1", "-w", "n2", "--gres=gpu:1")
        parts = "#!/bin/sh\n#SBATCH -N1 -w n3\n#SBATCH hetjob\n#SBATCH -N1 -w n4\nexec sleep 60\n"
        leader = practice.sbatch(parts)
        practice.sbatch("exit 0", "-N1", "-w", "n1")
        practice.sbatch("sleep 60", "-N1", "-w", "n5", "--begin=now+1hour")
        eventually(lambda: len(self.elements(slurm, array)) == 2)
        eventually(lambda: slurm.job(leader).state == "RUNNING")
        eventually(lambda: [j.key.job_id for j in slurm.view().jobs_on("n1")] == [first.key.job_id])
        view = slurm.view()
        assert [len(view.jobs_on(name)) for name in practice.nodes] == [1, 3, 1, 1, 0]
        for name in practice.nodes:
            assert slurm.jobs_on(name) == view.jobs_on(name), name
        assert [job.key.job_id for job in slurm.components(leader)] == [leader, leader + 1]
        assert slurm.components(leader) == tuple(view.jobs[number] for number in (leader, leader + 1))
        assert slurm.components(leader + 1) == (view.jobs[leader + 1],)
        assert slurm.components(first.key.job_id) == (first,)

    def test_a_job_that_is_completing_holds_its_node(self, slurm: Scheduler, practice: Practice) -> None:
        job_id = self.running(slurm, practice, "-N1", "-w", "n1", script=STUBBORN).key.job_id
        slurm.requeue(job_id)
        assert [(job.key.job_id, job.state) for job in slurm.jobs_on("n1")] == [(job_id, "COMPLETING")]
        self.until_pending(slurm, job_id)
        assert slurm.jobs_on("n1") == ()

    def test_all_nodes_and_all_reservations_are_those_of_the_view(self, slurm: Scheduler, practice: Practice) -> None:
        slurm.create_reservation("holdfast-spares", ("n4", "n5"), users=("root",), duration_s=None)
        slurm.drain("n2", "holdfast[x]: bad")
        eventually(
            lambda: {"RESERVED"} <= slurm.node("n4").flags & slurm.node("n5").flags
        )  # a moment after the reservation
        view = slurm.view()
        assert tuple(slurm.all_nodes()) == practice.nodes
        assert slurm.all_nodes() == view.nodes
        assert slurm.all_reservations() == view.reservations

    def test_what_is_not_there(self, slurm: Scheduler) -> None:
        with pytest.raises(NotFound):
            slurm.jobs_on("n99")
        with pytest.raises(NotFound):
            slurm.components(99999)
        with pytest.raises(NotFound):
            slurm.node("n99")
        with pytest.raises(NotFound):  # Slurm takes lists: a verb would be for all of them
            slurm.node("n[1-2]")
        with pytest.raises(NotFound):
            slurm.job(99999)
        with pytest.raises(NotFound):
            slurm.reservation("none")
        with pytest.raises(NotFound):
            slurm.drain("n99", "x")
        with pytest.raises(NotFound):
            slurm.requeue(99999)
        with pytest.raises(NotFound):
            slurm.release(99999)
        with pytest.raises(NotFound):
            slurm.set_reservation_nodes("none", ("n1",))

    def test_many_at_a_time(self, slurm: Scheduler, practice: Practice) -> None:
        job = self.running(slurm, practice, "-N2")
        with ThreadPoolExecutor(8) as pool:
            views = [pool.submit(slurm.view) for _ in range(16)]
            drains = [pool.submit(slurm.drain, node, f"test: {node}") for node in practice.nodes]
        assert all(view.result().jobs[job.key.job_id].nodes == job.nodes for view in views)
        assert all(drain.result() is None for drain in drains)
        assert {name: node.reason for name, node in slurm.view().nodes.items()} == {
            name: f"test: {name}" for name in practice.nodes
        }

    # Nodes

    def test_drain_and_undrain(self, slurm: Scheduler, practice: Practice) -> None:
        job = self.running(slurm, practice, "-N1", "-w", "n3")
        reason = "holdfast[01J]: gpu.xid 79 GPU-1 a='b' \"c\" [x] fell off\nthe bus"
        slurm.drain("n3", reason)
        node = slurm.node("n3")
        assert node.draining
        assert not node.down
        assert node.reason == reason.replace("\n", " ")
        assert node.reason_user == "root" if os.geteuid() == 0 else node.reason_user
        assert node.reason_time is not None
        assert abs(node.reason_time.timestamp() - time.time()) < 30
        assert slurm.job(job.key.job_id).state == "RUNNING"
        slurm.undrain("n3")
        assert not slurm.node("n3").draining
        slurm.undrain("n3")

    def test_the_instance_is_recorded_where_the_release_has_a_field_for_it(
        self, slurm: Scheduler, practice: Practice
    ) -> None:
        slurm.set_instance_id("n3", "i-0123456789abcdef0")
        shown = practice.command("scontrol", "show", "node", "n3")
        release = tuple(map(int, slurm.version().split(".")[:2]))
        assert ("InstanceId=i-0123456789abcdef0" in shown) == (release >= (24, 11)), release

    def test_undrain_leaves_an_operators_reboot_to_come(self, slurm: Scheduler, practice: Practice) -> None:
        """RESUME forgets it, and the operator waits for a reboot that never comes."""
        self.running(slurm, practice, "-N1", "-w", "n3")
        practice.command("scontrol", "reboot", "n3")
        slurm.drain("n3", "holdfast[x]: bad")
        try:
            slurm.undrain("n3")
            node = slurm.node("n3")
            assert (node.draining, "REBOOT_REQUESTED" in node.flags) == (False, True)
        finally:
            practice.command("scontrol", "cancel_reboot", "n3")

    def test_a_node_that_an_operator_fails_takes_no_job(self, slurm: Scheduler, practice: Practice) -> None:
        practice.command("scontrol", "update", "nodename=n2", "state=FAIL", "reason=psu smells - bob")
        try:
            node = slurm.node("n2")
            assert (node.draining, node.down, node.out_of_service, node.reason) == (
                True,
                False,
                True,
                "psu smells - bob",
            )
            slurm.undrain("n2")
            assert not slurm.node("n2").out_of_service
        finally:
            slurm.undrain("n2")

    def test_a_comment_on_a_node_is_no_part_of_its_reason(self, slurm: Scheduler, practice: Practice) -> None:
        comment = "was: Reason=bad fan [bob@1700000000] State=DOWN ticket 12 [bob@ops]"
        before = slurm.node("n2")  # 24.11 leaves the reason of a FAIL behind
        practice.command("scontrol", "update", "nodename=n2", f"comment={comment}")
        practice.command("scontrol", "update", "nodename=n2", f"extra={comment}")
        try:
            serving = slurm.node("n2")
            shown = (before.reason, before.reason_user, False)
            assert (serving.reason, serving.reason_user, serving.out_of_service) == shown
            slurm.drain("n2", "holdfast[i9]: gpu.xid 79 GPU-1")
            seen = slurm.node("n2")
            assert (seen.reason, seen.reason_user) == ("holdfast[i9]: gpu.xid 79 GPU-1", "root")
            assert slurm.view().nodes["n2"].reason == seen.reason
            slurm.undrain("n2")
        finally:
            practice.command("scontrol", "update", "nodename=n2", "comment=")
            practice.command("scontrol", "update", "nodename=n2", "extra=")

    def test_set_down_requeues_and_keeps_the_drain(self, slurm: Scheduler, practice: Practice) -> None:
        job = self.running(slurm, practice, "-N2", "-w", "n1,n2")
        slurm.set_down("n1", "holdfast[x]: dead")
        node = slurm.node("n1")
        assert node.down
        assert node.draining
        assert node.reason == "holdfast[x]: dead"
        assert self.until_pending(slurm, job.key.job_id).restarts == 1
        slurm.undrain("n1")
        eventually(lambda: not slurm.node("n1").out_of_service)

    def test_down_without_drain(self, slurm: Scheduler) -> None:
        slurm.set_down("n1", "holdfast[x]: dead", drain=False)
        node = slurm.node("n1")
        assert (node.down, node.draining) == (True, False)
        slurm.undrain("n1")

    def test_no_power_is_saved_where_none_is_to_be(self, slurm: Scheduler) -> None:
        with pytest.raises(Rejected):
            slurm.power_down("n1", "holdfast[x]: replace it")
        with pytest.raises(Rejected):
            slurm.power_up("n1")
        with pytest.raises(NotFound):
            slurm.power_down("n99", "holdfast[x]: replace it")

    @pytest.mark.parametrize("reason", [None, "holdfast[x]: reboot it"])
    def test_reboot_of_a_drained_node(self, slurm: Scheduler, practice: Practice, reason: str | None) -> None:
        slurm.drain("n4", "holdfast[x]: reboot it")
        drained = slurm.node("n4")
        mark = NodeMark("n4", "x", drained.reason, drained.reason_user, drained.reason_time)
        boot_id = practice.machine("n4").host.boot_id
        time.sleep(1.1)  # Slurm's times have no fraction
        slurm.reboot("n4", reason)
        until, shown = time.monotonic() + 2, []
        while time.monotonic() < until:
            shown.append(slurm.node("n4"))
        others = [n.given_reason for n in shown if not is_marked(mark, n)]
        assert others == [], "every reading shows the drain of the mark"
        eventually(lambda: practice.machine("n4").host.boot_id != boot_id, within_s=15)
        eventually(lambda: not slurm.node("n4").flags & {"REBOOT_REQUESTED", "REBOOT_ISSUED"}, within_s=15)
        eventually(lambda: slurm.node("n4").responding and not slurm.node("n4").down, within_s=15)
        node = slurm.node("n4")
        assert node.draining
        assert node.reason.startswith("holdfast[x]")

    # Jobs

    def test_requeue_and_release(self, slurm: Scheduler, practice: Practice) -> None:
        job_id = self.running(slurm, practice, "-N2").key.job_id
        slurm.requeue(job_id)
        with pytest.raises(Rejected):
            slurm.requeue(job_id)
        pending = self.until_pending(slurm, job_id)
        assert pending.restarts == 1
        assert pending.eligible_time is not None
        assert pending.eligible_time.timestamp() - time.time() > 60
        began = time.monotonic()
        self.released(slurm, job_id)
        eventually(lambda: slurm.job(job_id).state == "RUNNING")
        assert time.monotonic() - began < 5
        time.sleep(0.3)
        assert slurm.job(job_id).state == "RUNNING"

    def test_release_on_the_same_nodes_at_once(self, slurm: Scheduler, practice: Practice) -> None:
        # No srun: a step that is being launched while its job is killed lives on until KillWait (30 s).
        job_id = self.running(slurm, practice, "-N5", "--exclusive", script="exec sleep 300").key.job_id
        for restart in range(1, 4):
            slurm.requeue(job_id)
            self.released(slurm, job_id)
            eventually(lambda: slurm.job(job_id).state != "PENDING")
            time.sleep(0.3)
            assert (slurm.job(job_id).state, slurm.job(job_id).restarts) == ("RUNNING", restart)

    def test_release_waits_for_completing(self, slurm: Scheduler, practice: Practice) -> None:
        job_id = self.running(slurm, practice, "-N1", script=STUBBORN).key.job_id
        slurm.requeue(job_id)
        assert slurm.job(job_id).state == "COMPLETING"
        with pytest.raises(Rejected, match="COMPLETING"):
            slurm.release(job_id)
        self.released(slurm, job_id)
        eventually(lambda: slurm.job(job_id).state == "RUNNING")

    def test_requeue_of_a_failed_job(self, slurm: Scheduler, practice: Practice) -> None:
        job_id = practice.sbatch('[ "$SLURM_RESTART_COUNT" ] && exec sleep 60\nexit 3')
        eventually(lambda: slurm.job(job_id).state == "FAILED")
        assert slurm.job(job_id).exit_code == "3:0"
        slurm.requeue(job_id)
        self.released(slurm, job_id)
        eventually(lambda: slurm.job(job_id).state == "RUNNING")
        assert slurm.job(job_id).restarts == 1

    def test_what_cannot_be_requeued(self, slurm: Scheduler, practice: Practice) -> None:
        job = self.running(slurm, practice, "-N1", "--no-requeue")
        assert not job.requeueable
        with pytest.raises(Rejected):
            slurm.requeue(job.key.job_id)

    def test_hold_of_a_running_and_a_pending_job(self, slurm: Scheduler, practice: Practice) -> None:
        job_id = self.running(slurm, practice, "-N1").key.job_id
        slurm.hold(job_id, "three failures without a newer checkpoint")
        held = self.until_pending(slurm, job_id)
        assert (held.priority, held.restarts) == (0, 1)
        assert held.admin_comment == "three failures without a newer checkpoint"
        waiting = practice.sbatch("sleep 60", "--begin=now+1hour")
        slurm.hold(waiting, "wait")
        held = slurm.job(waiting)
        assert (held.priority, held.reason, held.admin_comment) == (0, "JobHeldUser", "wait")

    def test_hold_of_a_failed_job(self, slurm: Scheduler, practice: Practice) -> None:
        job_id = practice.sbatch("exit 3")
        eventually(lambda: slurm.job(job_id).state == "FAILED")
        before = slurm.job(job_id)
        slurm.hold(job_id, "three failures without a newer checkpoint")
        held = self.until_pending(slurm, job_id)
        assert (held.held, held.restarts) == (True, before.restarts + 1)
        assert held.continues(before.key)

    def test_hold_of_a_failed_job_that_cannot_be_requeued(self, slurm: Scheduler, practice: Practice) -> None:
        job_id = practice.sbatch("exit 3", "--no-requeue")
        eventually(lambda: slurm.job(job_id).state == "FAILED")
        with pytest.raises(Rejected):
            slurm.hold(job_id, "three failures without a newer checkpoint")
        assert slurm.job(job_id).state == "FAILED"

    def test_excluded_nodes_and_words_to_the_owner(self, slurm: Scheduler, practice: Practice) -> None:
        job_id = practice.sbatch("sleep 60", "--exclude=n1", "--begin=now+1hour")
        assert slurm.job(job_id).excluded_nodes == ("n1",)
        slurm.set_excluded_nodes(job_id, ("n1", "n3"))
        assert slurm.job(job_id).excluded_nodes == ("n1", "n3")
        slurm.set_excluded_nodes(job_id, ())
        assert slurm.job(job_id).excluded_nodes == ()
        slurm.tell_owner(job_id, "it's n3, a=b")
        assert slurm.job(job_id).admin_comment == "it's n3, a=b"
        assert slurm.job(job_id).comment == ""
        slurm.tell_owner(job_id, "")
        assert slurm.job(job_id).admin_comment == ""

    def test_a_requeued_job_starts_on_as_many_nodes_as_it_is_told(self, slurm: Scheduler, practice: Practice) -> None:
        """Slurm itself would take any number within the range, and with tasks per node never start on another one."""
        said = practice.folder / "jobs" / "sizes"
        said.unlink(missing_ok=True)
        script = f"echo $SLURM_NNODES $SLURM_NTASKS >> {said}\nsleep 300"
        job = self.running(slurm, practice, "-N2-4", "--exclusive", "--ntasks-per-node=2", script=script)
        assert job.num_nodes == 4
        for restart, nodes in enumerate((2, 4, 3), 1):
            slurm.requeue(job.key.job_id)
            self.until_pending(slurm, job.key.job_id)
            slurm.set_num_nodes(job.key.job_id, nodes)
            self.released(slurm, job.key.job_id)
            eventually(lambda: slurm.job(job.key.job_id).state == "RUNNING")
            now = slurm.job(job.key.job_id)
            assert (len(now.nodes), now.restarts) == (nodes, restart)
        eventually(lambda: said.read_text().splitlines()[-1] == "3 6")
        with pytest.raises(Rejected):
            slurm.set_num_nodes(job.key.job_id, 2)

    # Reservations

    def test_reservation_life(self, slurm: Scheduler) -> None:
        slurm.create_reservation("holdfast-spares", ("n4", "n5"), users=("root",), duration_s=None)
        slurm.create_reservation("holdfast-spares", ("n5", "n4"), users=("root",), duration_s=None)
        found = slurm.reservation("holdfast-spares")
        assert (found.nodes, found.users) == (("n4", "n5"), ("root",))
        assert slurm.view().reservations == {"holdfast-spares": found}
        with pytest.raises(Rejected):
            slurm.create_reservation("holdfast-spares", ("n3",), users=("root",), duration_s=None)
        slurm.set_reservation_nodes("holdfast-spares", ("n5",))
        assert slurm.reservation("holdfast-spares").nodes == ("n5",)
        slurm.set_reservation_nodes("holdfast-spares", ("n3", "n5"))
        assert slurm.reservation("holdfast-spares").nodes == ("n3", "n5")
        slurm.set_reservation_nodes("holdfast-spares", ())
        with pytest.raises(NotFound):
            slurm.reservation("holdfast-spares")
        slurm.delete_reservation("holdfast-spares")

    def test_spares_take_no_job_and_busy_nodes_join(self, slurm: Scheduler, practice: Practice) -> None:
        job = self.running(slurm, practice, "-N1", "-w", "n4", "--exclusive")
        assert job.exclusive
        slurm.create_reservation("holdfast-spares", ("n4", "n5"), users=("root",), duration_s=None)
        assert slurm.job(job.key.job_id).state == "RUNNING"
        waiting = practice.sbatch("sleep 60", "-N4", "--exclusive", uid=OWNER if os.geteuid() == 0 else None)
        time.sleep(1)
        assert slurm.job(waiting).state == "PENDING"

    @ROOT
    def test_held_nodes_and_the_spare_stay_with_the_job_on_a_full_cluster(
        self, slurm: Scheduler, practice: Practice
    ) -> None:
        slurm.create_reservation("holdfast-spares", ("n5",), users=("root",), duration_s=None)
        job_id = self.running(slurm, practice, "-N3", "--exclusive", "--gres=gpu:8").key.job_id
        Injector(practice).fill_queue(8)
        for other in practice.command("squeue", "-h", "-t", "pending", "-o", "%A").split():
            practice.command("scontrol", "update", f"JobId={other}", "Priority=4294967290")
        first, bad, last = slurm.job(job_id).nodes
        began = time.monotonic()
        slurm.drain(bad, "holdfast[x]: bad")
        slurm.create_reservation(
            "holdfast-x",
            (first, last, "n5"),
            users=(OWNER_NAME,),
            duration_s=300,
            hold_for_job=True,
            over="holdfast-spares",
        )
        slurm.requeue(job_id)
        slurm.set_reservation_nodes("holdfast-spares", ())
        self.released(slurm, job_id, "holdfast-x")
        eventually(lambda: slurm.job(job_id).state == "RUNNING")
        assert time.monotonic() - began < 5
        assert set(slurm.job(job_id).nodes) == {first, last, "n5"}
        slurm.delete_reservation("holdfast-x")
        time.sleep(1)
        after = slurm.job(job_id)
        assert (after.state, after.restarts, after.reservation) == ("RUNNING", 1, "")
        assert slurm.view().reservations == {}

    @ROOT
    def test_a_job_in_a_hold_starts_on_nothing_that_another_reservation_keeps(
        self, slurm: Scheduler, practice: Practice
    ) -> None:
        """A job of the hold's owner that named it started on spares, and on nodes that were reserved for others.

        The spares' reservation is one that an operator made, or an earlier release: it lets none overlap."""
        spares = ("ReservationName=holdfast-spares", "Nodes=n5", "Users=root", "StartTime=now", "Duration=UNLIMITED")
        practice.command("scontrol", "create", "reservation", *spares, "Flags=IGNORE_JOBS")
        slurm.create_reservation("course", ("n4",), users=("root",), duration_s=300)
        hold = {"users": (OWNER_NAME,), "duration_s": 300, "hold_for_job": True, "over": "holdfast-spares"}
        slurm.create_reservation("holdfast-x", ("n1", "n5"), **hold)  # type: ignore[arg-type]
        assert slurm.reservation("holdfast-x").nodes == ("n1", "n5")
        assert "OVERLAP" not in slurm.reservation("holdfast-x").flags
        place = ("-N1", "--exclusive", "--reservation=holdfast-x")
        served = [practice.sbatch("sleep 60", *place, uid=OWNER) for _ in range(3)]
        eventually(lambda: all(slurm.job(one).state == "RUNNING" for one in served), within_s=30)
        assert {n for one in served for n in slurm.job(one).nodes} == {"n1", "n2", "n3"}, "its own, and free ones"
        waiting = practice.sbatch("sleep 60", *place, uid=OWNER)
        time.sleep(1)
        assert slurm.job(waiting).state == "PENDING"
        slurm.set_reservation_nodes("holdfast-spares", ())
        eventually(lambda: slurm.job(waiting).state == "RUNNING", within_s=30)
        assert slurm.job(waiting).nodes == ("n5",), "the spare that was given to the hold"

    @ROOT
    def test_no_hold_is_made_over_what_someone_else_keeps(self, slurm: Scheduler, practice: Practice) -> None:
        practice.command(
            *("scontrol", "create", "reservation", "ReservationName=course", "Nodes=n4", "Users=root"),
            *("StartTime=now", "Duration=10", "Flags=IGNORE_JOBS"),
        )
        with pytest.raises(Rejected):
            slurm.create_reservation(
                "holdfast-x",
                ("n1", "n4"),
                users=(OWNER_NAME,),
                duration_s=300,
                hold_for_job=True,
                over="holdfast-spares",
            )
        assert "OVERLAP" not in slurm.reservation("course").flags

    def test_deleting_a_reservation_lets_waiting_jobs_wait_on(self, slurm: Scheduler, practice: Practice) -> None:
        slurm.create_reservation("holdfast-y", ("n1",), users=(OWNER_NAME, "root"), duration_s=60, hold_for_job=True)
        job_id = practice.sbatch("sleep 60", "--begin=now+1hour")
        slurm.set_job_reservation(job_id, "holdfast-y")
        assert slurm.job(job_id).reservation == "holdfast-y"
        slurm.delete_reservation("holdfast-y")
        job = slurm.job(job_id)
        assert (job.state, job.reservation) == ("PENDING", "")
        assert job.priority > 0

    # Refusals

    def test_slurmctld_away(self, slurm: Scheduler, practice: Practice) -> None:
        slurm.view()
        practice.stop_slurmctld(kill=True)
        hasty = self.open(practice.command_env(), 1.5)
        began = time.monotonic()
        with pytest.raises(Unavailable):
            hasty.view()
        with pytest.raises(Unavailable):
            hasty.drain("n1", "x")
        assert time.monotonic() - began < 20
        practice.start_slurmctld()
        assert not slurm.node("n1").draining
