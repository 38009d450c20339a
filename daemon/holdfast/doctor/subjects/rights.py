"""Rules about what Slurm lets the actor do and the controller see."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.doctor.advice import Advice, AdviceLevel
from holdfast.doctor.facts import DoctorFacts, SlurmFacts
from holdfast.model.policies.policy import Mode

CONTROLLER_USER = "holdfast-controller"
"""Of the units; it reads Slurm without any right."""


def permission(slurm: SlurmFacts, facts: DoctorFacts) -> Iterator[Advice]:
    owner = slurm.value("SlurmUser").partition("(")[0] or "SlurmUser"
    fix = f"sacctmgr modify user {facts.user} set adminlevel=Admin   # or run the actor as {owner} (docs/install.md)"
    if slurm.may_change is False:
        less = (
            "it is a Slurm operator, who may not"
            if slurm.may_reserve
            else f"it is neither root nor {owner} nor a Slurm administrator"
        )
        yield Advice(
            "slurm.permission",
            AdviceLevel.WARNING if facts.policy.mode is Mode.OBSERVE else AdviceLevel.ERROR,
            f"user {facts.user} may not change nodes in Slurm ({less})",
            "As this user the actor can drain nothing. Run the doctor as the actor's user.",
            fix,
        )
    elif slurm.may_change is None:
        yield Advice(
            "slurm.permission",
            AdviceLevel.WARNING,
            f"it could not be found out whether user {facts.user} may change nodes in Slurm",
            "Without that right the actor can drain nothing and requeue nothing.",
            fix,
        )
    elif slurm.may_reserve is False:
        yield Advice(
            "slurm.permission_reserve",
            AdviceLevel.WARNING,
            f"user {facts.user} may change nodes and may not change reservations in Slurm",
            "The spare pool is a reservation, and so is what keeps a job's nodes for it: recovered jobs wait in the queue.",
            fix,
        )


def private_data(slurm: SlurmFacts, facts: DoctorFacts) -> Iterator[Advice]:
    hidden = ", ".join(sorted({"jobs", "nodes", "reservations"} & set(slurm.options("PrivateData"))))
    if hidden and slurm.may_change is not True:
        yield Advice(
            "slurm.private_data",
            AdviceLevel.ERROR,
            f"PrivateData hides {hidden} from user {facts.user}",
            "The controller sees only part of the cluster: jobs on a bad node would not be recovered.",
            f"sacctmgr modify user {facts.user} set adminlevel=Operator",
        )
    elif hidden and facts.user != CONTROLLER_USER:
        yield Advice(
            "slurm.private_data_controller",
            AdviceLevel.HINT,
            f"PrivateData hides {hidden} from users without rights, and the controller reads Slurm as its own user, without rights",
            "Unless that user is an operator, jobs on a bad node are not seen and not recovered.",
            f"sacctmgr modify user {CONTROLLER_USER} set adminlevel=Operator",
        )


def other_user(slurm: SlurmFacts, facts: DoctorFacts) -> Iterator[Advice]:
    """Rights are those of who runs the doctor: root has all of them, and would hide one that the actor lacks."""
    actor = facts.actor_user
    if slurm.may_change is not True or facts.user == actor or (not actor and facts.user != "root"):
        return
    known = f"the actor runs as {actor}" if actor else "the actor may run as another user"
    yield Advice(
        "slurm.permission_other_user",
        AdviceLevel.HINT,
        f"rights in Slurm and at the provider were tried as {facts.user}, and {known}",
        "A right that the actor lacks is not seen.",
        f"sudo -u {actor or 'holdfast-actor'} holdfast doctor   # docs/doctor.md",
    )


def of_the_controller(slurm: SlurmFacts, facts: DoctorFacts) -> Iterator[Advice]:
    """It listens to the network, so its user is no other's and has no rights."""
    user = facts.controller_user
    strong = {"root", slurm.value("SlurmUser").partition("(")[0], facts.actor_user} - {""}
    if user in strong:
        yield Advice(
            "slurm.controller_rights",
            AdviceLevel.WARNING,
            f"the controller, which listens to the network, runs as {user}",
            "Who takes it over has that user's rights in Slurm and on this machine.",
            "systemctl cat holdfast-controller   # User=holdfast-controller, as shipped; start it by systemctl, not by hand",
        )


RULES = (permission, other_user, private_data, of_the_controller)
