"""Slurm behind one port, with twins that obey one contract suite."""
