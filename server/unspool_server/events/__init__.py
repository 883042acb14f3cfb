"""Per-thread event lists, cursors, subscriptions, fan-out and replay. Only this room knows connections and threads."""
