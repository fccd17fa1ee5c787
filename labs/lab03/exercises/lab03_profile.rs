//! lab03-profile · Read a profile
//!
//! Three traces, of one step on two ranks each. In each, one thing is wrong. The pictures are
//! enough. To look closer, open the files of `labs/lab03/traces` at ui.perfetto.dev, or in Chrome
//! at chrome://tracing: they stay on your machine.
//!
//! A is lab03 over a slow link. For how many ms does rank 0 communicate while it does not compute?
//! A tenth more or less is right.
//!
//! ```text
//!   A: exposed.json
//!   ▚ data   ▓ forward   ▒ backward   ╳ all-reduce   ≡ optimizer
//!       rank 0 │▓▓▓▓▓▓▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒
//!   all-reduce │       ╳╳╳╳╳╳╳╳╳╳╳╳╳╳╳╳╳╳╳╳╳╳╳╳╳╳╳╳╳╳╳╳╳╳╳╳╳╳╳╳╳╳╳╳╳╳╳╳╳╳╳╳╳╳╳╳╳
//!              └─────────────┴────────────┴─────────────┴────────────┴─────── ms
//!              0            20           40            60           80       100
//! ```
//!
//! B is PyTorch's DDP, as `torch.profiler` recorded it. One rank is late in every step. Which one?
//!
//! ```text
//!   B: late.json
//!   ▚ data   ▓ forward   ▒ backward   ╳ all-reduce   ≡ optimizer
//!       rank 0 │▚▓▓▓▓▓▓▓▓▓▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒                         ≡≡
//!   all-reduce │              ╳╳╳╳╳╳╳╳╳╳╳╳╳╳╳╳╳╳╳╳╳╳╳╳╳╳╳╳╳╳╳╳╳╳╳╳╳╳╳╳╳╳╳╳╳╳╳╳
//!       rank 1 │▚▚▚▚▚▚▚▚▚▚▚▚▚▚▚▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒
//!   all-reduce │                                     ╳╳╳╳    ╳╳╳ ╳    ╳╳╳╳╳╳
//!              └───────┴──────┴───────┴──────┴───────┴──────┴───────┴──────┴─ ms
//!              0      20     40      60     80      100    120     140    160
//! ```
//!
//! C is DDP again. Each bucket starts when its gradients are complete, and not before the one with
//! the number below. Which bucket is complete so late that those after it have to wait?
//!
//! ```text
//!   C: bucket.json
//!   ▚ data   ▓ forward   ▒ backward   ╳ all-reduce   ≡ optimizer
//!     rank 0 │▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒    ≡
//!   bucket 0 │                            ╳╳
//!   bucket 1 │                                      ╳╳╳╳
//!   bucket 2 │                                                             ╳╳╳
//!   bucket 3 │                                                             ╳╳╳
//!   bucket 4 │                                                                ╳
//!            └────────┴───────┴────────┴───────┴────────┴───────┴────────┴─── ms
//!            0       20      40       60      80       100     120      140  160
//! ```

/// A: milliseconds, B: a rank, C: a bucket.
pub fn read_off() -> [usize; 3] {
    todo!("[ms, rank, bucket]")
}
