"""What is known of a job: its consent, output, checkpoints, and how its runs ended."""
