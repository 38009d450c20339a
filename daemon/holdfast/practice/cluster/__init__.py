"""A real Slurm on this machine: its folder, processes, emulated hosts, and Holdfast itself on it."""
