"""Python's data as a dataset."""
