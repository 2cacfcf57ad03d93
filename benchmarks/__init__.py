"""Speed, side by side with the plain ways of doing the same: commands that print tables."""
