"""Image captioning: image encoders and the captioner."""
