"""Looking at threads without changing them: pages, positions, audits, lineage, summaries."""
