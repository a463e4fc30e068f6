# A tenant who may make and change pods of a namespace, and has no other right: a part of scripts/check-hostile.
# shellcheck shell=bash

as_tenant() { kubectl --as=tenant --as-group=system:authenticated -n $namespace "$@"; }

# tenants_pod METADATA [LIMITS]: as the tenant makes it.
tenants_pod() {
    as_tenant apply -f - <<YAML
apiVersion: v1
kind: Pod
metadata: $1
spec:
  automountServiceAccountToken: false
  securityContext: {runAsNonRoot: true, runAsUser: 107, seccompProfile: {type: RuntimeDefault}}
  containers:
  - name: tenant
    image: registry.garboard.dev/cluster-pause:1
    imagePullPolicy: IfNotPresent
    resources: {limits: ${2:-{\}}}
    securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
YAML
}

# refused TEXT COMMAND…: with this text in what is answered.
refused() {
    local text=$1 answer
    shift
    if answer=$("$@" 2>&1); then fail "not refused: $* ($answer)"; fi
    grep -qF "$text" <<<"$answer" || fail "refused with other words: $answer"
}

# Who may edit a namespace makes no pod that passes for a launcher's, and none of a launcher's pod something else. The
# machine, its pod and its order stay what they were.
no_launcher_of_a_tenant() {
    local uid pod order taken only='only the controller of Garboard makes pods'
    uid=$(field vmi/honest '{.metadata.uid}')
    pod=$(kubectl -n $namespace get pods -o name | awk '/^pod.virt-launcher-honest-/ && !n++')
    pod=${pod#pod/}
    order=$(field "pod/$pod" '{.metadata.annotations.garboard\.dev/order}')
    [ -n "$order" ] || fail "the pod $pod has no order"
    kubectl -n $namespace create rolebinding tenant --clusterrole=edit --user=tenant --dry-run=client -o yaml | kubectl apply -f -
    await 'the right to make pods' as_tenant auth can-i create pods
    tenants_pod '{name: tenants}'
    refused "$only whose name begins with virt-launcher-" tenants_pod '{name: virt-launcher-honest-tenan}'
    refused "$only with the label kubevirt.io=virt-launcher" \
        tenants_pod "{name: pretends, labels: {kubevirt.io: virt-launcher, kubevirt.io/created-by: $uid}}"
    refused "$only with the annotation garboard.dev/order" tenants_pod "{name: pretends, annotations: {garboard.dev/order: '{}'}}"
    for taken in tun vhost-net; do
        refused "$only with devices.kubevirt.io/tun" tenants_pod '{name: pretends}' "{devices.kubevirt.io/$taken: '1'}"
    done
    refused 'never change' as_tenant annotate --overwrite pod/tenants garboard.dev/order='{}'
    refused 'never change' as_tenant label --overwrite pod/tenants kubevirt.io=virt-launcher
    refused 'never change' as_tenant annotate --overwrite "pod/$pod" garboard.dev/order='{}'
    refused 'never change' as_tenant label --overwrite "pod/$pod" kubevirt.io/created-by=x
    # An owner reference is everybody's to write; the pod counts by its label as well.
    tenants_pod "{name: owned, ownerReferences: [{apiVersion: kubevirt.io/v1, kind: VirtualMachineInstance, name: honest, uid: $uid, controller: true}]}"
    refused 'never change' as_tenant label --overwrite pod/owned kubevirt.io=virt-launcher
    serves honest
    [ "$(field "pod/$pod" '{.metadata.annotations.garboard\.dev/order}')" = "$order" ] || fail 'the order changed'
    [ "$(field vmi/honest '{.status.activePods}' | grep -o '":"' | wc -l)" = 1 ] || fail "pods of the machine: $(field vmi/honest '{.status.activePods}')"
    kubectl -n $namespace delete pod/tenants pod/owned --force --grace-period=0
}
