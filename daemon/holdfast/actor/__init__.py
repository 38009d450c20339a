"""The actor: the only process with rights in Slurm and at the provider; it has no listener."""
