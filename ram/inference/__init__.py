"""Trained models, as ram.load returns them: one class per kind of model."""
