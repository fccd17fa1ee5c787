"""A Slurm of several daemons on one machine."""

import contextlib
import os
import pathlib
import shutil
import socket
import subprocess
import time

# Four nodes of 4 cores, and one whose cores have two threads. Slurm's own default of MPI is none.
CONFIGURATION = """
ClusterName=lab
SlurmctldHost={host}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={work}/munge.socket
SlurmctldPort=26817
SlurmctldPidFile={work}/slurmctld.pid
SlurmdPidFile={work}/slurmd-%n.pid
StateSaveLocation={work}/state
SlurmdSpoolDir={work}/spool-%n
SlurmctldLogFile={work}/slurmctld.log
SlurmdLogFile={work}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
LaunchParameters=use_interactive_step
ReturnToService=2
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=1,bf_interval=1
KillWait=3
NodeName=node[1-4] NodeHostname={host} NodeAddr=127.0.0.1 Port=[27001-27004] CPUs=4 CoresPerSocket=4 ThreadsPerCore=1
NodeName=node5 NodeHostname={host} NodeAddr=127.0.0.1 Port=27005 CPUs=8 CoresPerSocket=4 ThreadsPerCore=2
PartitionName=cores Nodes=node[1-4] Default=YES MaxTime=INFINITE State=UP
PartitionName=threads Nodes=node5 MaxTime=INFINITE State=UP
"""
NODES = 5


@contextlib.contextmanager
def running(work: pathlib.Path):
    """Starts it in the new folder `work`. Its programs find it by SLURM_CONF."""
    (work / "state").mkdir(parents=True)
    key = work / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o600)
    configuration = work / "slurm.conf"
    configuration.write_text(CONFIGURATION.format(host=socket.gethostname(), work=work))
    os.environ["SLURM_CONF"] = str(configuration)
    # In the foreground, so that they end with this program.
    daemons = [start("munged", "--foreground", "--force", *(
        f"--{flag}={work / file}" for flag, file in [
            ("key-file", key.name), ("socket", "munge.socket"), ("pid-file", "munged.pid"),
            ("log-file", "munged.log"), ("seed-file", "munge.seed")]))]
    try:
        wait(lambda: (work / "munge.socket").exists(), "munged")
        daemons.append(start("slurmctld", "-D", "-f", configuration))
        daemons += [start("slurmd", "-D", "-f", configuration, "-N", f"node{n}") for n in range(1, NODES + 1)]
        wait(lambda: output("sinfo", "-h", "-N", "-o", "%t").split() == NODES * ["idle"], "all nodes")
        yield
    finally:
        subprocess.run(["scancel", "--user", "root"], capture_output=True)
        for daemon in reversed(daemons):
            daemon.terminate()
        for daemon in daemons:
            with contextlib.suppress(subprocess.TimeoutExpired):
                daemon.wait(10)
            daemon.kill()


def changed(work, old, new):
    """Changes a line of the configuration of the Slurm that runs in `work`."""
    configuration = work / "slurm.conf"
    configuration.write_text(configuration.read_text().replace(old, new))
    subprocess.run(["scontrol", "reconfigure"], check=True, capture_output=True)


def start(program, *arguments):
    log = subprocess.DEVNULL
    return subprocess.Popen([shutil.which(program), *map(str, arguments)], stdin=log, stdout=log, stderr=log)


def output(*command):
    return subprocess.run(command, capture_output=True, text=True).stdout


def wait(holds, what, seconds=30):
    for _ in range(5 * seconds):
        if holds():
            return
        time.sleep(0.2)
    raise TimeoutError(f"{what}: not up after {seconds} s")
