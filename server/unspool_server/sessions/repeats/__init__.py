"""Calls that are made again: which were carried out before, and what they gave."""
