"""KubeVirt's functional tests (kubevirt.io/kubevirt/tests, v1.7.0), unmodified, on a test cluster with Garboard."""
