"""Floor 1: values and machines that say when. Nothing here touches a socket or starts a thread."""
