//! One compute thread a rank: a large matmul and a large addition start no threads of their own.

use crate::alone;
use candle_core::{Device, Tensor};
use shardlab::launch;

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task")
        .expect("Linux lists a process's threads")
        .count()
}

#[test]
fn ranks_compute_on_their_own_thread() {
    if !alone("threads::ranks_compute_on_their_own_thread") {
        return;
    }
    let grown = launch::run(1, |_| {
        let before = threads();
        let x = Tensor::ones((1024, 1024), candle_core::DType::F32, &Device::Cpu)?;
        let y = x.matmul(&x)?.add(&x)?.exp()?;
        assert_eq!(y.dims(), [1024, 1024]);
        Ok(threads() - before)
    });
    assert_eq!(grown.unwrap(), [0]);
}
