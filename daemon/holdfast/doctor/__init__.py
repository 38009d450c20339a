"""The doctor: reads Slurm's configuration and the site's, and lists what would prevent or delay recovery, with the fix for each."""

from holdfast.doctor.advice import Advice, AdviceLevel, exit_code
from holdfast.doctor.diagnose import diagnose
from holdfast.doctor.edge import DoctorSite, gather, run, site_of
from holdfast.doctor.facts import DoctorFacts, SlurmFacts

__all__ = [
    "Advice",
    "AdviceLevel",
    "DoctorFacts",
    "DoctorSite",
    "SlurmFacts",
    "diagnose",
    "exit_code",
    "gather",
    "run",
    "site_of",
]
