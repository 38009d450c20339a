"""Whether users of this machine reach EC2's instance metadata and with it the machine's role, on the head node often the actor's."""

from __future__ import annotations

import os

from holdfast.doctor.facts import MetadataFacts
from holdfast_checks.probes.imds import base_url
from holdfast_checks.probes.imds_users import addresses, try_as_user
from holdfast_checks.registry import NotApplicable, NotGathered
from holdfast_checks.settings import Settings


def metadata(settings: Settings | None = None) -> MetadataFacts | None:
    """None: this is no machine of EC2, or it could not be found out although root asked."""
    try:
        bases = addresses(base_url(settings or Settings()))
    except NotApplicable:
        return None
    if os.geteuid() != 0:
        return MetadataFacts(tried=False)
    try:
        return MetadataFacts(True, try_as_user(bases).addresses)
    except NotGathered:
        return None
