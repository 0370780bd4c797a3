"""Floor 2: pure decisions. Nothing here blocks, reads a clock, a socket, a thread or a loop."""
