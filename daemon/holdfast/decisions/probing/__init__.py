"""Pair probes and suspects: nodes of a job that failed or hung without a finding. Pure."""
