"""Turns: who may run one when, its rounds with the model, input, compaction, usage, and the queue of what waits."""
