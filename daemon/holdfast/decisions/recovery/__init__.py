"""Recovery of jobs: which jobs a fault affects, requeue, restart budget, node range, exclusions, holds, checkpoints. Pure."""
