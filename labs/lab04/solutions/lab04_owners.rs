//! lab04-owners · Whole matrices for ranks

/// No rank gets more matrices than this.
pub const MOST: usize = 5;

/// The owner of each matrix, from its size. There are at most `MOST` times `ranks` matrices.
pub fn owners(sizes: &[usize], ranks: usize) -> Vec<usize> {
    let mut largest_first: Vec<usize> = (0..sizes.len()).collect();
    largest_first.sort_by_key(|&matrix| std::cmp::Reverse(sizes[matrix]));

    // Each to the rank that has least, of those with room.
    let mut least = vec![0; sizes.len()];
    let mut held = vec![0; ranks];
    let mut count = vec![0; ranks];
    for &matrix in &largest_first {
        let with_room = (0..ranks).filter(|&rank| count[rank] < MOST);
        let rank = with_room.min_by_key(|&rank| held[rank]).unwrap_or(0);
        least[matrix] = rank;
        held[rank] += sizes[matrix];
        count[rank] += 1;
    }
    // Dealt back and forth: 0 1 1 0 0 1 1 0 on two ranks.
    let mut dealt = vec![0; sizes.len()];
    for (turn, &matrix) in largest_first.iter().enumerate() {
        let place = turn % (2 * ranks);
        dealt[matrix] = place.min(2 * ranks - 1 - place);
    }
    // Neither rule is always the better one.
    let fullest = |owners: &[usize]| {
        let mut held = vec![0; ranks];
        for (&rank, size) in owners.iter().zip(sizes) {
            held[rank] += size;
        }
        held.into_iter().max()
    };
    if fullest(&least) <= fullest(&dealt) {
        least
    } else {
        dealt
    }
}
