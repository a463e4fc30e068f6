# shellcheck shell=bash
# Checks of scripts/check-hostile: QEMU in a pod was taken over. On node-2 QEMU of the launcher's image is
# tests/hostile/hostile_qemu.py, which tries everything and then goes on as the real one. Machines there have the usual settings.

# The attack's paths, as QEMU in `compute` would write them.
attack_of_a_pod() {
    local api node
    api=$(kubectl -n default get service/kubernetes -o 'jsonpath={.spec.clusterIP}')
    node=$(kubectl get node/node-2 -o 'jsonpath={.status.addresses[0].address}')
    python3 - "$api" "$node" <<'PYTHON'
import json, sys
api, node = sys.argv[1:]
absent = ["/run/garboard/order", "/run/garboard/supervisor", "/var/run/secrets", "/run/secrets", "/run/garboard-agent",
          "/run/garboard-agent/agent.sock", "/etc/garboard", "/var/lib/garboard", "/run/garboard-disks", "/run/garboard-helper",
          "/dev/net/tun", "/dev/vhost-net", "/dev/garboard", "/var/lib/kubelet", "/run/containerd/containerd.sock"]
closed = ["/", "/run", "/run/garboard", "/run/garboard/init", "/etc/hosts", "/etc/hostname", "/etc/resolv.conf", "/etc/group",
          "/dev/termination-log", "/dev/shm", "/dev/mqueue", "/var/cache/garboard"]
print(json.dumps({
    "pod": True, "machine": "/run/garboard", "victim": "/dev/termination-log", "others": absent, "closed": closed,
    "mounts": r"/|/(proc|sys|dev)(/.*)?|/etc/(hosts|hostname|resolv\.conf)|/run/garboard/init",
    "tcp": [[api, 443], [node, 10250], [node, 10256]],
}))
PYTHON
}

# taken_over_machine NAME: on node-2, emulated as all Linux guests here.
taken_over_machine() {
    machine "$1" node-2
    serves "$1"
}

# Other pods that pretend have the same labels.
launcher_of() { kubectl -n $namespace get pods -o name | sed -n "s|^pod/\\(virt-launcher-$1-.*\\)|\\1|p" | head -n 1; }

# What QEMU's log says, which is the attack's report.
attacked() {
    "$tools/kubectl" -n $namespace exec "$(launcher_of "$1")" -c launcher -- /usr/bin/garboard-launcher --show qemu.log |
        grep '^attack: '
}

# A QEMU that was taken over gets nothing, and the supervisor that is started again does not take it for PID 1.
taken_over_in_a_pod() {
    local refused supervisor
    "$repository/tests/hostile/taken_over.py" "$images/launcher.tar" "$(attack_of_a_pod)" "$work/taken-over.tar"
    cluster load --node node-2 "$work/taken-over.tar"
    taken_over_machine taken
    cluster load --node node-2 "$images/launcher.tar"
    attacked taken >"$work/attack"
    expect_refused "$work/attack"
    refused=$(grep -c ' as a probe: only probes are answered here' "$work/attack" || :)
    [ "$refused" = 10 ] || fail "the socket for probes refused $refused of 10: $(grep 'as a probe' "$work/attack")"
    supervisor=$(cluster exec node-2 -- pgrep -f '^/usr/bin/garboard-launcher --pod$')
    cluster exec node-2 -- kill -KILL "$supervisor"
    await 'the second attack' attacked_again taken
    # PID 1 was heard all the same: the machine has a supervisor, which ends it.
    await 'another supervisor' supervised taken
    await 'the line on who was sent away' tells_of_a_stranger taken
    if attacked taken | grep 'DONE'; then fail "QEMU could pass for PID 1"; fi
    serves taken
    remove taken
}

# expect_refused FILE: the attack took place, and was refused throughout.
expect_refused() {
    grep -q '^attack: over$' "$1" || fail "the attack did not take place: $(tail -n 3 "$1")"
    if grep 'DONE' "$1" >"$work/done"; then fail "QEMU could: $(head -n 5 "$work/done" | tr '\n' ';')"; fi
    [ "$(grep -c '^attack: refused' "$1")" -ge 180 ] || fail "only $(grep -c '^attack: refused' "$1") attempts were refused"
}
attacked_again() { attacked "$1" | grep 'later: ' >/dev/null; }
# By its log, of which the kubelet may be behind.
tells_of_a_stranger() {
    local text
    text=$("$tools/kubectl" -n $namespace logs "$(launcher_of "$1")" -c launcher) && [[ $text == *'another process than PID 1 connected'* ]]
}

supervised() {
    printf '{"ask":"status"}\n' | "$tools/kubectl" -n $namespace exec -i "$(launcher_of "$1")" -c launcher -- \
        /usr/bin/garboard-launcher --connect | grep '"phase":"Running"' >/dev/null
}

# Whoever may exec into a launcher gets of QEMU what the level they ask for reaches, and names no file that QEMU writes.
levels_hold() {
    "$repository/tests/hostile/levels.py" "$tools/kubectl" -n $namespace exec -i "$(launcher_of honest)" -c launcher -- \
        /usr/bin/garboard-launcher --connect
}
