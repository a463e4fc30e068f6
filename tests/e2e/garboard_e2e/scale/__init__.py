"""Many machines without a guest (tests/scale): what they cost the controller and the API server, ours and the
reference's."""
