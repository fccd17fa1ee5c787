//! lab10's benchmarks, one after the other in one process: all memory is free again.

use crate::alone;
use crate::process::process_live;
use labs::lab10::{Benchmark, Harness, Model, all, run_distributed_benchmark};
use shardlab::comm::Options;
use shardlab::tensor::Precision;

#[test]
fn benchmarks_leave_no_memory_behind() {
    if !alone("libraries::benchmarks_leave_no_memory_behind") {
        return;
    }
    let harness = Harness {
        options: Options::default(),
        repeats: 1,
        seed: 1,
        limit: None,
        reads_ungathered: false,
    };
    let model = Model::find("stories260k").unwrap();
    let run = || {
        for strategy in all(&model.shape, 4, 4).0 {
            let benchmark = Benchmark {
                model: model.clone(),
                seq_len: 16,
                batch_sizes: vec![4],
                dtype: Precision::F32,
                world_size: strategy.ranks,
                config: strategy.config,
            };
            run_distributed_benchmark(&harness, &benchmark).unwrap();
        }
        process_live()
    };
    // Buffers that a process needs only once stay.
    let before = run();
    let after = run();
    println!("{before} bytes before, {after} after");
    // A model of 260,032 parameters alone takes a million bytes.
    assert!((after - before).abs() < 20_000, "{before} bytes before, {after} after");
}
