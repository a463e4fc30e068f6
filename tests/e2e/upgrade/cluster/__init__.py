"""An installation with machines that run, on a cluster of its own."""
