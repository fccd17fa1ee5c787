//! A collective between threads allocates nothing.

use crate::alone;
use crate::process::allocations;
use shardlab::comm::Reduce;
use shardlab::launch;

#[test]
fn collectives_allocate_nothing() {
    if !alone("allocations::collectives_allocate_nothing") {
        return;
    }
    let all = launch::run(3, |comm| {
        let mut long = vec![1f32; 1 << 20];
        let mut x = vec![1f32; 3000];
        let mut part = vec![1f32; 1000];
        let mut all = || -> shardlab::comm::Result<()> {
            comm.all_reduce(&mut long, Reduce::Mean)?;
            comm.all_reduce(&mut x[..4], Reduce::Sum)?;
            comm.all_gather(&part, &mut x)?;
            comm.reduce_scatter(&x, &mut part, Reduce::Max)?;
            comm.broadcast(&mut x, 1)?;
            comm.barrier()
        };
        all()?;
        all()?;
        let before = allocations();
        comm.barrier()?;
        (0..10).try_for_each(|_| all())?;
        // No rank goes on before all have looked.
        let allocated = allocations() - before;
        comm.barrier()?;
        Ok(allocated)
    });
    assert_eq!(all.unwrap(), [0; 3]);
}
