"""Child processes that end with the server, however it ends, and their bounded output. Knows no threads."""
