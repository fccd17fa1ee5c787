//! A collective between threads allocates nothing. Alone in its file, because it counts all of the process's allocations.

use shardlab::comm::Reduce;
use shardlab::launch;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn collectives_allocate_nothing() {
    let allocations = launch::run(3, |comm| {
        let (mut long, mut x, mut part) = (vec![1f32; 1 << 20], vec![1f32; 3000], vec![1f32; 1000]);
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
        let before = ALLOCATIONS.load(Relaxed);
        comm.barrier()?;
        (0..10).try_for_each(|_| all())?;
        // No rank goes on before all have looked.
        let allocated = ALLOCATIONS.load(Relaxed) - before;
        comm.barrier()?;
        Ok(allocated)
    });
    assert_eq!(allocations.unwrap(), [0; 3]);
}
