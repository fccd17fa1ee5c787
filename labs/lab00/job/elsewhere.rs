//! What the environment says of other systems: schedulers whose nodes are not read here, and how
//! many devices a node of Aurora shows.

use super::environment::Environment;
use super::granted::Slots;
use super::hosts::{MOST, slurm_hosts};
use shardlab::error::BadInput;
use std::collections::BTreeSet;
use std::path::Path;

/// Variables of Flux's jobs. None of them names a node, and a batch script has but the last.
const FLUX: &str = "FLUX_JOB_ID FLUX_JOB_NNODES FLUX_ENCLOSING_ID FLUX_URI";

/// The nodes of a job of Flux, by its own program (flux-core 0.61 and later).
pub(super) fn flux_hosts(environment: &Environment) -> Option<Vec<String>> {
    let set = FLUX.split(' ').any(|name| environment.variable(name).is_some());
    let list = set.then(|| (environment.flux_hosts)()).flatten()?;
    // Flux writes lists as Slurm does (Flux RFC 29).
    slurm_hosts(list.trim()).ok().filter(|hosts| !hosts.is_empty())
}

/// A scheduler that is known by name only.
struct Elsewhere {
    name: &'static str,
    /// Variables that show it.
    signs: &'static str,
    /// The variables that hand its nodes over, any of them; nothing if a program does.
    nodes: &'static str,
    /// The host file that is made of them.
    file: &'static str,
}

const ELSEWHERE: [Elsewhere; 8] = [
    Elsewhere {
        name: "LSF",
        signs: "LSB_JOBID LSB_MCPU_HOSTS LSB_DJOB_HOSTFILE LSB_HOSTS",
        nodes: "LSB_MCPU_HOSTS",
        file: "hosts, after  echo $LSB_MCPU_HOSTS | xargs -n 2 printf '%s slots=%s\\n' > hosts  ($LSB_DJOB_HOSTFILE has them, too; at some sites the first is the node of the script)",
    },
    Elsewhere {
        name: "Grid Engine",
        signs: "PE_HOSTFILE SGE_O_HOST SGE_TASK_ID NSLOTS",
        nodes: "PE_HOSTFILE",
        file: "hosts, after  awk '{print $1 \" slots=\" $2}' $PE_HOSTFILE > hosts",
    },
    Elsewhere {
        name: "OAR",
        signs: "OAR_NODEFILE OAR_NODE_FILE OAR_JOB_ID OAR_JOBID",
        nodes: "OAR_NODEFILE OAR_NODE_FILE",
        file: "$OAR_NODEFILE",
    },
    Elsewhere {
        name: "Cobalt",
        signs: "COBALT_NODEFILE COBALT_JOBID",
        nodes: "COBALT_NODEFILE",
        file: "$COBALT_NODEFILE and --per-node",
    },
    Elsewhere {
        name: "PJM",
        signs: "PJM_O_NODEINF PJM_JOBID PJM_NODE",
        nodes: "PJM_O_NODEINF",
        file: "$PJM_O_NODEINF and --per-node",
    },
    Elsewhere {
        name: "LoadLeveler",
        signs: "LOADL_HOSTFILE LOADL_STEP_ID",
        nodes: "LOADL_HOSTFILE",
        file: "$LOADL_HOSTFILE",
    },
    Elsewhere {
        name: "Flux",
        signs: FLUX,
        nodes: "",
        file: "hosts and --per-node, after  flux hostlist -ed '\\n' local > hosts",
    },
    // Its jobs have one node, but for those of its parallel universe.
    Elsewhere {
        name: "HTCondor",
        signs: "_CONDOR_SCRATCH_DIR _CONDOR_SLOT _CONDOR_JOB_AD _CONDOR_PROCNO",
        nodes: "_CONDOR_NPROCS",
        file: "hosts and --per-node, with the hosts of its parallel universe: those in the file contact of condor_chirp, which HTCondor's openmpiscript makes a machine file of",
    },
];

/// The name of a scheduler that is around this process and whose nodes are not read, and a sentence
/// that says how to give them, unless this node is its only one.
pub(super) fn scheduler(environment: &Environment) -> Option<(&'static str, Option<String>)> {
    let is_set = |names: &str| names.split(' ').any(|name| environment.variable(name).is_some());
    let Elsewhere { name, nodes, file, .. } = ELSEWHERE.iter().find(|one| is_set(one.signs))?;
    if granted(environment).is_some_and(|(hosts, _)| hosts.len() == 1) {
        return Some((name, None));
    }
    let sentence = if nodes.is_empty() || is_set(nodes) {
        format!(
            "this is a job of {name}, whose nodes are not read: give them with --hostfile {file}"
        )
    } else {
        let unset = nodes.replace(' ', " or ");
        format!(
            "this is a job of {name}, and {unset}, which tells its nodes, is not set: ranks are on this node alone"
        )
    };
    Some((name, Some(sentence)))
}

/// Hosts and their slots, as Grid Engine or LSF granted them, and the variable that says so.
fn granted(environment: &Environment) -> Option<(Vec<(String, usize)>, &'static str)> {
    let pair = |host: Option<&str>, slots: Option<&str>| {
        Some((
            host?.to_string(),
            slots?.parse().ok().filter(|slots| (1..=MOST).contains(slots))?,
        ))
    };
    let (hosts, from): (Option<Vec<_>>, _) = if let Some(path) = environment.variable("PE_HOSTFILE")
    {
        let text = (environment.read)(Path::new(&path)).ok()?;
        // A host, its slots, a queue and its processors.
        let host = |line: &str| {
            let mut words = line.split_whitespace();
            pair(words.next(), words.next())
        };
        let lines = text.lines().filter(|line| !line.trim().is_empty());
        (lines.map(host).collect(), "PE_HOSTFILE")
    } else {
        let list = environment.variable("LSB_MCPU_HOSTS")?;
        let words: Vec<&str> = list.split_whitespace().collect();
        let host = |two: &[&str]| pair(two.first().copied(), two.get(1).copied());
        (words.chunks(2).map(host).collect(), "LSB_MCPU_HOSTS")
    };
    hosts.filter(|hosts| !hosts.is_empty()).map(|hosts| (hosts, from))
}

/// Ranks that a scheduler whose nodes are not read granted on this node, and the variable that says
/// so. `NSLOTS` counts those of all nodes, where there are several.
pub(super) fn slots_here(environment: &Environment) -> Result<Option<Slots>, BadInput> {
    let Some((hosts, from)) = granted(environment) else {
        let slots = environment.number("NSLOTS")?;
        let alone = environment.variable("PE_HOSTFILE").is_none();
        return Ok(slots.filter(|_| alone).map(|slots| (vec![slots], "NSLOTS".to_string())));
    };
    let short = |name: &str| name.split('.').next().unwrap_or_default().to_lowercase();
    let here = |(name, _): &&(String, usize)| short(name) == short(&environment.host);
    // A host may have another name there. The job's script runs on the first.
    let slots = match hosts.iter().filter(here).map(|(_, slots)| slots).sum() {
        0 => hosts[0].1,
        slots => slots,
    };
    Ok(Some((vec![slots], from.to_string())))
}

/// The devices that Level Zero shows on a node of Aurora, which has six GPUs of two tiles, and the
/// variables that say so. A rank's own mask (`gpu_tile_compact.sh` sets one) is not the node's.
pub(super) fn aurora_devices(environment: &Environment) -> Result<(usize, String), BadInput> {
    let hierarchy = environment.variable("ZE_FLAT_DEVICE_HIERARCHY");
    let composite = hierarchy.as_deref() == Some("COMPOSITE");
    let all = if composite { 6 } else { 12 };
    let mut node = "an Aurora node".to_string();
    if let Some(value) = &hierarchy {
        node += &format!(" with ZE_FLAT_DEVICE_HIERARCHY={value}");
    }
    let is_rank = environment.variable("PALS_RANKID").is_some();
    let Some(mask) = environment.variable("ZE_AFFINITY_MASK").filter(|_| !is_rank) else {
        return Ok((all, node));
    };
    // A device, or a tile of a GPU. Level Zero leaves out what is not there.
    let device = |entry: &str| {
        let (device, tile) = entry.trim().split_once('.').unwrap_or((entry.trim(), ""));
        let is_there = tile.is_empty() || composite && ["0", "1"].contains(&tile);
        device.parse().ok().filter(|&device: &usize| is_there && device < all)
    };
    let devices: BTreeSet<usize> = mask.split(',').filter_map(device).collect();
    if devices.is_empty() {
        return Err(BadInput::new(
            format!("ZE_AFFINITY_MASK={mask} names none of the {all} devices of an Aurora node"),
            "write their numbers, as in 0,1 (0.0 is a tile only with ZE_FLAT_DEVICE_HIERARCHY=COMPOSITE); or give --per-node",
        ));
    }
    let with = if hierarchy.is_some() { "," } else { " with" };
    Ok((devices.len(), format!("{node}{with} ZE_AFFINITY_MASK={mask}")))
}
