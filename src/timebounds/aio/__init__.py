"""Floor 3, the task colour: what waits in an event loop under a deadline."""
