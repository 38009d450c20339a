"""The emulated parts of a node, one module per domain: files written when a machine is created, and commands that answer."""
