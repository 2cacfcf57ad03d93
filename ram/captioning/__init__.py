"""What an image shows, said in words."""
