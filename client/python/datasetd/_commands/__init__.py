"""What the command line runs."""
