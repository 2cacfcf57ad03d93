"""Training: jobs, the loop, checkpoints, records, and the comparison of runs."""
