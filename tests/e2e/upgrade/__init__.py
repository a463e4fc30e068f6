"""Two versions beside each other: machines that run are taken from an earlier commit to this checkout, and back, and
their guests do not notice."""
