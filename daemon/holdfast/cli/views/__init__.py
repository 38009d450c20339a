"""Commands that show incidents, events and the cluster."""
