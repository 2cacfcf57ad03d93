"""Networks that read sequences, element by element or all at once."""
