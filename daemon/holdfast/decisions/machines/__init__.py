"""Machines behind nodes: the one that serves a node, disputes, proof before a step, replacements, orphans. Pure."""
