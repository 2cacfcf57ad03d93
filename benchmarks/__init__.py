"""Benchmarks of speed against plain implementations, and a comparison of training losses between checkouts."""
