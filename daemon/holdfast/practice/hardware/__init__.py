"""The emulated parts of a node, one file a domain: what is written when a machine is made, and what answers for it."""
