"""Metrics of generated text and of attention maps."""
