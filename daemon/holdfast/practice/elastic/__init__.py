"""An elastic job on a practice cluster: its records, their verification, and the demo. Only the job imports torch."""
