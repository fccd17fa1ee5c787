"""A Grid Engine of one host."""

import contextlib
import os
import pathlib
import re
import signal
import socket
import subprocess
import time

PROGRAMS = pathlib.Path("/usr/lib/gridengine")
SHARED = pathlib.Path("/usr/share/gridengine")

# What differs from Grid Engine's template of a queue, and of a parallel environment.
QUEUE = {"hostlist": "localhost", "slots": "4", "shell": "/bin/bash", "pe_list": "mpi", "load_thresholds": "NONE"}
PARALLEL = {"slots": "16", "allocation_rule": "$fill_up", "control_slaves": "TRUE", "job_is_first_task": "FALSE"}


@contextlib.contextmanager
def running(work: pathlib.Path):
    """Starts it in the new folder `work`. Its programs find it by SGE_ROOT."""
    common = work / "default/common"
    for folder in (common, work / "qmaster/job_scripts", work / "spool", work / "execd"):
        folder.mkdir(parents=True)
    for folder in ("bin", "lib", "utilbin"):
        (work / folder).mkdir()
        (work / folder / "lx-amd64").symlink_to(PROGRAMS)
    (work / "util").symlink_to(SHARED / "util")
    os.environ |= {"SGE_ROOT": str(work), "SGE_CELL": "default", "SGE_QMASTER_PORT": "16444", "SGE_EXECD_PORT": "16445"}
    changed(SHARED / "default-bootstrap", common / "bootstrap", {
        "admin_user": "none", "spooling_params": work / "spool", "qmaster_spool_dir": work / "qmaster"})
    # By its own name the host may have another address.
    (common / "host_aliases").write_text(f"localhost {socket.gethostname()}\n")
    (common / "act_qmaster").write_text("localhost\n")
    settings = work / "settings"
    changed(SHARED / "default-configuration", settings, {"execd_spool_dir": work / "execd", "min_uid": 0, "min_gid": 0})
    call(PROGRAMS / "spoolinit", "berkeleydb", "libspoolb", work / "spool", "init")
    for what, of in [("configuration", settings), ("complexes", SHARED / "util/resources/centry"),
                     ("usersets", SHARED / "util/resources/usersets"), ("managers", "root")]:
        call(PROGRAMS / "spooldefaults", what, of)
    call("sge_qmaster")
    try:
        again(["qconf", "-sh"])
        for flag in ("-ah", "-as"):
            subprocess.run(["qconf", flag, "localhost"], capture_output=True)
        call("sge_execd")
        # qconf opens its templates in an editor.
        for flag, name, values in [("-ap", "mpi", PARALLEL), ("-aq", "all.q", QUEUE)]:
            editor = work / "editor"
            edits = "; ".join(f"s|^{key} .*|{key} {value}|" for key, value in values.items())
            editor.write_text(f"#!/bin/sh\nexec sed -i '{edits}' \"$1\"\n")
            editor.chmod(0o755)
            again(["qconf", flag, name], {**os.environ, "EDITOR": str(editor)})
        again(["sh", "-c", "qstat -f -q all.q | grep -q '/4  *[0-9]'"])
        yield
    finally:
        for pid in [*work.rglob("*.pid")]:
            with contextlib.suppress(ProcessLookupError, ValueError):
                os.kill(int(pid.read_text()), signal.SIGTERM)


def submit(script, flags, folder):
    """Runs a job to its end."""
    command = ["qsub", "-sync", "y", "-cwd", "-V", "-j", "y", "-o", "/dev/null", *flags, str(script)]
    subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)


def changed(file, to, values):
    """Writes a file of names and values with other values."""
    text = file.read_text()
    for name, value in values.items():
        text = re.sub(rf"^{name}\s.*$", f"{name} {value}", text, flags=re.M)
    to.write_text(text)


def call(*command):
    subprocess.run([str(word) for word in command], check=True, capture_output=True, timeout=30)


def again(command, environment=None, seconds=20):
    """Until it succeeds: the daemons take a moment."""
    for _ in range(5 * seconds):
        last = subprocess.run(command, capture_output=True, text=True, env=environment)
        if last.returncode == 0:
            return
        time.sleep(0.2)
    raise TimeoutError(f"{command}: {last.stdout}{last.stderr}")
