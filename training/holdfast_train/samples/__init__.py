"""Which samples a step uses, and how they are drawn."""
