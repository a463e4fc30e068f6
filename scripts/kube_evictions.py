"""What a drain does to machines: pods/eviction as kubectl drain asks it, answered by `evictionStrategy`."""

import json

from kube import NAMESPACE, Failure, machine


def evict(kube, pod, code, dry_run=False):
    """What is said to an eviction that kubectl ends with this code: 0 where it is let through."""
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": NAMESPACE}}
    if dry_run:
        eviction["deleteOptions"] = {"dryRun": ["All"]}
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}/eviction"
    return kube.kubectl("create", "--raw", path, "-f", "-", text=json.dumps(eviction), code=code, namespace=None)


def stays(kube, name, words, dry_run=False):
    answer = evict(kube, kube.pod(name)["metadata"]["name"], 1, dry_run)
    if words not in answer or "TooManyRequests" not in answer:
        raise Failure(f"an eviction of {name} is answered {answer!r} and not {words!r}")


def are_answered(kube):
    kept, asked, goes = "kept", "asked", "goes"
    kube.start(machine(kept, evictionStrategy="LiveMigrate"), machine(asked, evictionStrategy="External"),
               machine(goes, strategy="RerunOnFailure"))
    try:
        for name in kept, asked, goes:
            kube.wait(f"{name} not migratable", lambda who=name: kube.condition("vmi", who, "LiveMigratable").get("reason") == "NotMigratable")
        before = {name: (kube.uid(name), kube.pod(name)["metadata"]["uid"]) for name in (kept, asked, goes)}
        stays(kube, kept, "LiveMigrate and cannot be migrated")
        stays(kube, asked, f'Eviction triggered evacuation of VMI "{NAMESPACE}/{asked}"', dry_run=True)
        if "evacuationNodeName" in kube.there("vmi", asked)["status"]:
            raise Failure("a dry run has marked the instance")
        stays(kube, asked, f'Eviction triggered evacuation of VMI "{NAMESPACE}/{asked}"')
        node = kube.pod(asked)["spec"]["nodeName"]
        kube.wait("the mark", lambda: kube.there("vmi", asked)["status"].get("evacuationNodeName") == node)
        stays(kube, asked, "Evacuation in progress")
        # Powered down, which ends its run in order: for RerunOnFailure it has failed.
        evict(kube, kube.pod(goes)["metadata"]["name"], 0)
        kube.wait("the word of the eviction", lambda: kube.uid(goes) != before[goes][0]
                  or kube.condition("vmi", goes, "EvictionRequested").get("reason") == "EvictionByEvictionAPI")
        kube.runs(goes, not_this=before[goes][0])
        for name in kept, asked:
            if (kube.uid(name), kube.pod(name)["metadata"]["uid"]) != before[name] or kube.phase(name) != "Running":
                raise Failure(f"{name} did not run on")
    finally:
        kube.remove(kept, asked, goes)


SCENES = [("evictions: by the strategy, and a failure for RerunOnFailure", are_answered)]
