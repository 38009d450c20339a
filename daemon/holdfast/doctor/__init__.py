"""The doctor: reads Slurm's configuration and the site's, and says what would hurt recovery and the line that fixes it."""

from holdfast.doctor.advice import Advice, Level, exit_code
from holdfast.doctor.diagnose import diagnose
from holdfast.doctor.edge import Site, gather, run, site_of
from holdfast.doctor.facts import DoctorFacts, SlurmFacts

__all__ = ["Advice", "DoctorFacts", "Level", "Site", "SlurmFacts", "diagnose", "exit_code", "gather", "run", "site_of"]
