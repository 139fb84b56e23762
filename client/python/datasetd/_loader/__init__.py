"""DataLoader."""
