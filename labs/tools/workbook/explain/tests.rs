//! Dumps of hangs that happened, in `book/pytorch/hangs`, and dumps made here of what gloo cannot
//! show: NCCL's states, messages, several groups.

use super::explain;
use kit::show::Screen;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

fn hangs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../book/pytorch/hangs")
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> =
        folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

#[track_caller]
fn screen(files: &[PathBuf]) -> String {
    let text = explain(&Screen::plain(), files).unwrap();
    // A verdict is one line, however long: it may be searched for.
    assert!(text.lines().skip(1).all(|line| line.chars().count() <= 80), "{text}");
    text
}

/// Each folder's verdict, and what its screen also says.
const HANGS: [(&str, &str, &[&str]); 12] = [
    (
        "skips",
        "missing in call 6 (all_reduce): rank 2",
        &["hang.py:50 in skips", "load_batch"],
    ),
    ("goes_on", "missing in call 6 (all_reduce): rank 2", &["its call 6 is barrier"]),
    (
        "rank_0_alone",
        "missing in call 7 (all_reduce): ranks 1, 2, 3",
        &["once too often"],
    ),
    (
        "other_order",
        "missing in call 4 (all_reduce): rank 1",
        &["its call 4 is broadcast, hang.py:72"],
    ),
    ("other_length", "sizes differ in call 4 (all_reduce): rank 3", &["[3] to [3]"]),
    (
        "wrong_group",
        "missing in call 1 (all_reduce) of group 1 (experts): rank 3",
        &["ranks 0, 1, 3"],
    ),
    ("dies", "missing in call 5 (all_reduce): rank 3", &["no dump"]),
    ("late", "missing in call 5 (barrier): rank 0", &["it may only be late"]),
    ("came_late", "missing in call 5 (barrier): nobody", &["rank 0 came last, 4.0 s"]),
    ("never_sent", "missing in call 3 (barrier): rank 1", &["hang.py:126"]),
    (
        "wrapped",
        "missing in call 302 (all_reduce): rank 1",
        &["oldest calls are gone"],
    ),
    (
        "circle",
        "missing in call 1 (all_reduce) of group 1 (one): rank 1; missing in call 1 (all_reduce) of \
         group 2 (other): rank 0",
        &["in the same order"],
    ),
];

#[test]
fn hangs_that_happened_are_named() {
    let folders = files(&hangs()).into_iter().filter(|path| path.is_dir()).count();
    assert_eq!(folders, HANGS.len());
    for (folder, verdict, also) in HANGS {
        let text = screen(&files(&hangs().join(folder)));
        let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(text.lines().next(), Some(verdict), "{folder}");
        assert!(also.iter().all(|part| flat.contains(part)), "{folder}: {flat}");
    }
}

/// A job whose dumps are made here: the ranks' entries, and groups by name with their ranks.
struct Made {
    folder: tempfile::TempDir,
    config: Value,
}

impl Made {
    fn new(config: Value) -> Made {
        Made { folder: tempfile::tempdir().unwrap(), config }
    }

    fn rank(self, rank: usize, entries: &[Value]) -> Made {
        let first = entries.first().map_or(0, |entry| entry["record_id"].as_i64().unwrap_or(0));
        let entries: Vec<Value> = entries
            .iter()
            .enumerate()
            .map(|(at, entry)| {
                let mut entry = entry.clone();
                entry["record_id"] = json!(first + at as i64);
                entry
            })
            .collect();
        let dump = json!({"version": "2.10", "pg_config": self.config, "pg_status": {}, "entries": entries});
        let path = self.folder.path().join(format!("nccl_trace_rank_{rank}"));
        std::fs::write(path, dump.to_string()).unwrap();
        self
    }

    #[track_caller]
    fn verdict(&self, verdict: &str) -> String {
        let text = screen(&files(self.folder.path()));
        assert_eq!(text.lines().next(), Some(verdict), "{text}");
        text
    }
}

fn world() -> Value {
    json!({"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2]"}})
}

/// A call of NCCL in group 0.
fn nccl(number: i64, op: &str, size: u64, state: &str) -> Value {
    json!({
        "process_group": ["0", "default_pg"], "pg_id": 0, "collective_seq_id": number, "p2p_seq_id": 0,
        "op_id": number, "profiling_name": format!("nccl:{op}"), "state": state, "retired": state == "completed",
        "input_sizes": [[size]], "output_sizes": [[size]], "input_dtypes": ["Float"], "output_dtypes": ["Float"],
        "time_created_ns": number.saturating_mul(1_000_000_000), "is_p2p": op.contains(' '),
        "time_discovered_started_ns": if state == "scheduled" { 0 } else { 5 },
    })
}

fn of(group: &str, description: &str, mut call: Value) -> Value {
    call["process_group"] = json!([group, description]);
    call
}

fn with(mut call: Value, key: &str, value: Value) -> Value {
    call[key] = value;
    call
}

#[test]
fn states_of_nccl_say_where_it_stands() {
    let done = nccl(1, "all_reduce", 4, "completed");
    let started = nccl(2, "all_reduce", 4, "started");
    let next = nccl(3, "all_reduce", 4, "scheduled");
    // Calls that were issued ahead change nothing.
    let ahead = [done.clone(), started.clone(), next.clone()];
    let missing = Made::new(world())
        .rank(0, &ahead)
        .rank(1, &ahead)
        .rank(2, std::slice::from_ref(&done));
    missing.verdict("missing in call 2 (all_reduce): rank 2");
    let all = Made::new(world()).rank(0, &ahead).rank(1, &ahead).rank(2, &ahead);
    assert!(all.verdict("missing in call 2 (all_reduce): nobody").contains("slow rank"));
    let late = [done.clone(), nccl(2, "all_reduce", 4, "scheduled")];
    let device = Made::new(world()).rank(0, &ahead).rank(1, &late).rank(2, &ahead);
    assert!(
        device
            .verdict("missing in call 2 (all_reduce): rank 1")
            .contains("has not begun it")
    );
    let dead = Made::new(world()).rank(0, &ahead).rank(2, &ahead);
    dead.verdict("missing in call 2 (all_reduce): rank 1");
    let ended = Made::new(world())
        .rank(0, std::slice::from_ref(&done))
        .rank(1, std::slice::from_ref(&done))
        .rank(2, std::slice::from_ref(&done));
    assert!(
        ended
            .verdict("missing in call 1 (all_reduce): nobody")
            .contains("have ended all calls")
    );
    // The oldest calls of rank 0 are lost.
    let wrapped = [
        with(nccl(7, "all_reduce", 4, "completed"), "record_id", json!(6)),
        nccl(8, "all_reduce", 4, "started"),
    ];
    let behind = [nccl(6, "all_reduce", 4, "completed"), nccl(7, "all_reduce", 4, "completed")];
    let ring = Made::new(world()).rank(0, &wrapped).rank(1, &wrapped).rank(2, &behind);
    ring.verdict("missing in call 8 (all_reduce): rank 2");
    // Nothing recorded at all.
    Made::new(world())
        .rank(0, &[])
        .verdict("missing in no call: no rank has recorded one");
}

#[test]
fn sizes_and_types_may_differ_only_where_that_is_legal() {
    let run = |calls: [Value; 3]| {
        let made = Made::new(world());
        let [one, two, three] = calls;
        made.rank(0, &[one]).rank(1, &[two]).rank(2, &[three])
    };
    let same = |op, size| nccl(1, op, size, "started");
    let sized = |op, from: Value, to: Value| {
        with(with(same(op, 0), "input_sizes", from), "output_sizes", to)
    };
    let all_gather = |part: u64, whole: u64| sized("all_gather", json!([[part]]), json!([[whole]]));
    run([all_gather(1, 6), all_gather(2, 6), all_gather(3, 6)])
        .verdict("missing in call 1 (all_gather): nobody");
    run([all_gather(4, 12), all_gather(4, 12), all_gather(3, 12)])
        .verdict("sizes differ in call 1 (all_gather): rank 2");
    run([same("all_to_all", 3), same("all_to_all", 4), same("all_to_all", 5)])
        .verdict("missing in call 1 (all_to_all): nobody");
    let root = |is: bool| {
        sized("scatter", if is { json!([[4], [4], [4]]) } else { json!([]) }, json!([[4]]))
    };
    run([root(true), root(false), root(false)]).verdict("missing in call 1 (scatter): nobody");
    run([root(true), root(true), root(false)])
        .verdict("roots differ in call 1 (scatter): ranks 0, 1");
    let half = with(same("all_reduce", 4), "input_dtypes", json!(["BFloat16"]));
    run([same("all_reduce", 4), half, same("all_reduce", 4)])
        .verdict("types differ in call 1 (all_reduce): rank 1");
    // A shape is nothing to a sum.
    let shaped = sized("all_reduce", json!([[2, 2]]), json!([[2, 2]]));
    run([same("all_reduce", 4), shaped, same("all_reduce", 4)])
        .verdict("missing in call 1 (all_reduce): nobody");
    run([same("all_reduce", 4), same("broadcast", 4), same("barrier", 4)])
        .verdict("operations differ in call 1 (all_reduce): ranks 0, 1, 2");
    // A call that has ended fitted together.
    let ended = |size| nccl(1, "all_reduce", size, "completed");
    run([ended(4), ended(4), ended(5)]).verdict("missing in call 1 (all_reduce): nobody");
}

#[test]
fn messages_and_groups_lead_to_the_rank_that_nobody_waits_for() {
    let message = |name: &str, number: i64, state: &str| {
        with(nccl(0, name, 4, state), "p2p_seq_id", json!(number))
    };
    let sent = message("send 0->1", 1, "completed");
    let received = message("recv 1<-0", 1, "completed");
    let waits = message("recv 1<-0", 2, "started");
    let never = Made::new(world())
        .rank(0, std::slice::from_ref(&sent))
        .rank(1, &[received.clone(), waits.clone()])
        .rank(2, &[]);
    never.verdict("missing in call 2 (recv): rank 0");
    let long = with(message("send 0->1", 2, "started"), "input_sizes", json!([[5]]));
    let sizes = Made::new(world())
        .rank(0, &[sent, long])
        .rank(1, &[received, waits])
        .rank(2, &[]);
    sizes.verdict("sizes differ in call 2 (recv): ranks 0, 1");

    let config = json!({
        "0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"},
        "1": {"name": "1", "desc": "tp", "ranks": "[0, 1]"}, "2": {"name": "2", "desc": "tp", "ranks": "[2, 3]"},
        "3": {"name": "3", "desc": "dp", "ranks": "[0, 2]"}, "4": {"name": "4", "desc": "dp", "ranks": "[1, 3]"},
    });
    let tp = |group, state| of(group, "tp", nccl(5, "all_reduce", 4, state));
    let dp = |group, state| {
        let call = of(group, "dp", nccl(5, "_all_gather_base", 4, state));
        with(call, "time_created_ns", json!(6_000_000_000_i64))
    };
    // Rank 3 is in no call; rank 2 waits for it; rank 0 waits for rank 2, rank 1 for rank 3.
    let chain = Made::new(config.clone())
        .rank(0, &[tp("1", "completed"), dp("3", "started")])
        .rank(1, &[tp("1", "completed"), dp("4", "started")])
        .rank(2, &[tp("2", "started")])
        .rank(3, &[of("4", "dp", nccl(4, "_all_gather_base", 4, "completed"))]);
    chain.verdict("missing in call 5 (all_reduce) of group 2 (tp): rank 3");
    let circle = Made::new(config)
        .rank(0, &[dp("3", "started")])
        .rank(1, &[tp("1", "started")])
        .rank(2, &[tp("2", "started")])
        .rank(3, &[dp("4", "started")]);
    circle.verdict(
        "missing in call 5 (all_reduce) of group 1 (tp): rank 0; missing in call 5 (_all_gather_base) of group 3 (dp): rank 2",
    );
    // The mark around messages has the number of the collective before them.
    let mark = with(nccl(1, "coalesced", 4, "completed"), "input_sizes", json!([]));
    let (send, recv) = (message("send 0->1", 1, "completed"), message("recv 1<-0", 1, "completed"));
    let first = nccl(1, "all_reduce", 4, "completed");
    let second = nccl(2, "barrier", 4, "started");
    let marks = Made::new(world())
        .rank(0, &[first.clone(), send, mark.clone(), second.clone()])
        .rank(1, &[first.clone(), recv, mark, second])
        .rank(2, &[first]);
    marks.verdict("missing in call 2 (barrier): rank 2");
}

#[track_caller]
fn refused(name: &str, bytes: &[u8], how: &str) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    let error = explain(&Screen::plain(), &[path]).unwrap_err();
    assert!(error.what.contains(name) && error.what.contains(how), "{error}");
}

#[test]
fn other_files_are_refused_by_name() {
    let pickle = std::fs::read(hangs().join("skips/rank0.pickle")).unwrap();
    refused("rank0.pickle", &pickle[..pickle.len() / 2], "ends too early");
    refused("rank0.json", b"{\"version\": \"2.10\", \"pg_con", "broken JSON");
    refused("rank0.json", b"{}", "missing field `version`");
    refused("rank0.json", b"{\"version\": \"1.5\", \"pg_config\": {}}", "version 1.5");
    refused(
        "rank0.json",
        b"{\"version\": \"2.5\", \"pg_config\": {}, \"entries\": [{}]}",
        "no `profiling_name`",
    );
    refused(
        "rank0.json",
        b"{\"version\": \"2.5\", \"pg_config\": {\"0\": {\"ranks\": \"[-1]\"}}}",
        "ranks that are none",
    );
    refused("rank0.txt", b"Thu Nov 26: nothing", "nothing that py-spy printed");
    refused("rank0.txt", b"<!DOCTYPE html><html></html>", "an HTML page");
    refused("rank0.bin", b"\xff\xfe\x00", "neither a pickle nor text");
    refused("dump.json", b"{}", "no rank");
    refused("rank9999999999.json", b"{}", "no rank");
    refused(
        "rank0.pickle",
        b"\x80\x02cos\nsystem\nX\x04\x00\x00\x00true\x85R.",
        "no dump of a flight recorder",
    );
    refused("rank0.json", "[".repeat(1 << 20).as_bytes(), "");
    refused(
        "rank0.json",
        format!("{{\"a\": {}", "[".repeat(1 << 20)).as_bytes(),
        "broken JSON",
    );
}

/// Real dumps, with bytes changed, cut and repeated: an error or a screen, and soon.
#[test]
fn changed_dumps_are_errors_or_screens() {
    let folder = tempfile::tempdir().unwrap();
    let mut seed = 1_u64;
    let mut random = |below: usize| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) as usize % below
    };
    let began = Instant::now();
    let mut errors = 0;
    for (source, name) in [
        ("skips/rank0.pickle", "rank0.pickle"),
        ("goes_on/rank0.json", "rank0.json"),
        ("skips/rank2.txt", "rank0.txt"),
    ] {
        let whole = std::fs::read(hangs().join(source)).unwrap();
        let other = hangs().join("skips/rank1.pickle");
        let path = folder.path().join(name);
        for _ in 0..150 {
            let mut bytes = whole.clone();
            for _ in 0..1 + random(4) {
                let at = random(bytes.len().min(whole.len()));
                match random(4) {
                    0 => bytes[at] = random(256) as u8,
                    1 => bytes.truncate(at.max(1)),
                    2 => bytes[at] = b"0129-[]{},:\"."[random(13)],
                    _ => drop(bytes.splice(at..at, whole[..at].to_vec())),
                }
            }
            std::fs::write(&path, &bytes).unwrap();
            match explain(&Screen::plain(), &[path.clone(), other.clone()]) {
                Ok(text) => assert!(!text.contains('\x1b') && !text.contains('\r'), "{text:?}"),
                Err(error) => {
                    assert!(error.what.contains(name), "{error}");
                    errors += 1;
                }
            }
        }
    }
    assert!((50..450).contains(&errors), "{errors} errors");
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
}

/// Numbers at the ends of what they can be, names with control characters.
#[test]
fn absurd_numbers_and_names_do_no_harm() {
    let evil = with(
        nccl(i64::MAX, "all_\u{1b}[2Jreduce\n", u64::MAX, "started"),
        "time_created_ns",
        json!(i64::MIN),
    );
    let other = with(
        nccl(i64::MIN, "recv 99999999999<-18446744073709551615", 1, "started"),
        "time_created_ns",
        json!(i64::MAX),
    );
    let made = Made::new(world())
        .rank(0, &[evil.clone(), other.clone()])
        .rank(1, &[other, evil.clone()])
        .rank(2, &[evil]);
    let text = screen(&files(made.folder.path()));
    assert!(!text.contains('\x1b'), "{text:?}");
}
