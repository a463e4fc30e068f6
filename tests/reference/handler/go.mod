// What stands for virt-handler on the cluster of KubeVirt's functional tests; of the standard library alone.
module garboard.dev/tests/reference/handler

go 1.24.0
