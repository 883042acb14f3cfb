"""What operators see of a running daemon: figures, log lines, traces. Importing it imports none of their libraries."""
