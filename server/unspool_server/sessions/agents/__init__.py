"""Agents that threads start: where they stand in a tree, what they are told and what they answer."""
