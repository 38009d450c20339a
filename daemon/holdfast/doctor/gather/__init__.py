"""Facts from outside: files, Slurm's plug-ins, certificates, metadata services."""
