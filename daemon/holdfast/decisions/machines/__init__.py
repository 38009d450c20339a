"""Machines behind nodes: which one serves a node, disputes, proof before a step, replacements, orphans. Pure."""
