"""Ends of runs: exit codes, why a run died, whether a node is to blame, series of one program, dependent jobs. Pure."""
