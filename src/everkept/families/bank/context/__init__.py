"""What an assistant reads: files, all of them at once, a digest of them."""
