"""Orders of samples that this process computes."""
