//! lab03-bucket · The bucket size, by measuring
//!
//! Many small buckets pay many latencies. One large bucket starts when the backward pass has ended,
//! so nothing hides it. The best size is between the two: plotted over the bucket size, the step's
//! time is often a U. The model, the ranks and the network decide where the lowest point is. So
//! measure it on each cluster.
//!
//! `step(size)` takes one step with buckets of `size` parameters, and returns its seconds. The
//! network is simulated, as by lab03's `--link`, and the clock as well: every computer measures the
//! same. Some of the clusters are busy. There, some steps take longer, because other programs delay
//! them. No step is ever faster than it would be without them.
//!
//! ```text
//! a cluster and a model of 100,000,000 parameters
//!
//! step(100,000,000)   0.3606 s      step(1,000,000)     0.3012 s
//! step( 10,000,000)   0.3066 s      step(  100,000)     0.7602 s
//! step(  3,000,000)   0.3016 s      step(   30,000)     2.1605 s
//!
//! best_bucket returns 1,000,000, or another size that takes 0.31 s at most
//! ```
//!
//! The check computes the step's time with your size, undisturbed. It may be 3% longer than with
//! the best size.

/// The bucket size, in parameters, with which a step takes the least time.
pub fn best_bucket(parameters: usize, step: &mut dyn FnMut(usize) -> f64) -> usize {
    let seconds = step(parameters);
    todo!("one bucket of all {parameters} parameters takes {seconds} s: and smaller ones?")
}
