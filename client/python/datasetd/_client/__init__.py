"""Client, and loads."""
