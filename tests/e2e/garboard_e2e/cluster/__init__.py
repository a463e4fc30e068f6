"""The library of the tests on a test cluster (tests/cluster): one cluster and one build of images for all tiers,
kubectl, faults, and a record of everything that happens, which a model judges at the end.

    shared = Shared(build, "e2e", show)  # the fixture `shared` of tests/e2e/cluster/conftest.py
    kube = shared.empty()               # a cluster of this build without Garboard; the one that is up, if it fits
    kube.install()                      # Garboard and the namespace NAMESPACE; the recorder begins
    kube.start(machine("a"))            # applied, and Running in status and in truth
    kube.wait("…", lambda: kube.phase("a") == "Failed")
    kube.judge()                        # the model's verdict of everything since `install`

`shared.installed()` does all of this around a `yield`: the body of a tier's fixture."""
