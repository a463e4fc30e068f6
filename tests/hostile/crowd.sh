# shellcheck shell=bash
# A check of scripts/check-hostile: many pods of one node that report at once use up their common share of its agent, and
# not the API server's patience or the agent's memory.

# So many want more than half of the agent's connections with the 8 of each (CONNECTIONS_PER_POD, node/src/budget.rs), and
# more than its pace of writes with one write a second of each (WRITE_PERIOD, there).
crowd=40
# Of 512 connections (CONNECTIONS, there) half are kept for pods with fewer than two (RESERVED).
crowds_connections=256
# Writes that may follow each other at once (NODE_WRITES_BURST, there), and so many that the even pace (NODE_WRITE_PERIOD)
# takes half a minute for the rest.
crowds_burst=200 crowds_writes=800

# All at once, of one manifest.
crowd_comes() {
    local number
    manifest_of_enemy crowd honest '' "crowd, $(field vmi/honest '{.metadata.uid}'), $meeting" >"$work/member.yaml"
    for ((number = 1; number <= crowd; number++)); do
        sed "s/^metadata: {name: crowd,\(.*\) labels: {/metadata: {name: crowd-$number,\1 labels: {hostile: crowd, /" "$work/member.yaml"
    done >"$work/crowd.yaml"
    kubectl create -f "$work/crowd.yaml"
}
crowd_goes() { kubectl -n $namespace delete pods -l hostile=crowd --force --grace-period=0; }
crowd_is() { [ "$(on_node find $meeting -name "$1.*" ! -name '*.new' | wc -l)" = $crowd ]; }

crowded() {
    local began before pid restarts sampling held noted sockets peak limit
    meet
    before=$(measure) pid=$(agent) restarts=$(agents_restarts)
    began=$(stat -c %s "/run/garboard-cluster/$name/logs/audit.log")
    # Also when this fails: the other checks are to have the node to themselves.
    trap 'on_node touch $meeting/stop || :; crowd_goes || :' EXIT
    crowd_goes
    crowd_comes
    # So many pods come and go one after the other.
    local patience=$((3 * patience))
    await 'the crowd' crowd_is here
    on_node sh -c "until [ -e $meeting/stop ]; do find /proc/$pid/fd -lname 'socket:*' 2>/dev/null | wc -l; sleep 0.2; done" \
        >"$work/sockets" &
    sampling=$!
    on_node touch $meeting/go
    # By then it writes no faster than it may.
    await 'writes without a pause' wrote $crowds_burst "$began"
    machine crowded
    serves crowded
    await "$crowds_writes writes" wrote $crowds_writes "$began"
    on_node touch $meeting/stop
    await 'the end of the reports' crowd_is result
    wait $sampling
    read -r held noted < <(on_node sh -c "cat $meeting/result.*" | awk '{ held += $1; noted += $2 } END { print held, noted }')
    sockets=$(sort -n "$work/sockets" | tail -n 1)
    peak=$(on_node sed -n 's/^VmHWM:[^0-9]*\([0-9]*\) kB/\1/p' "/proc/$pid/status")
    limit=$(agents_limit)
    echo "$noted reports over $held connections; the agent had $sockets sockets, and $peak KiB of $limit at most"
    pace "$began" || fail "$(tail -n 1 "$work/log")"
    [ "$held" -le $crowds_connections ] || fail "the crowd had $held connections"
    # Or it was no crowd.
    [ "$held" -ge $((crowds_connections - 32)) ] || fail "the crowd had no more than $held connections"
    [ "$sockets" -lt 512 ] || fail "the agent had $sockets sockets"
    [ "$peak" -lt "$limit" ] || fail "the agent had $peak KiB of $limit"
    [ "$(agent) $(agents_restarts)" = "$pid $restarts" ] || fail 'the agent was started again'
    is vmi/honest '{.status.conditions[?(@.type=="Paused")].status}' '' || fail 'the crowd was believed'
    remove crowded
    crowd_goes
    await 'few descriptors again' few_descriptors "$before"
}

agents_restarts() {
    kubectl -n garboard get "pod/$(agent_pod)" -o 'jsonpath={.status.containerStatuses[?(@.name=="node")].restartCount}'
}

# The memory limit of its container, KiB.
agents_limit() {
    local limit path='{.spec.containers[?(@.name=="node")].resources.limits.memory}'
    limit=$(kubectl -n garboard get "pod/$(agent_pod)" -o "jsonpath=$path")
    [[ $limit = *Mi ]] || fail "its memory limit is $limit"
    echo $((${limit%Mi} * 1024))
}

pace() { "$repository/tests/hostile/pace.py" "$name" node-1 "$1" $crowd; }
wrote() { [ "$(pace "$2" | sed 's/ writes.*//')" -ge "$1" ]; }
