"""Commands on nodes, spares and the policy of checks."""
