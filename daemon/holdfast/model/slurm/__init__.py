"""Slurm's nodes and jobs as nouns, and host lists."""
