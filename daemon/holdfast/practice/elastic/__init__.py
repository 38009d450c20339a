"""An elastic job on a practice cluster: what it wrote down, whether that is right, and the demo. torch runs in the job alone."""
