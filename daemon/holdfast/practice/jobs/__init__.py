"""Training jobs for the practice cluster: small, but with real state, real peers and real checkpoints."""
