"""Nodes in Slurm: drains that are not Holdfast's, maintenance, returns to service, nodes that stay DOWN. Pure."""
