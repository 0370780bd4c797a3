"""Floor 3, the thread colour: doors that block the calling thread under a deadline."""
