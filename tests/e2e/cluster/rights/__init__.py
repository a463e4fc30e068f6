"""Questions about rights, which share one API server."""
