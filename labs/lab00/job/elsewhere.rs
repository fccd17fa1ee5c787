//! What the environment says of other systems: schedulers whose nodes are not read here, and how
//! many devices a node of Aurora shows.

use shardlab::error::BadInput;

/// A scheduler that is known by name only.
struct Elsewhere {
    name: &'static str,
    /// The variables that show it.
    signs: &'static [&'static str],
    /// Where its nodes are.
    nodes: &'static str,
    /// What hands them over.
    command: &'static str,
}

const ELSEWHERE: [Elsewhere; 7] = [
    Elsewhere {
        name: "LSF",
        signs: &["LSB_JOBID", "LSB_MCPU_HOSTS", "LSB_DJOB_HOSTFILE", "LSB_HOSTS"],
        nodes: "in the file $LSB_DJOB_HOSTFILE and in LSB_MCPU_HOSTS, at some sites with the node of the script first",
        command: "echo $LSB_MCPU_HOSTS | xargs -n 2 printf '%s slots=%s\\n' > hosts; then --hostfile hosts",
    },
    Elsewhere {
        name: "Grid Engine",
        signs: &["PE_HOSTFILE", "SGE_O_HOST", "SGE_TASK_ID", "NSLOTS"],
        nodes: "in the file $PE_HOSTFILE",
        command: "awk '{print $1 \" slots=\" $2}' $PE_HOSTFILE > hosts; then --hostfile hosts",
    },
    Elsewhere {
        name: "OAR",
        signs: &["OAR_NODEFILE", "OAR_NODE_FILE", "OAR_JOB_ID", "OAR_JOBID"],
        nodes: "in the file $OAR_NODEFILE",
        command: "--hostfile $OAR_NODEFILE",
    },
    Elsewhere {
        name: "Cobalt",
        signs: &["COBALT_NODEFILE", "COBALT_JOBID"],
        nodes: "in the file $COBALT_NODEFILE",
        command: "--hostfile $COBALT_NODEFILE, with --per-node",
    },
    Elsewhere {
        name: "PJM",
        signs: &["PJM_O_NODEINF", "PJM_JOBID", "PJM_NODE"],
        nodes: "in the file $PJM_O_NODEINF",
        command: "--hostfile $PJM_O_NODEINF, with --per-node",
    },
    Elsewhere {
        name: "LoadLeveler",
        signs: &["LOADL_HOSTFILE", "LOADL_STEP_ID"],
        nodes: "in the file $LOADL_HOSTFILE",
        command: "--hostfile $LOADL_HOSTFILE",
    },
    Elsewhere {
        name: "Flux",
        signs: &["FLUX_JOB_ID", "FLUX_JOB_NNODES", "FLUX_ENCLOSING_ID", "FLUX_URI"],
        nodes: "known to `flux hostlist`",
        command: "flux hostlist local > hosts; then --hostfile hosts, with --per-node",
    },
];

/// The name of a scheduler that is around this process and whose nodes are not read, and a sentence
/// that says where they are.
pub(super) fn scheduler(is_set: impl Fn(&str) -> bool) -> Option<(&'static str, String)> {
    let found = ELSEWHERE.iter().find(|one| one.signs.iter().any(|sign| is_set(sign)))?;
    let Elsewhere { name, nodes, command, .. } = found;
    let sentence = format!(
        "this is a job of {name}, whose nodes are not read: they are {nodes}; give them with {command}"
    );
    Some((name, sentence))
}

/// The devices that Level Zero shows on a node of Aurora, which has six GPUs of two tiles, and the
/// variables that say so. A rank's own mask (`gpu_tile_compact.sh` sets one) is not the node's.
pub(super) fn aurora_devices(
    variable: impl Fn(&str) -> Option<String>,
) -> Result<(usize, String), BadInput> {
    let hierarchy = variable("ZE_FLAT_DEVICE_HIERARCHY");
    let composite = hierarchy.as_deref() == Some("COMPOSITE");
    let all = if composite { 6 } else { 12 };
    let mut from: Vec<String> = Vec::new();
    from.extend(hierarchy.map(|value| format!("ZE_FLAT_DEVICE_HIERARCHY={value}")));
    let mask = variable("ZE_AFFINITY_MASK").filter(|_| variable("PALS_RANKID").is_none());
    let Some(mask) = mask else {
        return Ok((all, from.join(", ")));
    };
    // A device, or a tile of a GPU. Level Zero leaves out what is not there.
    let device = |entry: &str| -> Option<usize> {
        let (device, tile) = entry.trim().split_once('.').unwrap_or((entry.trim(), "0"));
        let there = composite && ["0", "1"].contains(&tile) || !entry.contains('.');
        device.parse().ok().filter(|&device: &usize| there && device < all)
    };
    let mut devices: Vec<usize> = mask.split(',').filter_map(device).collect();
    devices.sort_unstable();
    devices.dedup();
    if devices.is_empty() {
        return Err(BadInput::new(
            format!("ZE_AFFINITY_MASK={mask} names none of the {all} devices of an Aurora node"),
            "write their numbers, as in 0,1 (0.0 is a tile only with ZE_FLAT_DEVICE_HIERARCHY=COMPOSITE); or give --per-node",
        ));
    }
    from.push(format!("ZE_AFFINITY_MASK={mask}"));
    Ok((devices.len(), from.join(", ")))
}
