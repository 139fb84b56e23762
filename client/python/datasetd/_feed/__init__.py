"""Feeds: open sequences of batches, at a position."""
