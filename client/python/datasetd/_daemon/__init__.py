"""Private daemons."""
