"""Recovery of jobs: affected jobs, requeue, restart budget, node range, exclusions, holds, checkpoints. Pure."""
