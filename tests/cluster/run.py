#!/usr/bin/env python3
"""Real schedulers beside what `launch` says of them: a Slurm of five nodes and a Grid Engine, both on this machine.

    tests/cluster/run.py target/debug/launch [CASE...]

In each case a job script runs the line that `launch --print` prints, and the ranks that start are compared, node by node,
with what launch said. Everything lies in a temporary folder, and ends with this program. Needs root, as in a container,
and Debian's packages slurmctld, slurmd, munge, gridengine-master, gridengine-exec and gridengine-client.

Daemons of one host cannot serve PMIx over several nodes (their servers collide): there `--mpi=pmix` is run as `--mpi=none`,
and the table says so. What the ranks are is asked of Slurm itself, by a script in the program's place.
"""

import contextlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

import grid_engine
import slurm

LIMIT = 60  # seconds of a case


def case(name, how, flags="", before="", expect=None, says="", mpi=None):
    """`how` starts the job: `sbatch FLAGS`, `salloc FLAGS`, `salloc FLAGS, shell`, `srun FLAGS --pty`. `flags` are launch's; `before` runs
    first in the job. Of what launch says, `says` is a part, and `expect` are the ranks of each node, if not by its own word alone."""
    return dict(name=name, how=how, flags=flags, before=before, expect=expect, says=says, mpi=mpi)


CASES = [
    case("three nodes", "sbatch -N3", expect=[1, 1, 1]),
    case("ten of twelve", "sbatch -N3 -n10 --ntasks-per-node=4", expect=[4, 3, 3]),
    case("five of six", "sbatch -N2 -n5 --ntasks-per-node=3", expect=[3, 2]),
    case("two CPUs a task", "sbatch -n3 -c2", expect=[2, 1]),
    case("eight tasks", "sbatch -n8", expect=[4, 4]),
    case("uneven CPUs", "sbatch -N3 -n7", expect=[4, 2, 1]),
    case("uneven, fewer ranks", "sbatch -N3 -n7", flags="-n 5", expect=[3, 2]),
    case("uneven, one a node", "sbatch -N3 -n7", flags="--per-node 1", expect=[1, 1, 1]),
    case("fewer than fit", "sbatch -N3 --ntasks-per-node=4", flags="-n 9", expect=[3, 3, 3]),
    case("both of one node", "sbatch -N2 --ntasks-per-node=4", flags="-n 2 --per-node 2", expect=[2]),
    case("one of each", "sbatch -N2 --ntasks-per-node=4", flags="-n 2 --per-node 1", expect=[1, 1]),
    case("five on three nodes of two", "sbatch -N3 --ntasks-per-node=2", flags="-n 5", expect=[2, 2, 1]),
    case("own hosts", "sbatch -N3 -n7", flags="--hostfile hosts", before="printf 'node2\\nnode3\\n' > hosts", expect=[2, 1]),
    case("cyclic", "sbatch -N2 -n7 -m cyclic", expect=[4, 3]),
    case("plane", "sbatch -N2 -n6 -m plane=2", expect=[4, 2]),
    case("arbitrary", "sbatch -n4 -m arbitrary", expect=[1, 2, 1]),
    case("exclusive", "sbatch -N2 --exclusive", expect=[4, 4]),
    case("overcommitted", "sbatch -N3 -n5 -O", expect=[2, 2, 1]),
    case("an array", "sbatch -N2 -a 1-1", expect=[1, 1]),
    case("threads of a core", "sbatch -p threads -n4", expect=[4]),
    case("no threads of a core", "sbatch -p threads -n4 --hint=nomultithread", expect=[4]),
    case("a step with no threads", "srun -p threads -n4 --hint=nomultithread --pty", expect=[4]),
    case("salloc with a command", "salloc -N2 -n4", expect=[3, 1]),
    case("salloc's shell", "salloc -N2 -n4, shell", expect=[3, 1]),
    case("a shell of two", "srun -N1 -n2 --pty", expect=[2]),
    case("a shell of four CPUs", "srun -N1 -n1 -c4 --pty", expect=[1]),
    case("a shell on two nodes", "srun -N2 -n4 --pty", expect=[3, 1]),
    case("a shell of a whole node", "srun -N1 --exclusive --pty", expect=[1]),
    case("two groups", "sbatch -N1 -n2 : -N1 -n3", expect=[2], says="the nodes of one group"),
    case("MPICH", "sbatch -N2 -n4", mpi="HYDRA build details:", expect=[3, 1], says="--mpi=pmi2"),
    case("MPICH, none by variable", "sbatch -N1 -n2", mpi="HYDRA build details:", before="export SLURM_MPI_TYPE=none", expect=[2], says="--mpi=pmi2"),
    case("more than tasks a node", "sbatch -N1 -n1 -c4", flags="--per-node 4", expect=[4], says="-c 1"),
    case("MPICH, another default", "sbatch -N1 -n2", mpi="HYDRA build details:", before="export SLURM_MPI_TYPE=pmi2", expect=[2]),
]

# At a site whose default is pmi2. srun sets that in each step, and salloc's shell is one: nobody chose it there.
OF_PMI2 = [
    case("pmi2, salloc's shell", "salloc -N2 -n4, shell", expect=[3, 1], says="--mpi=pmix"),
    case("pmi2, a script", "sbatch -N1 -n2", expect=[2], says="--mpi=pmix"),
    case("pmi2 and MPICH, salloc's shell", "salloc -N1 -n2, shell", mpi="HYDRA build details:", expect=[2]),
]


class Cluster:
    def __init__(self, launch, work):
        self.launch, self.work = launch, work
        # An MPI in name alone: which one there is decides the line.
        self.bin = {name: work / f"bin-{i}" for i, name in enumerate(("mpirun (Open MPI) 4.1.4", "HYDRA build details:"))}
        for version, folder in self.bin.items():
            folder.mkdir()
            for name in ("mpirun", "mpiexec"):
                script(folder / name, f"echo '{version}'")
        script(work / "rank", 'echo "rank on ${SLURMD_NODENAME:-$HOSTNAME}"')
        (work / "ranks").write_text("node1\nnode2\nnode2\nnode3\n")

    def body(self, lines, mpi=None):
        folder = self.bin[mpi or "mpirun (Open MPI) 4.1.4"]
        return script(self.work / "body", f"cd {self.work}", f"export PATH={folder}:$PATH", *lines)

    def start(self, how, body):
        """Runs a job to its end."""
        how, _, shell = how.partition(", ")
        program, *flags = how.split()
        stdin = subprocess.DEVNULL
        if program == "sbatch":
            environment = {**os.environ, "SLURM_HOSTFILE": str(self.work / "ranks")} if "arbitrary" in flags else None
            if ":" in flags:
                flags = flags + [str(body)]
            command = ["sbatch", "--wait", "--output", "/dev/null", *flags, *([] if ":" in flags else [str(body)])]
            return subprocess.run(command, stdin=stdin, capture_output=True, text=True, timeout=LIMIT, env=environment)
        if program == "srun":
            flags = ["--mpi=none", *flags, str(body)]
        elif not shell:
            flags = [*flags, str(body)]
        # salloc starts $SHELL as a step. Words typed ahead of it are lost where srun has not yet taken the terminal: it throws them away.
        line = " ".join([*(["env", f"SHELL={body}"] if shell else []), program, *flags])
        command = ["script", "--quiet", "--return", "--command", line, "/dev/null"]
        return subprocess.run(command, stdin=stdin, capture_output=True, text=True, timeout=LIMIT)

    def run(self, one):
        """What launch printed, what was run of it, and the ranks of each node by its word and in truth."""
        for name in ("line", "said", "ranks-seen", "error"):
            (self.work / name).unlink(missing_ok=True)
        body = self.body([
            # srun --pty starts all of its tasks, and the terminal is the first one's.
            '[ "${SLURM_PROCID:-0}" = 0 ] || exit 0',
            one["before"] or ":",
            f"{self.launch} --print {one['flags']} ./rank > line 2> said",
            # One node has one server of PMIx.
            "run=$(cat line); nodes=$(sed -n 's/^launch: .*ranks: //p' said | tr ',' '\\n' | wc -l)",
            "if [ $nodes -gt 1 ]; then run=${run/--mpi=pmix/--mpi=none}; fi",
            "timeout 20 $run > ranks-seen 2> error",
        ], one["mpi"])
        self.start(one["how"], body)
        read = lambda name: (self.work / name).read_text() if (self.work / name).exists() else ""
        said = re.search(r"^launch: \d+ ranks: (.*)$", read("said"), re.M)
        by_word = {name: int(count) for name, count in re.findall(r"(\S+) (\d+)", said[1])} if said else {}
        seen = re.findall(r"^rank on (\S+)$", read("ranks-seen"), re.M)
        return read("line").strip(), read("said"), by_word, {name: seen.count(name) for name in sorted(set(seen))}, read("error")


def script(path, *lines):
    path.write_text("\n".join(["#!/bin/bash", *lines]) + "\n")
    path.chmod(0o755)
    return path


def lines_are_right(cluster, cases, chosen):
    """Runs the cases of a table. Returns what is wrong."""
    wrong = []
    for one in cases:
        if chosen and one["name"] not in chosen:
            continue
        line, said, by_word, seen, error = cluster.run(one)
        faults = []
        if by_word != seen:
            faults.append(f"launch said {by_word}, and {seen} started: {error.strip()}")
        if one["expect"] and list(seen.values()) != one["expect"]:
            faults.append(f"{one['expect']} were asked for")
        if one["says"] not in said + line:
            faults.append(f"launch does not say {one['says']!r}")
        # Slurm itself sets the variable that srun warns of.
        if "--ntasks-per-node" in line and "can't honor --ntasks-per-node" in error:
            faults.append(error.strip())
        shown = line.removesuffix(" ./rank") + (" (run with none)" if "pmix" in line and len(seen) > 1 else "")
        print(f"{one['name']:30} {shown:58} {' '.join(map(str, seen.values()))}{'  FAILED' if faults else ''}", flush=True)
        wrong += [f"{one['name']}: {fault}" for fault in faults]
    return wrong


def ends_are_known(cluster):
    """What a person or the scheduler ends is not started again, as far as launch can know. Returns what is wrong."""
    wrong = []

    def ended(name, end, starts, says, limit=None):
        for file in ("starts", "said"):
            (cluster.work / file).unlink(missing_ok=True)
        script(cluster.work / "sleeper", "echo started >> starts", "sleep 100")
        body = cluster.body([f"{cluster.launch} --max-restarts 2 -n 1 ./sleeper 2> said"])
        flags = ["-t", limit] if limit else []
        job = subprocess.run(["sbatch", "--parsable", "-N1", "-n1", "--output", "/dev/null", *flags, str(body)],
                             capture_output=True, text=True).stdout.strip()
        until(lambda: (cluster.work / "starts").exists(), f"{name}: the job starts")
        time.sleep(0.5)
        for command in end(job):
            subprocess.run(command)
        count = lambda: (cluster.work / "starts").read_text().count("started")
        text = lambda: (cluster.work / "said").read_text()
        with contextlib.suppress(TimeoutError):
            until(lambda: says in text() and count() >= starts, name, 100 if limit else 15)
        subprocess.run(["scancel", job])
        until(lambda: not subprocess.run(["squeue", "-h", "-j", job], capture_output=True, text=True).stdout.strip(), name)
        right = says in text() and count() == starts
        print(f"{name:30} {count()} start{'' if count() == 1 else 's'}{'' if right else '  FAILED'}", flush=True)
        if not right:
            wrong.append(f"{name}: {count()} starts for {starts}, and launch said: {text().strip()}")

    ended("scancel of the job", lambda job: [["scancel", job]], 1, "")
    ended("a signal to the steps", lambda job: [["scancel", "-s", "TERM", job]], 1, "the scheduler stopped it")
    ended("a user's signal to the steps", lambda job: [["scancel", "-s", "USR1", job]], 1, "SIGUSR1")
    ended("a signal to all", lambda job: [["scancel", "-f", "-s", "TERM", job]], 1, "no restart")
    ended("scancel of a step", lambda job: [["scancel", f"{job}.0"]], 2, "launch cannot tell which")
    ended("a time limit", lambda job: [], 1, "", limit="1")
    return wrong


def srun_is_missed(cluster):
    """A job without Slurm's programs, as in a container, is refused."""
    cluster.body([])
    folder = cluster.bin["mpirun (Open MPI) 4.1.4"]
    body = script(cluster.work / "body", f"cd {cluster.work}", f"PATH={folder} {cluster.launch} --print ./rank > line 2> said; echo $? > line")
    cluster.start("sbatch -N1 -n2", body)
    code, said = (cluster.work / "line").read_text().strip(), (cluster.work / "said").read_text()
    right = code == "2" and "srun, which starts ranks there, is not on PATH" in said
    print(f"{'no srun':30} exit code {code}{'' if right else '  FAILED'}")
    return [] if right else [f"no srun: exit code {code}: {said}"]


def grid_engine_is_named(cluster):
    """Grid Engine's jobs, with and without a parallel environment. Returns what is wrong."""
    wrong = []
    for name, flags, before, slots, says in [
        ("Grid Engine, one slot", [], ":", 1, "PE_HOSTFILE, which tells its nodes, is not set"),
        ("Grid Engine, three slots", ["-pe", "mpi", "3"], ":", 3, ""),
        # The file of a job of two nodes, which one host cannot give.
        ("Grid Engine, two nodes", ["-pe", "mpi", "3"],
         "(cat $PE_HOSTFILE; echo 'other 2 all.q@other UNDEFINED') > pe; export PE_HOSTFILE=$PWD/pe", 5, "$PE_HOSTFILE > hosts"),
    ]:
        body = cluster.body([
            before,
            f"{cluster.launch} --print ./rank > line 2> said",
            # What launch says to type, typed.
            "if grep -q awk said; then",
            "  eval \"$(sed -n 's/.*after  \\(awk .*\\)$/\\1/p' said)\"",
            f"  {cluster.launch} --print --hostfile hosts ./rank > line",
            "fi",
        ])
        grid_engine.submit(body, flags, cluster.work)
        line, said = (cluster.work / "line").read_text().strip(), (cluster.work / "said").read_text()
        right = (says in said if says else "Grid Engine" not in said) and re.search(rf" -n {slots} ", line)
        print(f"{name:30} {line.removesuffix(' ./rank')}{'' if right else '  FAILED'}", flush=True)
        if not right:
            wrong.append(f"{name}: {line}: {said}")
    return wrong


def until(holds, what, seconds=30):
    for _ in range(10 * seconds):
        if holds():
            return
        time.sleep(0.1)
    raise TimeoutError(what)


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    launch, chosen = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2:]
    missing = [name for name in ("slurmctld", "slurmd", "munged", "sge_qmaster", "sge_execd", "script") if not shutil.which(name)]
    if missing or os.geteuid() != 0:
        sys.exit(f"skipped: this needs root and {', '.join(missing)}")
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as work, contextlib.ExitStack() as running:
        work = pathlib.Path(work)
        running.enter_context(slurm.running(work / "slurm"))
        cluster = Cluster(launch, work)
        print(f"{'case':30} {'line':58} ranks that started")
        wrong = lines_are_right(cluster, CASES, chosen)
        if not chosen:
            wrong += srun_is_missed(cluster) + ends_are_known(cluster)
        slurm.changed(work / "slurm", "MpiDefault=none", "MpiDefault=pmi2")
        wrong += lines_are_right(cluster, OF_PMI2, chosen)
        if not chosen:
            running.enter_context(grid_engine.running(work / "grid-engine"))
            wrong += grid_engine_is_named(cluster)
    print(f"{time.monotonic() - began:.0f} s")
    if wrong:
        sys.exit("\n".join(["", *wrong]))


if __name__ == "__main__":
    main()
