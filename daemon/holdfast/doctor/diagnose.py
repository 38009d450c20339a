"""Facts in, advice out. No clock, no I/O."""

from __future__ import annotations

from holdfast.doctor.advice import Advice, by_urgency
from holdfast.doctor.facts import DoctorFacts
from holdfast.doctor.subjects import (
    agents,
    aside,
    certificates,
    controller,
    elastic,
    gpus,
    plugins,
    pool,
    provider,
    quorum,
    requeue,
    rights,
    service,
    site,
    tokens,
)

SITE_RULES = (
    *site.RULES,
    *provider.RULES,
    *quorum.RULES,
    *certificates.RULES,
    *aside.RULES,
    *controller.RULES,
    *tokens.RULES,
)
SLURM_RULES = (
    *rights.RULES,
    *service.RULES,
    *requeue.RULES,
    *gpus.RULES,
    *plugins.RULES,
    *pool.RULES,
    *agents.RULES,
    *elastic.RULES,
)
"""Rules that need Slurm's answer."""


def diagnose(facts: DoctorFacts) -> list[Advice]:
    """Everything that would prevent or delay recovery, errors first. What could not be read is never reported as a fault itself."""
    found = [advice for rule in SITE_RULES for advice in rule(facts)]
    if facts.slurm is not None:
        found += [advice for rule in SLURM_RULES for advice in rule(facts.slurm, facts)]
    return by_urgency(found)
