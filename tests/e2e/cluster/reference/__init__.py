"""A few of KubeVirt's own functional tests."""
