"""New pasts for threads: forks, rollbacks, restores, and what deleting does to those that depend on a thread."""
