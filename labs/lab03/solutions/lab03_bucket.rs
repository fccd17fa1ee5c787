//! lab03-bucket · The bucket size, by measuring

/// The bucket size, in parameters, with which a step takes the least time.
pub fn best_bucket(parameters: usize, step: &mut dyn FnMut(usize) -> f64) -> usize {
    let mut best = (f64::INFINITY, parameters);
    let mut size = parameters;
    // All sizes: a curve can rise and fall again.
    while size > 1024 {
        // Other programs only add to a step's time, so the fastest of several steps is the least
        // disturbed.
        let seconds = (0..8).map(|_| step(size)).fold(f64::INFINITY, f64::min);
        if seconds < best.0 {
            best = (seconds, size);
        }
        size /= 2;
    }
    best.1
}
