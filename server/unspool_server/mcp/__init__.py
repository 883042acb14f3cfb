"""Tool servers that speak the Model Context Protocol: connections, what they offer, and calls. Knows no threads."""
