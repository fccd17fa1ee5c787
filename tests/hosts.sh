#!/usr/bin/env bash
# Two hosts on one machine: two network namespaces, each with a host name of its own, joined by one (virtual) cable.
# lab03 trains across them over TCP; then the cable is cut, and the job must end with an error that names the lost host.
#
# Needs root, iproute2, Open MPI, and lab03 built with --features mpi:   tests/hosts.sh target-mpi/debug/lab03
set -euo pipefail

skip() { echo "skipped: $*"; exit 0; }
fail() { echo "FAILED: $*" >&2; exit 1; }
lab03=$(realpath "${1:?the path of lab03, built with --features mpi}")
[ "$(id -u)" = 0 ] || skip "network namespaces need root"
command -v ip >/dev/null || skip "there is no iproute2"
mpirun --version 2>/dev/null | grep -q 'Open MPI' || skip "there is no Open MPI"

work=$(mktemp -d)
one=sl$$a two=sl$$b
clean() {
    # The ranks of a job that hangs are in the namespaces, whoever their parents are.
    for host in $one $two; do ip netns pids $host 2>/dev/null | xargs -r kill -9 2>/dev/null || true; done
    ip netns del $one 2>/dev/null || true
    ip netns del $two 2>/dev/null || true
    rm -rf "$work"
}
trap clean EXIT
ip netns add $one 2>/dev/null || skip "network namespaces are not allowed here"
ip netns add $two
ip link add v$one netns $one type veth peer name v$two netns $two
ip -n $one addr add 10.77.0.1/24 dev v$one
ip -n $two addr add 10.77.0.2/24 dev v$two
for host in $one $two; do ip -n $host link set lo up; ip -n $host link set v$host up; done

# In place of ssh: HOST COMMAND… runs in the host's namespace. MPI takes ranks with one host name for neighbours that share
# memory, so each namespace gets a name of its own.
cat >"$work/ssh" <<END
#!/bin/bash
while [[ \$1 == -* ]]; do shift; done
host=\$1; shift
case \$host in 10.77.0.1) host=$one ;; *) host=$two ;; esac
exec ip netns exec \$host unshare --uts sh -c "hostname \$host; \$*"
END
chmod +x "$work/ssh"
printf '10.77.0.1 slots=1\n10.77.0.2 slots=1\n' >"$work/hosts"

# TCP alone, on the cable alone. Without probes a cut cable looks like a slow one for many minutes.
across() {
    "$work/ssh" 10.77.0.1 "cd $work; OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout 120 mpirun -n 2 \
        --hostfile $work/hosts --mca plm_rsh_agent $work/ssh --mca pml ob1 --mca btl tcp,self \
        --mca btl_tcp_if_include 10.77.0.0/24 --mca oob_tcp_if_include 10.77.0.0/24 \
        --mca oob_tcp_keepalive_time 2 --mca oob_tcp_keepalive_intvl 1 --mca oob_tcp_keepalive_probes 3 \
        $lab03 --layers 1 --eval-iters 2 --log-interval 1 --out $work/out $*"
}

across --steps 20 >"$work/log" 2>&1 || { cat "$work/log"; fail "20 steps across two hosts"; }
grep -q 'step=20 loss=' "$work/log" && grep -q '2 MPI processes' "$work/log" || fail "lab03 did not train 20 steps"
sent=$(ip netns exec $one cat /sys/class/net/v$one/statistics/tx_bytes 2>/dev/null || ip -n $one -s link show v$one | awk '/TX:/{getline; print $1}')
[ "$sent" -gt 1000000 ] || fail "only $sent bytes crossed the cable"
echo "ok: 20 steps across two hosts, $sent bytes sent from the first"

# The first run's last line must not be taken for the second run's.
: >"$work/log"
across --steps 1000000 >"$work/log" 2>&1 &
job=$!
for _ in $(seq 600); do grep -q 'step=20 loss=' "$work/log" && break; sleep 0.1; done
grep -q 'step=20 loss=' "$work/log" || { cat "$work/log"; fail "the second run did not start"; }
ip -n $one link set v$one down
wait $job && fail "the job ended well although its cable was cut"
[ $? != 124 ] || fail "the job hung"
grep -q 'Remote daemon: .* on node 10.77.0.2' "$work/log" || { tail -30 "$work/log"; fail "the error does not name the host"; }
sleep 1
[ -z "$(ip netns pids $one)" ] || fail "a rank outlived the job"
echo "ok: the cable was cut, and the job ended with: $(grep -A4 'lost communication' "$work/log" | tr -s '\n -' ' ')"
