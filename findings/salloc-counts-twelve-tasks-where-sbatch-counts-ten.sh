#!/usr/bin/env bash
# Slurm 22.05.8 (Debian 12's packages): three nodes with four CPUs each, all on this machine.
#
# A guess: the same request has the same number of tasks, whoever makes it. `sbatch -N3 -n10 --ntasks-per-node=4`
# tells its script SLURM_NTASKS=10, and a step without flags starts ten tasks.
# In truth salloc, given the same three flags, tells its command SLURM_NTASKS=12, and a step without flags starts
# twelve: it writes its own product of nodes and tasks per node over the number that was asked for. What was tried by
# hand in salloc then trains with other ranks when it is submitted.
# Printed on 2026-11-30: sbatch: 10, started 10; salloc: 12, started 12
set -euo pipefail
expected='sbatch: 10, started 10; salloc: 12, started 12'

work=$(mktemp -d)
daemons=()
leave() {
    kill "${daemons[@]}" 2>/dev/null || true
    wait 2>/dev/null || true
    rm -rf "$work"
}
trap leave EXIT
cd "$work"
# The programs, unpacked below the temporary folder.
apt-get download -qq {slurmctld,slurmd,slurm-client,slurm-wlm-basic-plugins}=22.05.8* >/dev/null 2>&1
for package in ./*.deb; do dpkg-deb --extract "$package" tree; done
while read -r program; do ln -s "$(basename "$program")" "${program%-wlm}"; done < <(find tree/usr -path '*bin/*-wlm')
libraries=$work/tree/usr/lib/$(gcc -print-multiarch 2>/dev/null || echo x86_64-linux-gnu)
export PATH=$work/tree/usr/bin:$work/tree/usr/sbin:$PATH
export LD_LIBRARY_PATH=$libraries:$libraries/slurm-wlm SLURM_CONF=$work/slurm.conf
{
    # One user, who trusts this machine.
    printf '%s\n' ClusterName=lab SlurmctldHost=localhost SlurmctldPort=29317 "SlurmUser=$(id -un)" "SlurmdUser=$(id -un)" \
        AuthType=auth/none CredType=cred/none "PluginDir=$libraries/slurm-wlm" "StateSaveLocation=$work/state" \
        "SlurmdSpoolDir=$work/spool-%n" "SlurmctldPidFile=$work/ctl" "SlurmdPidFile=$work/d-%n" \
        ProctrackType=proctrack/linuxproc TaskPlugin=task/none SwitchType=switch/none MpiDefault=none \
        JobAcctGatherType=jobacct_gather/none SelectType=select/cons_tres SelectTypeParameters=CR_Core \
        SlurmdParameters=config_overrides
    echo 'NodeName=a[1-3] NodeHostname=localhost NodeAddr=127.0.0.1 Port=[29321-29323] CPUs=4'
    echo 'PartitionName=all Nodes=a[1-3] Default=YES'
} >slurm.conf
mkdir state
slurmctld -D >ctl.log 2>&1 & daemons+=($!)
for node in a1 a2 a3; do
    slurmd -D -N $node -d "$work/tree/usr/sbin/slurmstepd" >$node.log 2>&1 & daemons+=($!)
done
until [ "$(sinfo --noheader --Node --format %t 2>/dev/null | grep -c idle)" = 3 ]; do
    sleep 1
    [ $SECONDS -lt 60 ] || { tail -n 3 ./*.log; exit 1; }
done

cat >count <<'END'
#!/bin/bash
echo "$SLURM_NTASKS, started $(srun hostname 2>/dev/null | wc -l)"
END
chmod +x count
request=(-N3 -n10 --ntasks-per-node=4)
timeout 60 sbatch --quiet --wait --output batch "${request[@]}" count
seen="sbatch: $(cat batch); salloc: $(timeout 60 salloc --quiet "${request[@]}" ./count)"
echo "$seen"
if [ "$seen" != "$expected" ]; then
    echo "it was: $expected" >&2
    exit 1
fi
