"""Finding past conversations again: how they are searched, and what is shown of them."""
