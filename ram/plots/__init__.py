"""Figures of predictions, attention weights and curves, as RGB arrays."""
