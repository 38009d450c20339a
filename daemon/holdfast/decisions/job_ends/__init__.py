"""Ends of runs: exit codes, cause of death, attribution to a node, series of one program, dependent jobs. Pure."""
