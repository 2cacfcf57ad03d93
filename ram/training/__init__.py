"""The plumbing: one loop, its checkpoints and its records."""
