"""What the loop reads: Slurm, agents, background data."""
