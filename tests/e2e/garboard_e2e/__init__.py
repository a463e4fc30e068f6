"""The library of the tests in tests/e2e: the command and its machines on this host, guests, terminals, registries.

It needs nothing but Python's own library, so that scripts/ can use it too; only `plugin` and `care` are for pytest."""
