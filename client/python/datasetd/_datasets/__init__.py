"""Datasets that a daemon holds, and their subsets and parts."""
